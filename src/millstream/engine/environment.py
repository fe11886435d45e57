"""What lies outside the engine: the log, the sinks, the time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from millstream.plan.graph import Read
    from millstream.sinks.spec import Sink, Writer
    from millstream.sources.spec import Reader


class Environment(Protocol):
    """The real one, or that of a test."""

    def reader(self, name: str, read: Read) -> Reader:
        """A source opened for this run."""

    def writer_of(self, sink: Sink) -> str:
        """Which writer takes rows for a sink; those with the same name commit together."""

    def writer(self, name: str, job: str) -> Writer:
        """That writer, opened for this run."""

    def clock(self) -> int:
        """Now, in microseconds."""

    def ahead(self, read: Read) -> int | None:
        """How far in the future the event time of a row may be; None: no matter how far."""
