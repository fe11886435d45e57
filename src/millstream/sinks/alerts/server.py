"""The address of a mail server: its syntax and checks."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from millstream.errors import InvalidSpec

if TYPE_CHECKING:
    from collections.abc import Callable

DEFAULT = "${env:MILLSTREAM_SMTP}"
PASSWORD = "${env:MILLSTREAM_SMTP_PASSWORD}"  # noqa: S105
SCHEMES = {"smtp": 25, "smtp+starttls": 587, "smtps": 465}
REFERENCE = re.compile(r"\$\{[^}]*\}")
_LITERAL = r"\$(?!\{)|[^$/?#\s\x00-\x1f\x7f]"
_USER = rf"(?:{REFERENCE.pattern}|(?!:)(?:{_LITERAL}))*?"
SERVER = re.compile(
    rf"(?P<scheme>[a-z+]+)://(?:(?P<user>{_USER})"
    rf"(?::(?P<password>(?:{REFERENCE.pattern}|{_LITERAL})*))?@)?(?P<place>[^@$/?#\s]+)/?\Z"
)


@dataclass(frozen=True)
class Server:
    """A mail server."""

    scheme: str
    host: str
    port: int
    user: str | None = None
    password: str | None = field(default=None, repr=False)


def checked_server(
    url: object, *, allow_plain: bool, value: Callable[[str], str] = unquote
) -> Server | None:
    """Return the server of an address; None if the address is a reference.

    `value` decodes the user and the password.

    Raises:
        InvalidSpec: the address is invalid, or its connection would not be encrypted.
    """
    text = url if isinstance(url, str) else ""
    if REFERENCE.fullmatch(text):
        return None
    found = SERVER.match(text)
    if found is None or found["scheme"] not in SCHEMES:
        raise _no_server(text)
    try:
        parts = urlsplit(f"//{found['place']}")
        host, port = parts.hostname, parts.port
    except ValueError:
        raise _no_server(text) from None
    if not host:
        raise _no_server(text)
    if found["scheme"] == "smtp" and not allow_plain and not _on_this_machine(host):
        raise InvalidSpec(f"Email needs an encrypted connection to {host}", got="smtp://",
                          do="write smtp+starttls://… or smtps://…, or allow_plain=True on a "
                          "network you trust")  # fmt: skip
    user, password = found["user"], found["password"]
    return Server(found["scheme"], host, port or SCHEMES[found["scheme"]],
                  None if user is None else value(user),
                  None if password is None else value(password))  # fmt: skip


def _no_server(url: str) -> InvalidSpec:
    """Return the error for an invalid address, quoting only its scheme: the rest may be secret."""
    scheme = re.match(r"([a-z+]{1,20})://", url)
    if scheme is not None and scheme[1] in SCHEMES:
        return InvalidSpec(
            "Email needs a server such as smtp+starttls://user@host:587",
            got=f"a {scheme[1]}:// with something else after it",
            do="write / ? # in a password as %2F %3F %23, or the password as a reference",
        )
    return InvalidSpec(
        "Email needs a server such as smtp+starttls://user@host:587",
        got="no address" if scheme is None else f"the scheme {scheme[1]!r}",
        do="begin it with smtp+starttls://, smtps:// or, on this machine, smtp://",
    )


def _on_this_machine(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
