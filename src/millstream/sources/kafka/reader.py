"""A Kafka topic opened for one run: its offsets, and the records of a range.

Only committed records are read: ends are last stable offsets, and records are fetched with
`read_committed`.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millstream.errors import InvalidSpec, NotFound, Refused, Unavailable
from millstream.kafka.librdkafka import LOG
from millstream.kafka.ping import system_at
from millstream.sources.kafka import errors
from millstream.sources.spec import (
    Extent,
    Offsets,
    Ranges,
    Scan,
    TooMuch,
    raw_schema,
    read_columns,
)
from millstream.timeouts import bounded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import pyarrow as pa

    from millstream.kafka.settings import Cluster
    from millstream.sources.kafka.fetch import Fetcher
    from millstream.sources.kafka.watch import TopicWatch

_ORDER = [("partition", "ascending"), ("offset", "ascending")]
_REFRESH_SECONDS = 5.0
_ANSWER_SECONDS, _ANSWER_SECONDS_IN_AN_OUTAGE = 10.0, 2.0
_MAX_OUTAGE = 120.0
_TOPIC_PROPAGATION = 3.0  # seconds until every broker knows a new topic
_RETRY_SECONDS = 0.25
_SEVERAL = 2
_CLOSE_SECONDS = 3.0
_MAX_BYTES = 64 << 20  # bytes of records that the driver reads at once


class TopicReader:
    """One topic of one cluster."""

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        group: str,
        *,
        waiting: Callable[[str], None] = lambda why: None,
        answered: Callable[[str], None] = lambda system: None,
        patience: float | None = None,
    ) -> None:
        from confluent_kafka import Consumer

        if cluster.settings:
            raise InvalidSpec(
                "in this version a pipeline needs a Kafka cluster without security settings",
                got=", ".join(sorted(cluster.settings)),
                do="read it with ms.Consumer, or choose an unsecured listener with --kafka",
            )
        self._cluster, self._topic, self._group = cluster, topic, group
        self._address, self._patience = cluster.address, patience
        self._waiting, self._answered = waiting, answered
        self._answer_seconds = _ANSWER_SECONDS
        self._admin = self._admin_client()
        self._committer = Consumer(
            cluster.client(**{"group.id": group, "enable.auto.commit": "false"}), logger=LOG
        )
        self._first: Offsets = {}
        self._ends: Offsets = {}
        self._identity: str | None = None
        self._refreshed = 0.0
        self._fetcher: Fetcher | None = None

    def _admin_client(self) -> Any:
        """A new admin client, which knows only the bootstrap brokers."""
        from confluent_kafka.admin import AdminClient

        return AdminClient(dict(self._cluster.client()), logger=LOG)

    def extent(self) -> Extent:
        """First offsets and stable ends; partitions and topic id are refreshed every few seconds.

        It waits for a broker that was available before.

        Raises:
            NotFound: the topic does not exist.
            Unavailable: the broker did not answer in time.
        """
        known = time.monotonic() + _TOPIC_PROPAGATION
        default = _MAX_OUTAGE if self._first else _TOPIC_PROPAGATION
        deadline = time.monotonic() + (default if self._patience is None else self._patience)
        waited = False
        while True:
            try:
                extent = self._extent()
            except NotFound:
                if self._first or time.monotonic() > known or self._brokers() < _SEVERAL:
                    raise
                time.sleep(_RETRY_SECONDS)
            except Unavailable as error:
                if isinstance(error, Refused) or time.monotonic() > deadline:
                    raise
                self._waiting(errors.waiting(self._address, error.got))
                # the old client may wait forever for a dead broker
                self._admin = self._admin_client()
                waited, self._answer_seconds = True, _ANSWER_SECONDS_IN_AN_OUTAGE
                time.sleep(_RETRY_SECONDS)
            else:
                if waited:
                    self._answer_seconds = _ANSWER_SECONDS
                    self._answered(system_at(self._address))
                return extent

    def _brokers(self) -> int:
        """How many brokers there are, some of which may not know a new topic yet."""
        from confluent_kafka import KafkaException

        try:
            return len(self._admin.list_topics(timeout=_ANSWER_SECONDS_IN_AN_OUTAGE).brokers)
        except KafkaException:
            return 0

    def _extent(self) -> Extent:
        from confluent_kafka.admin import OffsetSpec

        if not self._first or time.monotonic() - self._refreshed > _REFRESH_SECONDS:
            self._refresh()
        before, self._ends = self._ends, self._offsets(OffsetSpec.latest(), self._first)
        if any(end < before.get(partition, end) for partition, end in self._ends.items()):
            self._refresh()  # a log that ends earlier than before may be a recreated one
        return Extent(dict(self._first), dict(self._ends), self._identity)

    def _refresh(self) -> None:
        from confluent_kafka import TopicCollection
        from confluent_kafka.admin import OffsetSpec

        described = self._admin.describe_topics(TopicCollection([self._topic]))
        topic = self._answer(described[self._topic])
        partitions = [part.id for part in topic.partitions]
        self._first = self._offsets(OffsetSpec.earliest(), partitions)
        self._identity = str(topic.topic_id)
        self._refreshed = time.monotonic()

    def _offsets(self, spec: Any, partitions: Iterable[int]) -> Offsets:
        from confluent_kafka import IsolationLevel, TopicPartition

        asked = {TopicPartition(self._topic, partition): spec for partition in partitions}
        futures = self._admin.list_offsets(
            asked,
            isolation_level=IsolationLevel.READ_COMMITTED,
            request_timeout=self._answer_seconds,
        )
        return {
            tp.partition: int(self._answer(future, described=True).offset)
            for tp, future in futures.items()
        }

    def _answer(self, future: Any, *, described: bool = False) -> Any:
        """The broker's answer. If the topic has been `described`, a broker that does not know it
        (yet, or any more) is temporarily unavailable."""
        from confluent_kafka import KafkaError, KafkaException

        try:
            return future.result(timeout=self._answer_seconds)
        except TimeoutError as error:
            raise errors.unavailable(self._topic, self._address, "no answer") from error
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART and described:
                self._refreshed = 0.0
            elif error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise errors.unknown(self._topic, self._address) from None
            raise errors.unavailable(self._topic, self._address, error.args[0].str()) from error

    def scan(self, ranges: Ranges, slices: int, more: Sequence[str] = ()) -> Scan:
        """The records of these ranges, fetched in Spark's tasks."""
        from millstream.sources.kafka.fetch import Fetch, sliced

        parts = sliced(ranges, slices)
        return Scan(len(parts), Fetch(self._cluster, self._topic, parts, tuple(read_columns(more))))

    def table(self, ranges: Ranges, more: Sequence[str] = ()) -> pa.Table:
        """The records of these ranges, fetched on the driver; partition by partition, in order.

        Raises:
            DamagedLog: some of them cannot be read.
            TooMuch: they are larger than the driver reads at once.
        """
        from millstream.sources.kafka.fetch import fetcher

        columns = read_columns(more)
        if self._fetcher is None:
            self._fetcher = fetcher(self._cluster, self._topic, waiting=self._waiting,
                                    answered=self._answered)  # fmt: skip
        live = all(b >= self._ends.get(p, b + 1) for p, (_, b) in ranges.items())
        return _table(self._fetcher, ranges, columns, live=live)

    def in_task(self) -> TopicRecords:
        """The same records, fetched in Spark's tasks."""
        return TopicRecords(self._cluster, self._topic)

    def check(self, ranges: Ranges) -> None:
        """Read these ranges to check them, and discard the records.

        Raises:
            DamagedLog: some of them cannot be read.
        """
        from millstream.sources.kafka.fetch import fetcher

        columns = read_columns()
        reading = fetcher(self._cluster, self._topic, waiting=self._waiting,
                                    answered=self._answered)  # fmt: skip
        try:
            for _ in reading.read(ranges, columns):
                pass
        finally:
            reading.close()

    def offset_after_damage(self, partition: int, offset: int, end: int) -> int | None:
        """The offset at which reading can continue, if the batch at this offset is damaged."""
        from millstream.sources.kafka.damage import behind

        return behind(self._cluster, self._topic, partition, offset, end)

    def prefetch_reader(self, more: Sequence[str]) -> TopicPrefetchReader | None:
        """A reader with its own connection; None if librdkafka fetches the records."""
        return TopicRecords(self._cluster, self._topic).prefetch_reader(more)

    def watch(self) -> TopicWatch | None:
        """A watch with its own connection; None if librdkafka fetches the records."""
        from millstream.sources.kafka.watch import TopicWatch

        return None if self._cluster.settings else TopicWatch(self._cluster, self._topic)

    def originals(self, places: Mapping[int, Sequence[int]]) -> pa.Table:
        """Single records; only the first ones if all are too large."""
        from millstream.sources.kafka.originals import fetch

        return fetch(self._cluster, self._topic, places)

    def progress(self, offsets: Mapping[int, int]) -> None:
        """Commit offsets to the consumer group, for lag tools; recovery never reads them."""
        from confluent_kafka import KafkaException, TopicPartition

        places = [TopicPartition(self._topic, p, o) for p, o in offsets.items()]
        try:
            self._committer.commit(offsets=places, asynchronous=True)
        except KafkaException:
            return

    def close(self) -> None:
        """Close all connections. It waits only briefly for offset commits in flight, because an
        unavailable broker would delay it for minutes."""
        with suppress(TimeoutError):
            bounded(self._committer.close, _CLOSE_SECONDS)
        if self._fetcher is not None:
            self._fetcher.close()


@dataclass(frozen=True)
class TopicRecords:
    """The records of a topic, read inside Spark's tasks: each worker keeps its connections."""

    cluster: Cluster
    topic: str

    def table(self, ranges: Ranges, more: Sequence[str] = ()) -> pa.Table:
        """As `TopicReader.table`."""
        from millstream.sources.kafka.fetch import worker_fetcher

        columns = read_columns(more)
        return _table(worker_fetcher(self.cluster, self.topic), ranges, columns)

    def prefetch_reader(self, more: Sequence[str]) -> TopicPrefetchReader | None:
        """A reader with its own connection; None if librdkafka fetches the records."""
        columns = read_columns(more)
        if self.cluster.settings or "headers" in columns:
            return None
        return TopicPrefetchReader(self.cluster, self.topic, columns)


class TopicPrefetchReader:
    """Reads the records after the current batch on its own connection."""

    def __init__(self, cluster: Cluster, topic: str, columns: list[str]) -> None:
        from millstream.sources.kafka.wire_fetch import WireFetcher

        self._fetcher, self._columns = WireFetcher(cluster, topic), columns

    def wait(
        self, starts: Mapping[int, int], *, least: int, most: int
    ) -> tuple[Ranges, pa.Table] | None:
        """As `PrefetchReader.wait`; committed records only."""
        return self._fetcher.following(starts, self._columns, least=least, most=most)

    def ask(self, starts: Mapping[int, int], *, least: int, most: int) -> None:
        """Send the fetch for the next `wait` with these arguments."""
        self._fetcher.prefetch(starts, least=least, most=most)

    def close(self) -> None:
        """Close the connection."""
        self._fetcher.close()


def _table(
    fetcher: Fetcher, ranges: Ranges, columns: Sequence[str], *, live: bool = False
) -> pa.Table:
    """The records of these ranges, partition by partition, in order."""
    import pyarrow as pa

    empty = raw_schema(columns).empty_table()
    if not ranges:
        return empty
    found = _read_all(fetcher.read(ranges, columns, live=live), ranges)
    return pa.concat_tables([empty, *(found if len(ranges) == 1 else _in_order(found))])


def _read_all(tables: Iterable[pa.Table], ranges: Ranges) -> list[pa.Table]:
    """All the tables, unless they are too much and end before their ranges do."""
    found: list[pa.Table] = []
    size = 0
    for table in tables:
        if size >= _MAX_BYTES:
            raise TooMuch({p: _end_of(found, p, first) for p, (first, _) in ranges.items()})
        found.append(table)
        size += table.nbytes
    return found


def _end_of(tables: Iterable[pa.Table], partition: int, first: int) -> int:
    """The offset after the last record of a partition in these tables."""
    for table in tables:
        offsets = table["offset"].to_numpy()[table["partition"].to_numpy() == partition]
        first = max(first, int(offsets.max(initial=-1)) + 1)
    return first


def _in_order(tables: Sequence[pa.Table]) -> Sequence[pa.Table]:
    """The same records by partition and offset; tables of one partition each, as from
    `WireFetcher`, only need to be concatenated."""
    import pyarrow as pa

    placed = {}
    for number, table in enumerate(tables):
        partitions = table["partition"].to_numpy()
        if not (partitions == partitions[0]).all():
            return [pa.concat_tables(tables).sort_by(_ORDER)]
        placed[int(partitions[0]), number] = table
    return [placed[place] for place in sorted(placed)]
