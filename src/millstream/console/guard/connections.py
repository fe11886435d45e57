"""HTTP connections with limits: timeouts, a maximum number, and a maximum header size.

Without them, uvicorn waits forever for the rest of a request's headers and for a client that has
stopped reading, and accepts headers of any size that arrive in one piece.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from millstream.console.guard.guard import OWNER
from millstream.console.guard.limits import Limits

if TYPE_CHECKING:
    from collections.abc import Callable

LOG = logging.getLogger("millstream.console.http")
LOG.setLevel(logging.ERROR)  # a log line for each malformed request would fill the disk
_TOO_LARGE = "the request line and headers are too large"


class _Timer:
    """At most one pending call."""

    def __init__(self) -> None:
        self._handle: asyncio.TimerHandle | None = None

    def set(self, seconds: float, then: Callable[[], None]) -> None:
        """Call `then` in so many seconds, unless a call is pending."""
        if self._handle is None:
            self._handle = asyncio.get_running_loop().call_later(seconds, self._fire, then)

    def cancel(self) -> None:
        """Cancel the pending call."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _fire(self, then: Callable[[], None]) -> None:
        self._handle = None
        then()


class Connection(H11Protocol):
    """One connection, closed when its client is too slow.

    At the limit, a new connection replaces the oldest one without the token: idle ones first, then
    those being answered.
    """

    limits = Limits()
    strangers: ClassVar[dict[Connection, None]] = {}

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.logger = LOG
        self._arriving, self._leaving = _Timer(), _Timer()
        self._held = b""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has connected; its first request must arrive in time."""
        super().connection_made(transport)
        self.strangers[self] = None
        if len(self.connections) > self.limits.connections:
            self._make_room()
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Bytes arrived; the rest of the request must arrive in time, too."""
        self._unset_keepalive_if_required()
        self._held += data
        self._feed()
        self._watch()

    def on_response_complete(self) -> None:
        """Continue with requests that were sent ahead (pipelining)."""
        super().on_response_complete()
        self._feed()
        if self._held:
            self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has disconnected."""
        self._arriving.cancel()
        self._leaving.cancel()
        self.strangers.pop(self, None)
        self._held = b""
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The client does not read; abort after a while."""
        super().pause_writing()
        self._leaving.set(self.limits.stalled, self.transport.abort)

    def resume_writing(self) -> None:
        """The client reads again; cancel the abort."""
        self._leaving.cancel()
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP; a response that has begun can only be aborted."""
        self._refuse(400, msg)

    @property
    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    @property
    def _owned(self) -> bool:
        """Whether its last request had a valid token."""
        return self.scope is not None and OWNER in self.scope

    def _make_room(self) -> None:
        others = [one for one in self.strangers if one is not self and not one._owned]
        waiting = (one for one in others if not one._answering)
        leaving = next(waiting, others[0] if others else self)
        leaving.connections.discard(leaving)
        self.strangers.pop(leaving, None)
        leaving.transport.abort()

    def _feed(self) -> None:
        """Feed the parser at most one request's header limit at a time."""
        while self._held and not self.transport.is_closing():
            if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
                self.flow.pause_reading()  # a pipelined request waits for its turn
                return
            room = self.limits.headers - len(self.conn.trailing_data[0])
            if room <= 0:
                self._refuse(431, _TOO_LARGE)
                return
            part, self._held = self._held[:room], self._held[room:]
            self.conn.receive_data(part)
            self.handle_events()

    def _refuse(self, status: int, sentence: str) -> None:
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.abort()
            return
        body = sentence.encode()
        headers = [("content-type", "text/plain; charset=utf-8"), ("connection", "close"),
                   ("content-length", str(len(body)))]  # fmt: skip
        for event in (h11.Response(status_code=status, headers=headers), h11.Data(data=body),
                      h11.EndOfMessage()):  # fmt: skip
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _watch(self) -> None:
        if self._answering and not self.cycle.more_body:
            self._arriving.cancel()
        elif not self.transport.is_closing():
            self._arriving.set(self.limits.seconds, self._too_slow)

    def _too_slow(self) -> None:
        """Abort, unless the response has begun: it does not wait for the request."""
        if not self._answering or not self.cycle.response_started:
            self.transport.abort()


def connection(limits: Limits) -> type[Connection]:
    """A connection class with these limits."""
    return type("LimitedConnection", (Connection,), {"limits": limits, "strangers": {}})
