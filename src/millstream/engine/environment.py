"""What the engine needs from outside: sources, sinks and the clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from millstream.plan.graph import Read
    from millstream.sinks.spec import Sink, Writer
    from millstream.sources.spec import Reader


class Environment(Protocol):
    """`KafkaEnvironment`, or that of a test."""

    def reader(self, name: str, read: Read) -> Reader:
        """A source opened for this run."""

    def writer_of(self, sink: Sink) -> str:
        """The name of a sink's writer; sinks of one writer commit together."""

    def writer(self, name: str, job: str) -> Writer:
        """The writer of that name, opened for this run."""

    def clock(self) -> int:
        """Now, in microseconds."""

    def ahead(self, read: Read) -> int | None:
        """How far in the future the event time of a row may be; None for no limit."""
