"""HTTP connections that wait for nobody: a request arrives in time, an answer is taken in time.

The server by itself would wait without end for the rest of a request's headers, and for a
reader who has stopped reading.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from millstream.console.limits import Limits

if TYPE_CHECKING:
    from collections.abc import Callable


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
    """One connection; it is ended when its client keeps it waiting, and when there are too many."""

    limits = Limits()

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._arriving, self._leaving = _Timer(), _Timer()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client is there: it has so long for its first request."""
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            transport.abort()
            return
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Something came; what is still missing has to come in time, too."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has left."""
        self._arriving.cancel()
        self._leaving.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The client does not take what is sent."""
        super().pause_writing()
        self._leaving.set(self.limits.stalled, self.transport.abort)

    def resume_writing(self) -> None:
        """It does again."""
        self._leaving.cancel()
        super().resume_writing()

    def _watch(self) -> None:
        answering = self.cycle is not None and not self.cycle.response_complete
        if answering and not self.cycle.more_body:
            self._arriving.cancel()
        elif not self.transport.is_closing():
            self._arriving.set(self.limits.seconds, self._too_slow)

    def _too_slow(self) -> None:
        """An answer under way is not cut off: whoever makes it does not wait for the request."""
        answering = self.cycle is not None and not self.cycle.response_complete
        if not answering or not self.cycle.response_started:
            self.transport.abort()


def connection(limits: Limits) -> type[Connection]:
    """The kind of connection for a server with these limits."""
    return type("LimitedConnection", (Connection,), {"limits": limits})
