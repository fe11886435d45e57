"""`Webhook`: rows as signed HTTP posts, at least once."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal
from urllib.parse import urlsplit

from millstream.errors import InvalidSpec
from millstream.kafka import secrets
from millstream.sinks.webhook.addresses import REFERENCE, checked_address, signing_key

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millstream.sinks.spec import Opening, Writer

MOST_ROWS = 1000
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")
_OURS = frozenset({"host", "content-length", "content-type", "transfer-encoding", "connection",
                   "webhook-id", "webhook-timestamp", "webhook-signature"})  # fmt: skip


@dataclass(frozen=True, init=False)
class Webhook:
    """Rows as JSON posts to an address, by Standard Webhooks 1.0.

    A post holds up to `rows` rows of one batch. Every retry has the same `webhook-id`; with
    `secret` (`whsec_…`; several during a rotation) the post is signed. After 429, 5xx or no answer
    within `timeout` it is sent again with increasing delays; 410 stops the job. The address needs
    `https` and must be public unless `allow_private`; the IP address is checked when connecting.
    Redirects are not followed. Secrets are references: `secret="${env:HOOK_SECRET}"`.

    >>> Webhook("https://ops.example/hook?key=7", secret="${env:HOOK_SECRET}")
    Webhook('https://ops.example/***', signed)
    """

    url: str = field(repr=False)
    secret: tuple[str, ...] = field(repr=False)
    headers: tuple[tuple[str, str], ...] = field(repr=False)
    allow_private: bool
    rows: int
    timeout: float
    name: str
    kind: ClassVar[Literal["Webhook"]] = "Webhook"
    accepts_retractions: ClassVar[bool] = True
    at_least_once: ClassVar[bool] = True

    def __init__(
        self,
        url: str,
        *,
        secret: str | Sequence[str] | None = None,
        headers: Mapping[str, str] | None = None,
        allow_private: bool = False,
        rows: int = 100,
        timeout: float = 15.0,
        name: str | None = None,
    ) -> None:
        checked_address(url, allow_private=allow_private)
        if type(rows) is not int or not 1 <= rows <= MOST_ROWS:
            raise InvalidSpec(f"Webhook(rows=…) needs a number from 1 to {MOST_ROWS}",
                              got=repr(rows))  # fmt: skip
        if not isinstance(timeout, int | float) or timeout is True or not 0 < timeout <= 60:
            raise InvalidSpec("Webhook(timeout=…) needs seconds above 0, up to 60",
                              got=repr(timeout))  # fmt: skip
        if name is not None and (not isinstance(name, str) or not name.strip()):
            raise InvalidSpec("Webhook(name=…) needs a name", got=repr(name), do="leave it out")
        for part, value in (("url", url), ("secret", _secrets(secret)),
                            ("headers", _headers(headers)), ("allow_private", allow_private),
                            ("rows", rows), ("timeout", float(timeout)),
                            ("name", name or _host(url) or "webhook")):  # fmt: skip
            object.__setattr__(self, part, value)

    def __repr__(self) -> str:
        return f"Webhook({self.shown!r}{', signed' if self.secret else ''})"

    @property
    def shown(self) -> str:
        """The address without its path and query, which often are a secret."""
        if REFERENCE.fullmatch(self.url):
            return self.url
        host = _host(self.url)
        return secrets.MASK if host is None else f"{self.url.split('://')[0]}://{host}/***"

    @property
    def system(self) -> str:
        """Each webhook has its own writer."""
        return f"webhook {self.name}"

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON for the supervisor, with references unresolved."""
        return {"kind": self.kind, "url": self.url, "secret": list(self.secret),
                "headers": dict(self.headers), "allow_private": self.allow_private,
                "timeout": self.timeout, "name": self.name}  # fmt: skip

    def literal_secret(self) -> str | None:
        """Return the part that holds a literal secret instead of a reference, if any."""
        if any(not REFERENCE.fullmatch(one) for one in self.secret):
            return "secret"
        after_the_host = re.sub(r"^[a-z]+://[^/?#]*/?", "", self.url)
        if after_the_host and not REFERENCE.search(self.url):
            return "url"
        for name, value in self.headers:
            sensitive = secrets.is_secret(name) or name.lower() == "authorization"
            if sensitive and not REFERENCE.search(value):
                return f"headers[{name!r}]"
        return None

    def writer(self, opening: Opening) -> Writer:
        """Return the writer of this webhook."""
        from millstream.sinks.webhook.writer import WebhookWriter

        return WebhookWriter(opening)


def _host(url: str) -> str | None:
    if REFERENCE.match(url):
        return None
    parts = urlsplit(REFERENCE.sub("x", url))
    return parts.netloc.rpartition("@")[2] or None


def _secrets(secret: object) -> tuple[str, ...]:
    given = (secret,) if isinstance(secret, str) else tuple(secret or ())  # type: ignore[arg-type]
    for one in given:
        if not isinstance(one, str) or not (REFERENCE.fullmatch(one) or signing_key(one)):
            raise InvalidSpec(
                "Webhook(secret=…) needs secrets of 24 to 64 bytes, as whsec_ and base64",
                got="something else",
                do='write secret="${env:HOOK_SECRET}", or several during a rotation',
            )
    return given


def _headers(headers: Mapping[str, str] | None) -> tuple[tuple[str, str], ...]:
    for name, value in (headers or {}).items():
        if not isinstance(name, str) or not _TOKEN.match(name) or name.lower() in _OURS:
            raise InvalidSpec("Webhook(headers=…) needs header names that Millstream does not set",
                              got=repr(name), do='write {"Authorization": "${env:…}"}')  # fmt: skip
        if not isinstance(value, str) or re.search(r"[\r\n\x00]", value):
            raise InvalidSpec(f"Webhook(headers=…) needs text on one line for {name}",
                              got=type(value).__name__ if not isinstance(value, str)
                              else "text with a line break")  # fmt: skip
    return tuple((headers or {}).items())
