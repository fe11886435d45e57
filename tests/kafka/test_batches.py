from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millstream.kafka.clients.producing.producer import Producer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.kafka.shortly import Log

    from millstream.kafka.records import Record

SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("us", "UTC"), nullable=False),
        pa.field(
            "headers",
            pa.list_(
                pa.field(
                    "item",
                    pa.struct([pa.field("name", pa.string(), nullable=False),
                               pa.field("value", pa.binary())]),
                    nullable=False,
                )
            ),
            nullable=False,
        ),
    ]
)  # fmt: skip


def rows_of(records: Sequence[Record]) -> list[dict[str, object]]:
    return [
        {
            "key": record.key,
            "value": record.value,
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "headers": [{"name": name, "value": value} for name, value in record.headers],
        }
        for record in records
    ]


def in_order(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    return sorted(rows, key=lambda row: (row["topic"], row["partition"], row["offset"]))


sent = st.tuples(
    st.integers(0, 1),
    st.one_of(st.none(), st.binary(max_size=5)),
    st.one_of(st.none(), st.binary(max_size=5)),
    st.lists(st.tuples(st.text("ab", max_size=2), st.none() | st.binary(max_size=2)), max_size=2),
)


@given(st.lists(sent, max_size=30), st.integers(1, 12))
@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_batches_have_the_same_data_as_records(
    log: Log,
    topic: str,
    records: list[tuple[int, bytes, bytes, list[tuple[str, bytes]]]],
    rows: int,
) -> None:
    names = [f"{topic}-a", f"{topic}-b"]
    for name in names:
        log.topics.create(name, partitions=2, exists_ok=True)
    with Producer(log.address) as producer:
        for which, key, value, headers in records:
            producer.send(names[which], value, key=key, headers=headers)

    with log.consumer(*names, until_end=True) as consumer:
        batches = list(consumer.batches(rows=rows))

    assert all(0 < batch.num_rows <= rows for batch in batches)
    assert all(batch.schema == SCHEMA for batch in batches)
    found = [row for batch in batches for row in batch.to_pylist()]
    assert in_order(found) == in_order(rows_of(log.read(*names)))
    for batch in batches:
        batch.validate(full=True)


def test_a_batch_has_at_most_the_requested_rows(log: Log, topic: str) -> None:
    log.topics.create(topic, partitions=3)
    log.fill(topic, [b"%d" % i for i in range(25_000)])

    with log.consumer(topic, until_end=True) as consumer:
        sizes = [batch.num_rows for batch in consumer.batches(rows=7_000, wait="5 seconds")]

    assert sizes == [7_000, 7_000, 7_000, 4_000]


def test_a_batch_waits_no_longer_than_requested(log: Log, topic: str) -> None:
    log.topics.create(topic)
    log.fill(topic, [b"1", b"2"])
    with log.consumer(topic) as consumer:
        batches = consumer.batches(wait="50 ms")
        assert next(batches).num_rows == 2
        log.fill(topic, [b"3"])
        assert next(batches)["value"].to_pylist() == [b"3"]
        consumer.stop()
        assert list(batches) == []


def test_positions_follow_the_batches_in_every_partition(log: Log, topic: str) -> None:
    log.topics.create(topic, partitions=3)
    log.fill(topic, [b"x"] * 100, partitioner="round_robin")
    with log.consumer(topic, until_end=True) as consumer:
        seen = 0
        for batch in consumer.batches(rows=30):
            seen += batch.num_rows
            assert sum(consumer.position().values()) == seen
            assert sum(consumer.lag().values()) == 100 - seen

    assert seen == 100


def test_the_garbage_collector_is_enabled_again(log: Log, topic: str) -> None:
    log.topics.create(topic)
    log.fill(topic, [b"x"])
    for enabled in (True, False):
        (gc.enable if enabled else gc.disable)()
        try:
            with log.consumer(topic, until_end=True) as consumer:
                for _ in consumer.batches():
                    assert gc.isenabled() is enabled
            assert gc.isenabled() is enabled
        finally:
            gc.enable()


def test_an_interrupted_batch_is_read_again(
    log: Log, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.topics.create(topic, partitions=2)
    log.fill(topic, [b"%d" % i for i in range(12_000)], partitioner="round_robin")
    from millstream.kafka.clients.consuming import message_columns

    build, calls = message_columns.chunk, iter(range(100))

    def interrupted(*arguments: object) -> object:
        if next(calls) == 1:
            raise KeyboardInterrupt
        return build(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(message_columns, "chunk", interrupted)
    with log.consumer(topic, until_end=True) as consumer:
        with pytest.raises(KeyboardInterrupt):
            next(consumer.batches(wait="5 seconds"))
        assert gc.isenabled()
        values = [value for batch in consumer.batches() for value in batch["value"].to_pylist()]

    assert sorted(values, key=int) == [b"%d" % i for i in range(12_000)]
