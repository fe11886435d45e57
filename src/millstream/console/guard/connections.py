"""HTTP connections within limits: of time, of number, and of what a request's head may be.

The server by itself would wait without end for the rest of a request's headers and for a reader
who has stopped reading, and would take headers of any size that arrive in one piece.
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
LOG.setLevel(logging.ERROR)  # a malformed request is answered; a line for each would fill a disk
_TOO_LARGE = "the line and headers of a request need to be smaller"


class _Timer:
    """At most one wait at a time."""

    def __init__(self) -> None:
        self._handle: asyncio.TimerHandle | None = None

    def set(self, seconds: float, then: Callable[[], None]) -> None:
        """Call then in so many seconds, unless it is being waited for already."""
        if self._handle is None:
            self._handle = asyncio.get_running_loop().call_later(seconds, self._fire, then)

    def cancel(self) -> None:
        """Wait no more."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _fire(self, then: Callable[[], None]) -> None:
        self._handle = None
        then()


class Connection(H11Protocol):
    """One connection; it is ended when its client keeps it waiting.

    Where there are as many as the limit allows, a new one takes the place of the oldest that has
    not shown the token: first of those that wait for a request, then of those being answered.
    """

    limits = Limits()
    strangers: ClassVar[dict[Connection, None]] = {}

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.logger = LOG
        self._arriving, self._leaving = _Timer(), _Timer()
        self._held = b""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client is there: it has so long for its first request."""
        super().connection_made(transport)
        self.strangers[self] = None
        if len(self.connections) > self.limits.connections:
            self._make_room()
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Something came; what is still missing has to come in time, too."""
        self._unset_keepalive_if_required()
        self._held += data
        self._feed()
        self._watch()

    def on_response_complete(self) -> None:
        """What was sent ahead is read now."""
        super().on_response_complete()
        self._feed()
        if self._held:
            self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has left."""
        self._arriving.cancel()
        self._leaving.cancel()
        self.strangers.pop(self, None)
        self._held = b""
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The client does not take what is sent."""
        super().pause_writing()
        self._leaving.set(self.limits.stalled, self.transport.abort)

    def resume_writing(self) -> None:
        """It does again."""
        self._leaving.cancel()
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP; an answer that has begun can only be cut off."""
        self._refuse(400, msg)

    @property
    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    @property
    def _owned(self) -> bool:
        """Whether its last request has shown the token."""
        return self.scope is not None and OWNER in self.scope

    def _make_room(self) -> None:
        others = [one for one in self.strangers if one is not self and not one._owned]
        waiting = (one for one in others if not one._answering)
        leaving = next(waiting, others[0] if others else self)
        leaving.connections.discard(leaving)
        self.strangers.pop(leaving, None)
        leaving.transport.abort()

    def _feed(self) -> None:
        """Let the parser have no more at once than one request's head may be."""
        while self._held and not self.transport.is_closing():
            if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
                self.flow.pause_reading()  # a request that was sent ahead waits for its turn
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
        """An answer that has begun is not cut off: it does not wait for the request."""
        if not self._answering or not self.cycle.response_started:
            self.transport.abort()


def connection(limits: Limits) -> type[Connection]:
    """The kind of connection for a server with these limits."""
    return type("LimitedConnection", (Connection,), {"limits": limits, "strangers": {}})
