from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.kafka.shortly import eventually

from millstream.errors import DataGone
from millstream.kafka.clients.producing.producer import Producer

if TYPE_CHECKING:
    from tests.kafka.shortly import Log

SMALL_SEGMENTS = {"segment.ms": 100, "segment.bytes": 1_048_576}


def keep_writing(log: Log, topic: str) -> None:
    """Append a record of another key, because a segment is only closed by the next record."""
    with Producer(log.address) as producer:
        producer.send(topic, b"filler", key=b"filler")


def test_records_older_than_the_retention_are_removed_and_reading_them_raises(
    log: Log, topic: str
) -> None:
    log.topics.create(topic, retention="300 ms", settings=SMALL_SEGMENTS)
    log.fill(topic, [b"%d" % i for i in range(5)])
    assert log.topics.offsets(topic) == {0: 5}

    def gone() -> bool:
        keep_writing(log, topic)
        return log.topics.offsets(topic, "start")[0] >= 5

    eventually(gone)

    with pytest.raises(
        DataGone, match=rf"partition 0 of {topic} needs to hold offset 2; got a log"
    ):
        log.consumer(topic, start={0: 2})
    assert not {b"0", b"1", b"2", b"3", b"4"} & set(log.values(topic))


def test_records_beyond_the_retention_size_are_removed(log: Log, topic: str) -> None:
    log.topics.create(topic, retention_bytes=2_000_000, settings={"segment.bytes": 1_048_576})
    with Producer(log.address, compression="none") as producer:
        for _ in range(8):
            producer.send_many(topic, [b"x" * 100_000] * 8)
            producer.flush()

    eventually(lambda: log.topics.offsets(topic, "start")[0] > 0)

    assert log.topics.describe(topic).offsets_held * 100_000 >= 1_000_000


def test_a_group_that_missed_records_raises_with_the_offset(log: Log, topic: str) -> None:
    log.topics.create(topic, retention="300 ms", settings=SMALL_SEGMENTS)
    log.fill(topic, [b"%d" % i for i in range(5)])
    with log.consumer(topic, group=topic) as consumer:
        next(iter(consumer))

    def gone() -> bool:
        keep_writing(log, topic)
        return log.topics.offsets(topic, "start")[0] >= 5

    eventually(gone)

    assert log.topics.group(topic).partitions[0].gone >= 4
    with (
        log.consumer(topic, group=topic) as consumer,
        pytest.raises(DataGone, match=r"hold offset 1; got a log that begins at"),
    ):
        next(iter(consumer))


def test_compaction_keeps_the_last_value_of_each_key_and_tombstones_delete(
    log: Log, topic: str
) -> None:
    log.topics.create(
        topic,
        compact=True,
        settings={
            **SMALL_SEGMENTS,
            "min.cleanable.dirty.ratio": 0.01,
            "min.compaction.lag.ms": 0,
            "max.compaction.lag.ms": 100,
            "delete.retention.ms": 100,
        },
    )
    with Producer(log.address) as producer:
        for turn in range(20):
            for key in ("a", "b", "c"):
                producer.send(topic, f"{key}{turn}", key=key)
        producer.send(topic, None, key="b")

    def state() -> dict[bytes | None, list[bytes | None]]:
        found: dict[bytes | None, list[bytes | None]] = {}
        for record in log.read(topic):
            found.setdefault(record.key, []).append(record.value)
        found.pop(b"filler", None)
        return found

    def compacted() -> bool:
        keep_writing(log, topic)
        return state() == {b"a": [b"a19"], b"c": [b"c19"]}

    eventually(compacted, within=40)
    offsets = [record.offset for record in log.read(topic) if record.key != b"filler"]
    assert offsets == [57, 59], "offsets stay with their records"
