"""The guard of every route: authentication, allowed hosts and origins, rate limits, headers.

- Host must name this address: a name that an attacker's DNS points here is refused (DNS rebinding).
- Origin, where a browser sends one, must be this page: no other site reads or changes anything.
- A bearer token is required except for a few open paths; it is never accepted in a URL.
- Requests a second, wrong tokens and body sizes are limited. Requests with and without the token
  are counted separately, so the latter never use up the quota of the former. The page's own files,
  which a browser loads before it has the token, are served from memory and not counted.
- Headers forbid other hosts, inline scripts, framing and caching.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders

from millstream.console.guard.limits import Buckets, Limits

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.applications import Starlette
    from starlette.types import Message, Receive, Scope, Send

OPEN = frozenset({"/healthz", "/readyz", "/metrics"})
OWNER = "millstream.owner"
"""In the scope of a request with a valid token."""
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


@dataclass(frozen=True)
class Refusal:
    """A status, one sentence, and after how many seconds to retry, where that helps."""

    status: int
    sentence: str
    again: int = 0


class Guard:
    """ASGI middleware around the whole application.

    It accepts the loopback names at its port and the public addresses in `urls`
    (`https://jobs.example`).
    """

    def __init__(
        self,
        app: Starlette,
        *,
        port: int,
        token: str,
        urls: Iterable[str] = (),
        limits: Limits | None = None,
    ) -> None:
        self.app, self._token, self._limits = app, token.encode(), limits or Limits()
        given = [urlsplit(url) for url in urls]
        own = [f"{name}:{port}" for name in _LOOPBACK]
        self._hosts = {*own, *(url.netloc.lower() for url in given)}
        self._origins = {*(f"http://{host}" for host in own),
                         *(f"{url.scheme}://{url.netloc}".lower() for url in given)}  # fmt: skip
        self._owners = Buckets(self._limits.rate, self._limits.burst)
        self._strangers = Buckets(self._limits.rate, self._limits.burst)
        self._guessed = Buckets(self._limits.guesses, self._limits.guessing)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it with one sentence."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return

        async def covered(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        refused = (
            self._refused(scope) if scope["type"] == "http" else Refusal(400, "HTTP is needed")
        )
        if refused is not None:
            await _answer(covered, refused)
            return
        await self.app(scope, receive, covered)

    def _refused(self, scope: Scope) -> Refusal | None:
        headers = Headers(scope=scope)
        refused = self._wrong_origin(headers) or self._too_large(headers)
        if refused is not None:
            return refused
        if self._knows(headers):
            scope[OWNER] = True
            return _too_often(self._owners.refused(_client(scope)))
        return self._stranger(scope, headers)

    def _wrong_origin(self, headers: Headers) -> Refusal | None:
        hosts = headers.getlist("host")
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts:
            return Refusal(421, "the Host header does not name this address")
        if any(origin.lower() not in self._origins for origin in headers.getlist("origin")):
            return Refusal(403, "the Origin is not this page")
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return Refusal(403, "the request does not come from this page")
        return None

    def _too_large(self, headers: Headers) -> Refusal | None:
        lengths = headers.getlist("content-length")
        if any(not one.isascii() or not one.isdecimal() or len(one) > 18 for one in lengths):
            return Refusal(400, "Content-Length is not a whole number")
        if any(int(one) > self._limits.body for one in lengths):
            return Refusal(413, f"the body is larger than {self._limits.body} bytes")
        return None

    def _stranger(self, scope: Scope, headers: Headers) -> Refusal | None:
        """A request without the token: fine for the open routes and the page's own files."""
        path, client = scope["path"], _client(scope)
        private = path.startswith("/api/")
        if not private and path not in OPEN:
            return None
        refused = _too_often(self._strangers.refused(client))
        if refused is not None or not private:
            return refused
        shown = "authorization" in headers
        again = self._guessed.refused(client, take=shown)
        if again:
            return Refusal(429, "too many wrong tokens; retry later", again)
        return Refusal(401, "the token is missing or wrong; open the link that `millstream up` "
                            "prints, or send Authorization: Bearer …")  # fmt: skip

    def _knows(self, headers: Headers) -> bool:
        shown = headers.getlist("authorization")
        if len(shown) != 1:
            return False
        kind, _, token = shown[0].partition(" ")
        given = token.strip().encode("latin-1", "replace")
        return secrets.compare_digest(given, self._token) and kind.lower() == "bearer"


def _too_often(again: int) -> Refusal | None:
    if not again:
        return None
    return Refusal(429, "too many requests; retry later", again)


def _client(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else ""


async def _answer(send: Send, refused: Refusal) -> None:
    body = json.dumps({"error": refused.sentence}).encode()
    headers = [(b"content-type", b"application/json"),
               (b"content-length", str(len(body)).encode())]  # fmt: skip
    if refused.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if refused.again:
        headers.append((b"retry-after", str(refused.again).encode()))
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
