"""Fetches records of a topic as Arrow with librdkafka: from any cluster, with headers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from millstream.kafka.librdkafka import LOG
from millstream.kafka.protocol.batch_headers import BadBatch
from millstream.kafka.record_limits import READ_ANY_SIZE
from millstream.kafka.records import headers_of
from millstream.sources.kafka import errors
from millstream.sources.spec import raw_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from millstream.kafka.settings import Cluster
    from millstream.sources.spec import Ranges

_CLIENT = {
    **READ_ANY_SIZE,
    "group.id": "millstream.fetch",
    "enable.auto.commit": "false",
    "enable.partition.eof": "true",
    "isolation.level": "read_committed",
    "auto.offset.reset": "error",
    "queued.max.messages.kbytes": "4096",
    "queued.min.messages": "100000",
    "max.partition.fetch.bytes": "2097152",
    "fetch.wait.max.ms": "100",
    "fetch.queue.backoff.ms": "2",
    "fetch.error.backoff.ms": "100",
    "check.crcs": "true",
}
_MAX_MESSAGES = 20_000
_POLL_SECONDS = 1.0
_PATIENCE = 120.0

_DAMAGED = (KafkaError._BAD_MSG, KafkaError._BAD_COMPRESSION, KafkaError._NOT_IMPLEMENTED,
            KafkaError._UNDERFLOW, KafkaError.INVALID_MSG)  # fmt: skip


class ClientFetcher:
    """One client of one topic, kept open between ranges.

    A range that begins where the last one ended uses the records received meanwhile.
    """

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._cluster, self._consumer, self._fresh = cluster, _opened(cluster), True
        self._topic, self._address = topic, cluster.address
        self._next: dict[int, int] = {}
        self._kept: list[Message] = []

    def read(
        self, ranges: Ranges, columns: Sequence[str], *, live: bool = False
    ) -> Iterator[pa.Table]:
        """The records of these ranges, in order within each partition.

        With `live` they end at the current end of the log, and all partitions are read at once: the
        few records after them are kept. Otherwise partitions are read one after the other, because
        the client would go on fetching from one while another is slow.

        Raises:
            DamagedLog: some of them cannot be read.
            DataGone: the log no longer holds some of them.
            NotFound: there is no such topic.
            Unavailable: no data for two minutes.
        """
        whole = {p: (a, b) for p, (a, b) in ranges.items() if b > a}
        known = self._next
        for part in [whole] if live else [{p: span} for p, span in sorted(whole.items())]:
            left = {p: b for p, (_, b) in part.items()}
            positions = self._seek({p: a for p, (a, _) in part.items()}, known if live else {})
            for messages in self._receive(left, positions):
                try:
                    self._check(messages, left)
                except _Stale:
                    self._replace_client()
                    self._assign({p: at for p, at in positions.items() if p in left})
                    continue
                table = self._rows_of(messages, left, positions, columns)
                if table.num_rows:
                    yield table
            self._fresh = False
            self._next = positions | left | {p: b for p, (_, b) in part.items()}

    def close(self) -> None:
        """Close all connections."""
        self._consumer.close()

    def _replace_client(self) -> None:
        """Replace the client: after a damaged batch, librdkafka may continue at any offset."""
        self._consumer.close()
        self._consumer, self._fresh = _opened(self._cluster), True
        self._next, self._kept = {}, []

    def _assign(self, positions: Mapping[int, int]) -> None:
        self._consumer.assign(
            [TopicPartition(self._topic, p, start) for p, start in positions.items()]
        )

    def _receive(self, left: dict[int, int], positions: dict[int, int]) -> Iterator[list[Message]]:
        """Yield received messages until all ranges are complete."""
        waiting, self._kept = self._kept, []
        if waiting:
            yield waiting
        last = time.monotonic()
        while left:
            first = self._consumer.poll(_POLL_SECONDS)
            if first is not None:
                last = time.monotonic()
                more = _MAX_MESSAGES
                if len(positions) == 1:
                    more = min(more, sum(end - positions[p] for p, end in left.items()) - 1)
                yield [first, *(self._consumer.consume(more, 0) if more else ())]
            elif time.monotonic() - last > _PATIENCE:
                raise errors.unavailable(self._topic, self._address, "no answer")

    def _seek(self, starts: Mapping[int, int], others: Mapping[int, int]) -> dict[int, int]:
        """Seek to the starts of the ranges; returns the position of every assigned partition."""
        known, self._next = self._next, {}
        if all(known.get(p) == start for p, start in starts.items()):
            return known
        positions, self._kept = {**others, **starts}, []
        self._assign(positions)
        return positions

    def _rows_of(
        self, messages: list[Message], left: dict[int, int], positions: dict[int, int],
        columns: Sequence[str],
    ) -> pa.Table:  # fmt: skip
        """The messages in the ranges as rows; later ones are kept, complete partitions removed."""
        records = [message for message in messages if message.error() is None]
        count = len(records)
        offsets = np.fromiter(map(Message.offset, records), np.int64, count)
        partitions = np.fromiter(map(Message.partition, records), np.int32, count)
        mine = np.zeros(count, bool)
        for partition, end in list(left.items()):
            here = partitions == partition
            mine |= here & (offsets < end)
            reached = int(offsets[here].max()) + 1 if here.any() else positions[partition]
            positions[partition] = max(positions[partition], min(reached, end))
            if reached >= end:
                del left[partition]
        if count != len(messages):
            self._handle_ends(messages, left)
        if not mine.all():
            self._kept += [records[place] for place in np.flatnonzero(~mine).tolist()]
            records = [records[place] for place in np.flatnonzero(mine).tolist()]
            offsets, partitions = offsets[mine], partitions[mine]
        return _table(records, offsets, partitions, columns)

    def _handle_ends(self, messages: list[Message], left: dict[int, int]) -> None:
        """Handle ends of partitions: only control records may follow the last record."""
        for message in messages:
            error = message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                partition, offset = int(message.partition() or 0), int(message.offset() or 0)
                if offset >= left.get(partition, offset + 1):
                    del left[partition]

    def _check(self, messages: list[Message], left: Mapping[int, int]) -> None:
        """Raise errors within the ranges; errors after them are left to later ranges."""
        for message in messages:
            error = message.error()
            if error is None or error.code() == KafkaError._PARTITION_EOF:
                continue
            partition, offset = int(message.partition() or 0), int(message.offset() or 0)
            unreadable = error.code() in errors.GONE + _DAMAGED
            if unreadable and not self._fresh:
                raise _Stale
            if unreadable and offset >= left.get(partition, 0):
                continue
            if error.code() in _DAMAGED:
                self._replace_client()
                bad = BadBatch(offset, offset + 1, error.str())
                raise errors.damaged(self._topic, partition, bad)
            gone = errors.gone(self._topic, partition, offset)
            if stop := errors.of(error, self._topic, self._address, gone):
                raise stop


class _Stale(Exception):
    """A reused client reports damaged or deleted records; a new client is asked instead."""


def _opened(cluster: Cluster) -> Consumer:
    return Consumer(cluster.client(**_CLIENT), logger=LOG)


def _table(
    records: list[Message], offsets: np.ndarray, partitions: np.ndarray, columns: Sequence[str]
) -> pa.Table:
    schema = raw_schema(columns)
    made: dict[str, Callable[[], Any]] = {
        "value": lambda: list(map(Message.value, records)),
        "key": lambda: list(map(Message.key, records)),
        "headers": lambda: list(map(_headers, records)),
        "partition": lambda: partitions,
        "offset": lambda: offsets,
        "timestamp": lambda: 1000 * np.fromiter(
                    (stamp for _, stamp in map(Message.timestamp, records)), np.int64, len(records)
        ),
    }  # fmt: skip
    return pa.table(
        [pa.array(made[field.name](), _plain(field.type)).cast(field.type) for field in schema],
        schema=schema,
    )


def _plain(kind: pa.DataType) -> pa.DataType:
    return pa.int64() if pa.types.is_timestamp(kind) else kind


def _headers(message: Message) -> list[dict[str, Any]] | None:
    return [{"key": name, "value": value} for name, value in headers_of(message)] or None
