"""Where the page listens: the loopback, or an address that other machines can reach.

    millstream up --page-host 0.0.0.0 --page-url https://jobs.example --page-token '${file:token}'

A page that other machines can reach needs a token of your choice and its public addresses: it
answers requests for no other host name.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from millstream.errors import InvalidInput
from millstream.viewing.escape import shortened

if TYPE_CHECKING:
    from millstream.jobs.stack import PageAddress

PageHost = Annotated[
    str | None,
    typer.Option("--page-host", metavar="IP", help="Where the page listens [127.0.0.1]."),
]
PageUrl = Annotated[
    list[str] | None,
    typer.Option("--page-url", metavar="URL", help="The page's public address (repeatable)."),
]
PageToken = Annotated[
    str | None,
    typer.Option(
        "--page-token",
        metavar="REFERENCE",
        help="The page's token: '${env:NAME}' or '${file:PATH}' [one made at random].",
    ),
]
_MIN_LENGTH = 32
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]{32,512}")
_REFERENCE = re.compile(r"\$\{(env|file):[^{}]+\}")


@dataclass(frozen=True)
class PageOptions:
    """The options of `up` for a page that other machines can reach; none by default."""

    host: str | None = None
    urls: tuple[str, ...] = ()
    token: str | None = None

    @property
    def given(self) -> bool:
        """Whether any of them is given."""
        return self.host is not None or bool(self.urls) or self.token is not None

    def check(self) -> None:
        """Refuse wrong options before anything is started."""
        self.address(1)
        self.own_token()

    def address(self, port: int) -> PageAddress:
        """The page's address at that port.

        Raises:
            InvalidInput: an option is wrong or missing.
        """
        from millstream.jobs.stack import LOOPBACK, PageAddress

        host = _ip(self.host or LOOPBACK)
        urls = tuple(_url(url) for url in self.urls)
        if not ipaddress.ip_address(host).is_loopback:
            if self.token is None:
                raise InvalidInput("a page that other machines can reach needs its own token",
                                   got=f"--page-host {host} without --page-token",
                                   do="write --page-token '${file:PATH}'")  # fmt: skip
            if not urls:
                raise InvalidInput("a page that other machines can reach needs its public address",
                                   got=f"--page-host {host} without --page-url",
                                   do=f"write --page-url http://NAME:{port}")  # fmt: skip
        return PageAddress(port, host, urls)

    def own_token(self) -> str | None:
        """The token the reference names.

        Raises:
            InvalidInput: the option is not a reference, or the token is too easy to guess.
        """
        from millstream.kafka.secrets import resolve

        if self.token is None:
            return None
        if not _REFERENCE.fullmatch(self.token):
            raise InvalidInput("--page-token needs a reference", got="something else",
                               do="write '${env:NAME}' or '${file:PATH}': others can read a "
                               "command line")  # fmt: skip
        token = resolve(self.token, setting="--page-token").strip()
        if not _TOKEN.fullmatch(token):
            raise InvalidInput(
                f"a token needs at least {_MIN_LENGTH} letters, digits, or . _ ~ + / = -",
                got=f"{len(token)} characters",
                do="make one with `openssl rand -hex 32`",
            )
        return token


def _ip(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text.strip("[]")))
    except ValueError:
        raise InvalidInput("--page-host needs an IP address of this machine", got=shortened(text),
                           do="write 0.0.0.0 for all of them") from None  # fmt: skip


def _url(text: str) -> str:
    try:
        url = urlsplit(text)
        plain = not (url.username or url.password or url.query or url.fragment)
        valid_port = url.port is None or url.port > 0
    except ValueError:
        plain = valid_port = False
    if not (plain and valid_port) or url.scheme not in ("http", "https") or not url.hostname or (
        url.path not in ("", "/")
    ):  # fmt: skip
        raise InvalidInput("--page-url needs an address such as https://jobs.example",
                           got=shortened(text))  # fmt: skip
    return f"{url.scheme}://{url.netloc.lower()}"
