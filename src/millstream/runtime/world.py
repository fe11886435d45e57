"""The real world: topics in Kafka, sinks outside, the wall clock."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from millstream.errors import InvalidSpec
from millstream.runtime.faultpoints import reached
from millstream.sinks.memory import Memory, MemoryWriter
from millstream.sources.topic import Topic

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.log.settings import Cluster
    from millstream.plan.graph import Read
    from millstream.sinks.spec import Sink, Writer
    from millstream.sources.spec import Reader

KAFKA = "kafka"
MEMORY = "memory"


class KafkaWorld:
    """Sources are topics of one cluster; answers go to its topics or stay in memory."""

    def __init__(
        self,
        pipeline: str,
        kafka: str | Cluster | None,
        *,
        take_over: bool = False,
        owned: Callable[[], None] = lambda: None,
    ) -> None:
        self._pipeline, self._kafka, self._take_over = pipeline, kafka, take_over
        self._owned = owned
        self._resolved: Cluster | None = None
        self._ledger: dict[str, str] = {}

    @property
    def cluster(self) -> Cluster:
        """The cluster meant, looked up when it is first needed."""
        from millstream.log.settings import Cluster

        if self._resolved is None:
            self._resolved = Cluster.resolve(self._kafka)
        return self._resolved

    def reader(self, name: str, read: Read) -> Reader:
        """A topic opened for reading."""
        from millstream.sources.topic_reader import TopicReader

        if not isinstance(read.source, Topic):
            raise InvalidSpec("a running pipeline needs sources it can open", got=repr(read.source))
        return TopicReader(self.cluster, read.source.name, f"millstream.{self._pipeline}")

    def writer_of(self, sink: Sink) -> str:
        """All topics of the cluster commit together, and so does what stays in memory."""
        if isinstance(sink, Topic):
            return KAFKA
        if isinstance(sink, Memory):
            return MEMORY
        raise InvalidSpec("a pipeline needs sinks it can open", got=repr(sink))

    def writer(self, name: str, job: str) -> Writer:
        """The writer of that name, for this run."""
        if name == MEMORY:
            return MemoryWriter(self._ledger)
        from millstream.sinks.topic_writer import TopicWriter

        return TopicWriter(self.cluster, self._pipeline, job, take_over=self._take_over,
                           told=_told, owned=self._owned)  # fmt: skip

    def clock(self) -> int:
        """The wall clock."""
        return time.time_ns() // 1000

    def ahead(self, read: Read) -> tuple[int | None, int | None]:
        """A row may be so far ahead of its record's own timestamp."""
        return read.ahead, None


def _told(point: str) -> None:
    reached(point, 0)
