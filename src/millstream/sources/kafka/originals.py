"""Single records of a topic, whole: what a dead row is shown as.

Batches are read without keys and headers. Where a record turns out bad, it is fetched
again by its offset: all partitions at once, each in one sequential pass that seeks over long
gaps.
"""

from __future__ import annotations

import time
from collections import deque
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from millstream.errors import DataGone
from millstream.kafka.librdkafka import LOG
from millstream.kafka.record_limits import READ_ANY
from millstream.sources.kafka import errors as troubles
from millstream.sources.spec import raw_schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millstream.kafka.settings import Cluster

_CLIENT = {
    **READ_ANY,
    "group.id": "millstream.originals",
    "enable.auto.commit": "false",
    "enable.partition.eof": "true",
    "isolation.level": "read_committed",
    "auto.offset.reset": "error",
    "check.crcs": "true",
    "fetch.wait.max.ms": "100",
    "fetch.queue.backoff.ms": "2",
    "queued.max.messages.kbytes": "4096",
}
_GAP = 5_000
_AT_ONCE = 1_000
_WAIT = 1.0
_PATIENCE = 30.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def fetch(cluster: Cluster, topic: str, places: Mapping[int, Sequence[int]]) -> pa.Table:
    """The records at these offsets (ascending in each partition), in that order.

    Raises:
        DataGone: one of them is no longer there.
        NotFound: there is no such topic.
        Unavailable: nothing has come for half a minute.
    """
    wanted = _Wanted(cluster, topic, places)
    try:
        found = wanted.found()
    finally:
        wanted.close()
    rows = [found[partition][offset] for partition in sorted(places)
            for offset in places[partition]]  # fmt: skip
    return pa.Table.from_pylist(rows, schema=raw_schema())


class _Wanted:
    """The offsets that have not come yet, and the client that fetches them."""

    def __init__(self, cluster: Cluster, topic: str, places: Mapping[int, Sequence[int]]) -> None:
        self._topic, self._address = topic, cluster.address
        self._left = {p: deque(dict.fromkeys(offsets)) for p, offsets in places.items() if offsets}
        self._found: dict[int, dict[int, dict[str, Any]]] = {p: {} for p in places}
        self._consumer = Consumer(cluster.client(**_CLIENT), logger=LOG)

    def found(self) -> dict[int, dict[int, dict[str, Any]]]:
        """The records by partition and offset."""
        self._consumer.assign([self._next(partition) for partition in self._left])
        heard = time.monotonic()
        while self._left:
            first = self._consumer.poll(_WAIT)
            if first is not None:
                heard = time.monotonic()
                for message in (first, *self._consumer.consume(_AT_ONCE, 0)):
                    self._take(message)
            elif time.monotonic() - heard > _PATIENCE:
                raise troubles.unavailable(self._topic, self._address, "no answer")
        return self._found

    def close(self) -> None:
        """Let go of the client."""
        self._consumer.close()

    def _take(self, message: Message) -> None:
        """One record, or the end of a partition: either says how far the log has been read."""
        error, partition = message.error(), int(message.partition() or 0)
        left = self._left.get(partition)
        if left is None:
            return
        is_end = error is not None and error.code() == KafkaError._PARTITION_EOF
        if error is not None and not is_end:
            trouble = troubles.of(error, self._topic, self._address, self._gone(partition))
            if trouble is not None:
                raise trouble
            return
        at = int(message.offset() or 0)
        if left[0] < at or (is_end and left[0] == at):
            raise self._gone(partition)
        if is_end or left[0] > at:
            return
        self._found[partition][at] = _row(message)
        left.popleft()
        if not left:
            del self._left[partition]
            self._consumer.pause([TopicPartition(self._topic, partition)])
        elif left[0] - at > _GAP:
            self._consumer.seek(self._next(partition))

    def _next(self, partition: int) -> TopicPartition:
        return TopicPartition(self._topic, partition, self._left[partition][0])

    def _gone(self, partition: int) -> DataGone:
        return DataGone(
            "a bad row needs its record, "
            f"{self._topic}/{partition} at offset {self._left[partition][0]}",
            got="a log that no longer holds it",
            do="start again: a batch of which nothing was prepared is planned again",
        )


def _row(message: Message) -> dict[str, Any]:
    _, stamp = message.timestamp()
    headers: Any = message.headers()
    return {
        "key": message.key(),
        "value": message.value(),
        "headers": None if headers is None else [{"key": k, "value": v} for k, v in headers],
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": _EPOCH + timedelta(milliseconds=stamp),
    }
