"""Single records of a topic, whole: what a dead row is shown as.

Batches are read without keys and headers. Where a record turns out bad, it is fetched
again by its place, in one sequential pass per partition that leaps over long gaps.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millstream.errors import DataGone
from millstream.log.link import LOG
from millstream.sources.spec import raw_schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millstream.log.settings import Cluster

_LEAP = 5_000
_AT_ONCE = 1_000
_PATIENCE = 30.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def fetch(cluster: Cluster, topic: str, places: Mapping[int, Sequence[int]]) -> pa.Table:
    """The records at these offsets (ascending in each partition), in that order.

    Raises:
        DataGone: one of them is no longer there.
    """
    from confluent_kafka import Consumer

    consumer = Consumer(
        cluster.client(
            **{
                "group.id": "millstream.originals",
                "enable.auto.commit": "false",
                "isolation.level": "read_committed",
                "auto.offset.reset": "error",
                "check.crcs": "true",
            }
        ),
        logger=LOG,
    )
    rows: list[dict[str, Any]] = []
    try:
        for partition, offsets in sorted(places.items()):
            rows += _partition(consumer, topic, partition, list(offsets))
    finally:
        consumer.close()
    return pa.Table.from_pylist(rows, schema=raw_schema())


def _partition(
    consumer: Any, topic: str, partition: int, offsets: list[int]
) -> list[dict[str, Any]]:
    from confluent_kafka import TopicPartition

    found: dict[int, dict[str, Any]] = {}
    wanted = set(offsets)
    at = -_LEAP - 1
    deadline = time.monotonic() + _PATIENCE
    for offset in offsets:
        if offset in found:
            continue
        if offset - at > _LEAP:
            consumer.assign([TopicPartition(topic, partition, offset)])
        while at < offset:
            for message in consumer.consume(_AT_ONCE, timeout=1.0):
                if message.error() is not None:
                    raise _gone(topic, partition, offset)
                at = message.offset()
                if at in wanted:
                    found[at] = _row(message)
                deadline = time.monotonic() + _PATIENCE
            if time.monotonic() > deadline:
                raise _gone(topic, partition, offset)
        if offset not in found:
            raise _gone(topic, partition, offset)
    return [found[offset] for offset in offsets]


def _row(message: Any) -> dict[str, Any]:
    _, stamp = message.timestamp()
    headers = message.headers()
    return {
        "key": message.key(),
        "value": message.value(),
        "headers": None if headers is None else [{"key": k, "value": v} for k, v in headers],
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": _EPOCH + timedelta(milliseconds=stamp),
    }


def _gone(topic: str, partition: int, offset: int) -> DataGone:
    return DataGone(
        f"a bad row needs its record, {topic}/{partition} at offset {offset}",
        got="a log that no longer holds it",
        do="start again: the batch is planned anew if nothing of it was prepared",
    )
