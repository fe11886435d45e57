"""Sending mails by SMTP, with headers that no row can inject into."""

from __future__ import annotations

import re
import smtplib
import socket
import ssl
from contextlib import suppress
from dataclasses import dataclass
from email.message import EmailMessage
from email.policy import SMTP as POLICY
from email.utils import formatdate
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from millstream.errors import InvalidSpec, MillstreamError
from millstream.kafka import secrets
from millstream.sinks.alerts.server import DEFAULT, PASSWORD, REFERENCE, checked_server
from millstream.sinks.webhook.post import RetryLater
from millstream.timeouts import bounded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.sinks.alerts.email import Email
    from millstream.sinks.alerts.server import Server

LONGEST_SUBJECT = 200
MOST_CHARACTERS = 100_000
_TIMEOUT, _WHOLE = 10.0, 15.0
_SETTING = "the url of Email"
_CONTROLS = re.compile(r"[\x00-\x1f\x7f\u0085\u2028\u2029]+")
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


class PartlyDelivered(RetryLater):
    """Some recipients have the mail; it must be sent again to those that are `left`."""

    def __init__(self, why: str, left: Sequence[str]) -> None:
        super().__init__(why)
        self.left = tuple(left)


@dataclass(frozen=True)
class Mail:
    """A mail to send; `id` stays the same over all attempts."""

    id: str
    subject: str
    body: str


def message(mail: Mail, sender: str, to: Sequence[str]) -> EmailMessage:
    """Return the mail with its headers; a header stays one line, whatever a row holds."""
    built = EmailMessage(policy=POLICY)
    # The library decodes encoded words such as =?utf-8?q?=0A?=, line breaks included.
    subject = _CONTROLS.sub(" ", mail.subject).replace("=?", "= ?").strip()
    if len(subject) > LONGEST_SUBJECT:
        subject = subject[: LONGEST_SUBJECT - 1] + "…"
    built["From"], built["To"], built["Subject"] = sender, ", ".join(to), subject
    built["Date"] = formatdate(usegmt=True)
    built["Message-ID"] = f"<{mail.id}@{sender.rpartition('@')[2]}>"
    built["Auto-Submitted"] = "auto-generated"
    body = _UNPRINTABLE.sub("\ufffd", mail.body)
    if len(body) > MOST_CHARACTERS:
        body = body[:MOST_CHARACTERS] + "\n… (the rest of the text is left out)"
    built.set_content(body.encode("utf-8", "replace").decode())
    return built


def send(address: Email, mail: Mail, left: Sequence[str] | None = None) -> None:
    """Send a mail once, to the recipients that are `left`.

    Raises:
        RetryLater: the server did not accept it now, or not for all recipients.
        MillstreamError: the server will never accept it.
    """
    server = _server(address)
    to = tuple(left or address.to)
    content = message(mail, address.sender or f"millstream@{_host_name()}", address.to)
    try:
        refused = bounded(lambda: _transmit(server, content, to), _WHOLE)
    except (smtplib.SMTPRecipientsRefused, smtplib.SMTPResponseException) as error:
        raise _classify_error(server, error) from error
    except (smtplib.SMTPException, OSError) as error:
        reason = str(error) or type(error).__name__
        raise RetryLater(f"{server.host} did not accept a mail ({reason})") from error
    _check_refused(server, refused)


def _server(address: Email) -> Server:
    """Return the server with its user and password. Resolved values are used literally, so no
    character in them can change the server."""
    url, plain = address.url or DEFAULT, address.allow_plain
    server = checked_server(url, allow_plain=plain, value=_resolved)
    if server is None:
        server = checked_server(secrets.resolve(url, setting=_SETTING), allow_plain=plain)
    if server is None:
        raise InvalidSpec("Email needs the address of a server", got="a reference to a reference")
    return server


def _resolved(text: str) -> str:
    """Return a user or password with its references resolved and the rest unquoted."""
    plain = [unquote(part) for part in REFERENCE.split(text)]
    values = [secrets.resolve(one, setting=_SETTING) for one in REFERENCE.findall(text)]
    return plain[0] + "".join(a + b for a, b in zip(values, plain[1:], strict=True))


@cache
def _host_name() -> str:
    name = socket.getfqdn()
    return name if re.fullmatch(r"[A-Za-z0-9.-]{1,200}", name) else "localhost"


def _transmit(
    server: Server, content: EmailMessage, to: Sequence[str]
) -> dict[str, tuple[int, bytes]]:
    """Send a mail; return the refused recipients with the server's answers."""
    options: dict[str, Any] = {"timeout": _TIMEOUT, "local_hostname": _host_name()}
    if server.scheme == "smtps":
        tls = ssl.create_default_context()
        client: smtplib.SMTP = smtplib.SMTP_SSL(server.host, server.port, context=tls, **options)
    else:
        client = smtplib.SMTP(server.host, server.port, **options)
    try:
        if server.scheme == "smtp+starttls":
            client.starttls(context=ssl.create_default_context())
        if server.user is not None:
            password = server.password or secrets.resolve(
                PASSWORD, setting=f"the mail server {server.host}"
            )
            client.login(server.user, password)
        return client.send_message(content, to_addrs=list(to))
    finally:
        with suppress(smtplib.SMTPException, OSError):
            client.quit()
        client.close()


def _classify_error(
    server: Server, error: smtplib.SMTPRecipientsRefused | smtplib.SMTPResponseException
) -> Exception:
    """Codes of 4xx are transient, those of 5xx permanent."""
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        answers = [(code, _one_line(text)) for code, text in error.recipients.values()]
    else:
        answers = [(error.smtp_code, _one_line(error.smtp_error))]
    shown = "; ".join(f"{code} {text}" for code, text in answers)
    if any(400 <= code < 500 or code < 0 for code, _ in answers):
        return RetryLater(f"{server.host} answered {shown}")
    return MillstreamError(f"{server.host} must accept mails", got=shown,
                           do="correct the address, the sender or the password")  # fmt: skip


def _check_refused(server: Server, refused: dict[str, tuple[int, bytes]]) -> None:
    if not refused:
        return
    shown = "; ".join(f"{who}: {code} {_one_line(text)}" for who, (code, text) in refused.items())
    later = [who for who, (code, _) in refused.items() if code < 500]
    if later:
        raise PartlyDelivered(f"{server.host} answered {shown}", later)
    raise MillstreamError(f"{server.host} must accept mails for every recipient", got=shown,
                          do="correct the address; the other recipients have it")  # fmt: skip


def _one_line(text: bytes | str) -> str:
    plain = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    return _CONTROLS.sub(" ", plain)[:200]
