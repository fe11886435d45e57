"""The environment of real runs: topics in Kafka, sinks in other systems, the wall clock."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

from millstream.engine.checkpoint.fault_points import reached
from millstream.engine.checkpoint.source_notes import SourceNotes
from millstream.engine.spark.session import session
from millstream.errors import InvalidSpec, NotFound
from millstream.outages import Listener, Ping, Watched
from millstream.plan.names import folder_name
from millstream.sinks.files.files import FilesSink
from millstream.sinks.memory import MemoryWriter
from millstream.sinks.spark.sink import SparkSink
from millstream.sinks.spec import PATIENCE, ListsExisting, Opening, OpenSink
from millstream.sources.files.files import Files
from millstream.sources.kafka.topic import Topic
from millstream.sources.memory import Memory
from millstream.sources.spark.spark import Spark
from millstream.sources.spec import OpenSource, SourceOpening

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from millstream.kafka.ping import KafkaPing
    from millstream.kafka.settings import Cluster
    from millstream.plan.graph import Read
    from millstream.sinks.spec import Delivery, Sink, Writer
    from millstream.sources.spec import Reader

KAFKA = "kafka"
MEMORY = "memory"


class KafkaEnvironment:
    """Sources and topics of one Kafka cluster, and sinks in any system."""

    def __init__(
        self,
        pipeline: str,
        kafka: str | Cluster | None,
        *,
        folder: Path | None = None,
        take_over: bool = False,
        owned: Callable[[], None] = lambda: None,
        epoch: Callable[[], int] = lambda: 0,
        delivery: Delivery = "exactly_once",
        idle_seconds: Callable[[], float] = lambda: 0.0,
        spark: Callable[[], SparkSession] = session,
        listener: Listener | None = None,
    ) -> None:
        self._pipeline, self._kafka, self._take_over = pipeline, kafka, take_over
        self._folder = folder
        self._owned, self._epoch, self._listener = owned, epoch, listener or Listener()
        self._delivery: Delivery = delivery
        self._idle_seconds, self._spark = idle_seconds, spark
        self._kafka_ping: KafkaPing | None = None
        self._sinks: dict[str, list[OpenSink]] = {}
        self._resolved: Cluster | None = None
        self._ledger: dict[str, str] = {}

    @property
    def cluster(self) -> Cluster:
        """The Kafka cluster, resolved when it is first needed."""
        from millstream.kafka.settings import Cluster

        if self._resolved is None:
            self._resolved = Cluster.resolve(self._kafka)
        return self._resolved

    def watch_kafka(self, *topics: str) -> None:
        """Have the cluster watched, and the leaders of these topics."""
        from millstream.kafka.ping import KafkaPing, system_of

        if self._kafka_ping is None:
            self._kafka_ping = ping = KafkaPing(self.cluster)
            self._listener.watch(Ping(system_of(self.cluster), ping.ask, ping.close))
        self._kafka_ping.topics |= set(topics)

    def reader(self, name: str, read: Read) -> Reader:
        """Open a source for this run."""
        if not isinstance(read.source, OpenSource):
            raise InvalidSpec("a running pipeline needs sources it can open", got=repr(read.source),
                              do="implement millstream.sources.spec.OpenSource")  # fmt: skip
        notes = SourceNotes(self._folder, name, self._owned)
        if isinstance(read.source, Topic):
            self.watch_kafka(read.source.name)
        reader = read.source.reader(
            SourceOpening(
                notes, self.clock, kafka=lambda: self.cluster,
                group=f"millstream.{self._pipeline}", on_wait=self._listener.on_wait,
                on_answer=self._listener.on_answer, spark=self._spark,
                folder=None if self._folder is None else notes.folder,
                patience=self._listener.patience,
            )
        )  # fmt: skip
        self._watch_all(reader)
        return reader

    def _watch_all(self, opened: Reader | Writer) -> None:
        for ping in opened.pings() if isinstance(opened, Watched) else ():
            self._listener.watch(ping)

    def writer_of(self, sink: Sink) -> str:
        """One writer for all topics of the cluster, one for the sinks of each other system.

        A writer serves the sinks for which this was called before the writer was opened.
        """
        if isinstance(sink, Topic):
            return KAFKA
        if isinstance(sink, Memory):
            return MEMORY
        if isinstance(sink, Files):
            sink = FilesSink(sink)
        if isinstance(sink, Spark):
            sink = SparkSink(sink)
        if not isinstance(sink, OpenSink):
            raise InvalidSpec("a pipeline needs sinks it can open", got=repr(sink),
                              do="implement millstream.sinks.spec.OpenSink")  # fmt: skip
        known = self._sinks.setdefault(sink.system, [])
        if sink not in known:
            known.append(sink)
        return sink.system

    def writer(self, name: str, job: str) -> Writer:
        """The writer of that name, for this run."""
        if name == MEMORY:
            return MemoryWriter(self._ledger)
        if name == KAFKA:
            from millstream.sinks.kafka.plain_writer import PlainTopicWriter
            from millstream.sinks.kafka.writer import TopicWriter

            self.watch_kafka()
            kind = PlainTopicWriter if self._delivery == "at_least_once" else TopicWriter
            return kind(self.cluster, self._opening(name, job, ()))
        sinks = self._sinks[name]
        writer = sinks[0].writer(self._opening(name, job, tuple(sinks)))
        self._watch_all(writer)
        return writer

    def _opening(self, name: str, job: str, sinks: tuple[Sink, ...]) -> Opening:
        return Opening(
            self._pipeline, job, self._epoch(), sinks, take_over=self._take_over,
            delivery=self._delivery, on_wait=self._listener.on_wait,
            on_answer=self._listener.on_answer, check_owned=self._owned,
            on_step=lambda point: reached(point, 0), idle_seconds=self._idle_seconds,
            spark=self._spark,
            patience=PATIENCE if self._listener.patience is None else self._listener.patience,
            folder=None if self._folder is None else self._folder / "sinks" / folder_name(name),
        )  # fmt: skip

    def existing(self, sinks: Sequence[Sink]) -> list[str]:
        """The topics, tables and paths of these sinks that exist already, as readable names."""
        from millstream.kafka.admin.topics import Topics

        found = []
        for name in sorted({sink.name for sink in sinks if isinstance(sink, Topic)}):
            with suppress(NotFound):
                Topics(self.cluster).describe(name)
                found.append(f"the topic {name!r}")
        for system in dict.fromkeys(self.writer_of(s) for s in sinks if not isinstance(s, Topic)):
            writer = self.writer(system, "")
            if isinstance(writer, ListsExisting):
                try:
                    found += writer.existing()
                finally:
                    writer.close()
        return found

    def clock(self) -> int:
        """The wall clock."""
        return time.time_ns() // 1000

    def ahead(self, read: Read) -> int | None:
        """The `ahead` of the source."""
        return read.ahead
