"""The one guard before every route: who may ask, from where, and what a browser may do.

- Host names this address: a name that an attacker's DNS points here is refused.
- Origin, where a browser sends one, is this page: no other site reads or changes anything.
- A token, unless the path is one of the few that are open.
- No other host is ever asked for anything, no inline script runs, nothing is framed or kept.
"""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING

from starlette.datastructures import Headers, MutableHeaders

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

OPEN = frozenset({"/healthz", "/readyz", "/metrics"})
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
_LARGEST_BODY = 4096


class Guard:
    """ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp, *, port: int, token: str) -> None:
        self._app, self._token = app, token
        self._hosts = {f"{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]")}
        self._origins = {f"http://{host}" for host in self._hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or refuse it in one sentence."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return

        async def covered(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        refused = self._refused(scope) if scope["type"] == "http" else (400, "HTTP is needed")
        if refused is not None:
            await _answer(covered, *refused)
            return
        await self._app(scope, receive, covered)

    def _refused(self, scope: Scope) -> tuple[int, str] | None:
        headers, path = Headers(scope=scope), scope["path"]
        if len(headers.getlist("host")) != 1 or headers["host"] not in self._hosts:
            return 421, "the Host header needs to name this address"
        origins = headers.getlist("origin")
        if any(origin not in self._origins for origin in origins):
            return 403, "the Origin needs to be this page"
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return 403, "the request needs to come from this page"
        if int(headers.get("content-length") or 0) > _LARGEST_BODY:
            return 413, "requests need to be small"
        if path in OPEN or not path.startswith("/api/"):
            return None
        if not self._knows(headers.get("authorization", "")):
            return 401, (
                "this needs the token; open the link that `millstream up` prints, or send "
                "Authorization: Bearer …"
            )
        return None

    def _knows(self, authorization: str) -> bool:
        kind, _, shown = authorization.partition(" ")
        return kind.lower() == "bearer" and secrets.compare_digest(
            shown.strip().encode(), self._token.encode()
        )


async def _answer(send: Send, status: int, sentence: str) -> None:
    body = json.dumps({"error": sentence}).encode()
    headers = [(b"content-type", b"application/json"),
               (b"content-length", str(len(body)).encode())]  # fmt: skip
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
