"""A mail: made so that no row can write its headers, and handed to a server."""

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
    """Some recipients have it; it is to be sent again to those that are `left`."""

    def __init__(self, why: str, left: Sequence[str]) -> None:
        super().__init__(why)
        self.left = tuple(left)


@dataclass(frozen=True)
class Mail:
    """What is to be mailed: `id` stays the same however often that is tried."""

    id: str
    subject: str
    body: str


def message(mail: Mail, sender: str, to: Sequence[str]) -> EmailMessage:
    """The mail with its headers: whatever a row holds, a header stays one line."""
    made = EmailMessage(policy=POLICY)
    # The library decodes words such as =?utf-8?q?=0A?= in what it is given, line breaks and all.
    subject = _CONTROLS.sub(" ", mail.subject).replace("=?", "= ?").strip()
    if len(subject) > LONGEST_SUBJECT:
        subject = subject[: LONGEST_SUBJECT - 1] + "…"
    made["From"], made["To"], made["Subject"] = sender, ", ".join(to), subject
    made["Date"] = formatdate(usegmt=True)
    made["Message-ID"] = f"<{mail.id}@{sender.rpartition('@')[2]}>"
    made["Auto-Submitted"] = "auto-generated"
    body = _UNPRINTABLE.sub("\ufffd", mail.body)
    if len(body) > MOST_CHARACTERS:
        body = body[:MOST_CHARACTERS] + "\n… (the rest of the text is left out)"
    made.set_content(body.encode("utf-8", "replace").decode())
    return made


def send(address: Email, mail: Mail, left: Sequence[str] | None = None) -> None:
    """Hand a mail to the server once, for those that are left of its recipients.

    Raises:
        RetryLater: the server did not take it now, or not for all.
        MillstreamError: it will never take it.
    """
    server = _server(address)
    to = tuple(left or address.to)
    made = message(mail, address.sender or f"millstream@{_host_name()}", address.to)
    try:
        refused = bounded(lambda: _handed_over(server, made, to), _WHOLE)
    except (smtplib.SMTPRecipientsRefused, smtplib.SMTPResponseException) as error:
        raise _told(server, error) from error
    except (smtplib.SMTPException, OSError) as error:
        raise RetryLater(f"{server.host} did not take a mail ({_reason(error)})") from error
    _judge(server, refused)


def _server(address: Email) -> Server:
    """The server with its name and password. What a reference stands for is taken as it is: no
    character of it can change which server is meant."""
    url, plain = address.url or DEFAULT, address.allow_plain
    server = checked_server(url, allow_plain=plain, value=_looked_up)
    if server is None:
        server = checked_server(secrets.resolve(url, setting=_SETTING), allow_plain=plain)
    if server is None:
        raise InvalidSpec("Email needs the address of a server", got="a reference to a reference")
    return server


def _looked_up(text: str) -> str:
    """A name or password of an address: its references resolved, the rest unquoted."""
    plain = [unquote(part) for part in REFERENCE.split(text)]
    given = [secrets.resolve(one, setting=_SETTING) for one in REFERENCE.findall(text)]
    return plain[0] + "".join(a + b for a, b in zip(given, plain[1:], strict=True))


@cache
def _host_name() -> str:
    """What this machine calls itself."""
    name = socket.getfqdn()
    return name if re.fullmatch(r"[A-Za-z0-9.-]{1,200}", name) else "localhost"


def _handed_over(
    server: Server, made: EmailMessage, to: Sequence[str]
) -> dict[str, tuple[int, bytes]]:
    said: dict[str, Any] = {"timeout": _TIMEOUT, "local_hostname": _host_name()}
    if server.scheme == "smtps":
        tls = ssl.create_default_context()
        client: smtplib.SMTP = smtplib.SMTP_SSL(server.host, server.port, context=tls, **said)
    else:
        client = smtplib.SMTP(server.host, server.port, **said)
    try:
        if server.scheme == "smtp+starttls":
            client.starttls(context=ssl.create_default_context())
        if server.user is not None:
            password = server.password or secrets.resolve(
                PASSWORD, setting=f"the mail server {server.host}"
            )
            client.login(server.user, password)
        return client.send_message(made, to_addrs=list(to))
    finally:
        with suppress(smtplib.SMTPException, OSError):
            client.quit()
        client.close()


def _told(
    server: Server, error: smtplib.SMTPRecipientsRefused | smtplib.SMTPResponseException
) -> Exception:
    """A code of 4xx may heal; one of 5xx does not."""
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        answers = [(code, _words(text)) for code, text in error.recipients.values()]
    else:
        answers = [(error.smtp_code, _words(error.smtp_error))]
    said = "; ".join(f"{code} {text}" for code, text in answers)
    if any(400 <= code < 500 or code < 0 for code, _ in answers):
        return RetryLater(f"{server.host} answered {said}")
    return MillstreamError(f"{server.host} needs to take mails", got=said,
                           do="mend the address, the sender or the password")  # fmt: skip


def _judge(server: Server, refused: dict[str, tuple[int, bytes]]) -> None:
    if not refused:
        return
    said = "; ".join(f"{who}: {code} {_words(text)}" for who, (code, text) in refused.items())
    later = [who for who, (code, _) in refused.items() if code < 500]
    if later:
        raise PartlyDelivered(f"{server.host} answered {said}", later)
    raise MillstreamError(f"{server.host} needs to take mails for everybody", got=said,
                          do="mend the address; the others have theirs")  # fmt: skip


def _words(text: bytes | str) -> str:
    plain = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    return _CONTROLS.sub(" ", plain)[:200]


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__
