from __future__ import annotations

import gc
import re
import threading
import time
import weakref
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from tests.faults.appending import append
from tests.kafka.batch_writing import Whole, Written

from millstream.errors import DataGone, InvalidInput, NotFound
from millstream.kafka.admin.topics import Topics
from millstream.kafka.clients.consuming.consumer import Consumer
from millstream.kafka.clients.producing.producer import Producer
from millstream.kafka.settings import Cluster
from millstream.sources.kafka.librdkafka_fetch import ClientFetcher

if TYPE_CHECKING:
    from tests.kafka.shortly import Log

    from millstream.testing.local_broker import ThrowAwayBroker

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def numbered(log: Log, topic: str, count: int = 10, *, partitions: int = 1) -> None:
    """Records "0", "1", … one minute apart, round-robin over the partitions."""
    log.topics.create(topic, partitions=partitions, settings={"retention.ms": -1})
    with Producer(log.address) as producer:
        for number in range(count):
            producer.send(
                topic,
                str(number),
                partition=number % partitions,
                timestamp=NOON + timedelta(minutes=number),
            )


def test_until_end_stops_at_the_end(log: Log, topic: str) -> None:
    numbered(log, topic)

    with log.consumer(topic, until_end=True) as consumer:
        first = list(consumer)
        log.fill(topic, [b"later"])
        assert list(consumer) == []

    assert [record.value for record in first] == [b"%d" % i for i in range(10)]
    assert [record.offset for record in first] == list(range(10))


def test_an_empty_topic_is_read_at_once(log: Log, topic: str) -> None:
    log.topics.create(topic, partitions=3)

    begun = time.monotonic()
    assert log.values(topic) == []
    assert time.monotonic() - begun < 3


def test_a_loop_reads_new_records_until_it_is_stopped(log: Log, topic: str) -> None:
    log.topics.create(topic)
    seen = []
    with log.consumer(topic) as consumer:

        def read() -> None:
            for record in consumer:
                seen.append(record.value)
                if record.value == b"last":
                    consumer.stop()

        reader = threading.Thread(target=read)
        reader.start()
        for value in (b"one", b"two", b"last"):
            log.fill(topic, [value])
        reader.join(timeout=20)

        assert not reader.is_alive()
    assert seen == [b"one", b"two", b"last"]


def test_stop_from_another_thread_ends_a_waiting_loop(log: Log, topic: str) -> None:
    log.topics.create(topic)
    with log.consumer(topic) as consumer:
        threading.Timer(0.3, consumer.stop).start()

        assert list(consumer) == []


def test_reading_continues_after_a_break(log: Log, topic: str) -> None:
    numbered(log, topic)
    with log.consumer(topic, until_end=True) as consumer:
        for record in consumer:
            if record.value == b"3":
                break
        assert consumer.position() == {(topic, 0): 4}
        rows = [value for batch in consumer.batches(rows=4) for value in batch["value"].to_pylist()]

    assert rows == [b"4", b"5", b"6", b"7", b"8", b"9"]


@pytest.mark.parametrize(
    ("start", "first"),
    [
        ("start", 0),
        ("end", None),
        (NOON + timedelta(minutes=4), 4),
        (NOON + timedelta(minutes=3, seconds=1), 4),
        (NOON + timedelta(days=9), None),
        (datetime(2026, 1, 1, 12, 6), 6),
        ({0: 7}, 7),
        ({0: 10}, None),
    ],
)
def test_reading_begins_at_the_start_the_end_a_time_or_an_offset(
    log: Log, topic: str, start: Any, first: int | None
) -> None:
    numbered(log, topic)

    values = log.values(topic, start=start)

    assert values == ([] if first is None else [b"%d" % i for i in range(first, 10)])


def test_reading_begins_at_a_time_before_now(log: Log, topic: str) -> None:
    log.topics.create(topic)
    now = datetime.now(UTC)
    with Producer(log.address) as producer:
        for hours in (5, 3, 1):
            producer.send(topic, str(hours), timestamp=now - timedelta(hours=hours))

    assert log.values(topic, start=timedelta(hours=4)) == [b"3", b"1"]


def test_seeking_by_offset_and_by_time_in_both_directions(log: Log, topic: str) -> None:
    numbered(log, topic)
    with log.consumer(topic) as consumer:
        records = iter(consumer)
        assert [next(records).value for _ in range(6)][-1] == b"5"
        was = consumer.position()[topic, 0]

        consumer.seek(topic, 0, 2)
        assert next(records).value == b"2"
        consumer.seek_to(NOON + timedelta(minutes=8))
        assert next(records).value == b"8"
        consumer.seek_to("start")
        assert next(records).value == b"0"
        consumer.seek(topic, 0, was)
        assert next(records).value == b"6"
        assert consumer.lag() == {(topic, 0): 3}
        consumer.seek_to("end")
        assert consumer.lag() == {(topic, 0): 0}
        log.fill(topic, [b"new"])
        assert next(records).value == b"new"


def test_only_some_partitions_can_be_read(log: Log, topic: str) -> None:
    numbered(log, topic, partitions=3)

    assert {record.partition for record in log.read(topic, partitions=[0, 2])} == {0, 2}


def test_offsets_for_some_partitions_leave_the_others_at_their_start(log: Log, topic: str) -> None:
    numbered(log, topic, partitions=2)

    assert sorted(log.values(topic, start={1: 4})) == [b"0", b"2", b"4", b"6", b"8", b"9"]  # type: ignore[type-var]


def test_several_topics_are_read_together(log: Log, topic: str) -> None:
    numbered(log, topic, 3)
    numbered(log, f"{topic}-b", 2)

    found = {(record.topic, record.value) for record in log.read(topic, f"{topic}-b")}

    assert found == {
        (topic, b"0"),
        (topic, b"1"),
        (topic, b"2"),
        (f"{topic}-b", b"0"),
        (f"{topic}-b", b"1"),
    }


def test_a_paused_partition_waits_and_loses_nothing(log: Log, topic: str) -> None:
    numbered(log, topic, 20, partitions=2)
    with log.consumer(topic, until_end=True) as consumer:
        records = iter(consumer)
        seen = [next(records)]
        consumer.pause(topic, 0)
        log.fill(topic, [b"x"])
        during = [next(records) for _ in range(9 if seen[0].partition else 10)]
        consumer.resume()
        rest = list(records)

    assert {record.partition for record in during} == {1}
    values = [record.value for record in [*seen, *during, *rest] if record.value != b"x"]
    assert sorted(map(str, values)) == sorted(str(b"%d" % i) for i in range(20))


def test_records_removed_before_they_were_read_raise_until_a_seek(log: Log, topic: str) -> None:
    numbered(log, topic)
    with log.consumer(topic, group=topic) as consumer:
        assert [record.value for _, record in zip(range(2), consumer, strict=False)] == [b"0", b"1"]
    log.topics.truncate(topic, {0: 6})

    with log.consumer(topic, group=topic) as consumer:
        for _ in range(2):
            with pytest.raises(DataGone, match=rf"partition 0 of {topic} .* offset 2; .* at 6"):
                next(iter(consumer))
        with pytest.raises(DataGone):
            next(consumer.batches())
        consumer.seek_to("start")

        assert next(iter(consumer)).value == b"6"


def test_a_client_without_references_is_freed_at_once(log: Log, topic: str) -> None:
    numbered(log, topic)
    gc.disable()
    try:
        kept = [
            log.consumer(topic),
            log.consumer(topic, group=topic),
            Producer(log.address),
            log.topics,
        ]
        next(iter(kept[0]))  # type: ignore[call-overload]
        ends = [weakref.ref(it) for it in kept]
        del kept
        assert [end() for end in ends] == [None] * 4
    finally:
        gc.enable()


def test_a_group_reads_a_recreated_topic_from_its_start(log: Log, topic: str) -> None:
    numbered(log, topic)
    log.topics.create(f"{topic}-b")
    with log.consumer(topic, group=topic, commit="manual") as consumer:
        records = iter(consumer)
        for _ in range(8):
            next(records)
        consumer.commit()
    log.topics.delete(topic)
    log.topics.create(topic)
    log.fill(topic, [b"new"])

    # Kafka forgets the offsets of a deleted topic, so the group starts again.
    assert log.values(topic, group=topic) == [b"new"]


@pytest.mark.parametrize("offset", [3, 0])
def test_a_removed_offset_is_refused_as_start_and_by_seek(
    log: Log, topic: str, offset: int
) -> None:
    numbered(log, topic)
    log.topics.truncate(topic, {0: 6})

    with pytest.raises(DataGone, match=rf"hold offset {offset}; got a log that begins at 6"):
        log.consumer(topic, start={0: offset})
    with log.consumer(topic) as consumer, pytest.raises(DataGone):
        consumer.seek(topic, 0, offset)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"start": "middle"}, "start needs .* got 'middle'"),
        ({"start": 5}, "start needs .* got 5"),
        ({"start": "committed"}, 'start="committed" needs a group'),
        ({"start": {0: 99}}, "up to its end, 10; got 99"),
        ({"start": {0: -1}}, "offset from 0 on; got -1"),
        ({"start": {0: "1"}}, "offset from 0 on; got '1'"),
        ({"start": {5: 1}}, "partitions 0 to 0; got an offset for partition 5"),
        ({"partitions": [1]}, r"partitions needs some of \[0\]; got \[1\]"),
        ({"partitions": []}, "partitions needs some"),
        ({"partitions": [0], "group": "g"}, "partitions= needs a consumer without a group"),
        ({"group": ""}, "a group needs a name; got ''"),
        ({"group": 5}, "a group needs a name; got 5"),
        ({"isolation": "none"}, "isolation needs .* got 'none'"),
        ({"commit": "auto"}, 'commit="auto" needs a group'),
        ({"commit": "never", "group": "g"}, "commit needs .* got 'never'"),
        ({"settings": {"group.id": "x"}}, "group.id needs to be set by group="),
        ({"settings": {"fetch.min.bytes": "many"}}, "fetch.min.bytes needs .* got 'many'"),
        ({"settings": {"fetch.min.byte": 1}}, "got 'fetch.min.byte'"),
        ({"settings": {5: 1}}, "name that is text; got 5"),
    ],
)
def test_an_invalid_option_is_named(
    log: Log, topic: str, options: dict[str, Any], message: str
) -> None:
    numbered(log, topic)

    with pytest.raises(InvalidInput, match=message):
        log.consumer(topic, **options)


def test_a_consumer_needs_topics_that_exist(log: Log, topic: str) -> None:
    log.topics.create(topic)

    with pytest.raises(NotFound, match=f"{topic}s does not exist; did you mean {topic}"):
        log.consumer(topic, f"{topic}s")
    with pytest.raises(NotFound):
        log.consumer(f"{topic}s", group="g")
    with pytest.raises(InvalidInput, match="a consumer needs a topic"):
        log.consumer()
    with pytest.raises(InvalidInput, match="got 'a b'"):
        Consumer("a b", kafka="127.0.0.1:1")


def test_start_by_offsets_needs_one_topic(log: Log, topic: str) -> None:
    with pytest.raises(InvalidInput, match="start by offsets needs one topic"):
        log.consumer(topic, f"{topic}-b", start={0: 0})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda it: it.commit(), "commit() needs a consumer in a group"),
        (lambda it: it.committed(), "committed() needs a consumer in a group"),
        (lambda it: it.seek("other", 0, 0), "partition 0 of 'other'"),
        (lambda it: it.seek(it.topics[0], 7, 0), "partition 7 of"),
        (lambda it: it.seek(it.topics[0], 0, 11), "up to its end, 10; got 11"),
        (lambda it: it.seek_to("middle"), "seek_to needs"),
        (lambda it: it.pause(it.topics[0], 3), "partition 3 of"),
        (lambda it: it.batches(rows=0), "rows needs a whole number from 1 on; got 0"),
    ],
)
def test_an_invalid_call_is_refused(log: Log, topic: str, call: Any, message: str) -> None:
    numbered(log, topic)

    with log.consumer(topic) as consumer, pytest.raises(InvalidInput, match=re.escape(message)):
        call(consumer)


def test_a_closed_consumer_reads_nothing(log: Log, topic: str) -> None:
    log.topics.create(topic)
    consumer = log.consumer(topic)
    consumer.close()
    consumer.close()

    with pytest.raises(InvalidInput, match="open consumer"):
        next(iter(consumer))
    with pytest.raises(InvalidInput, match="open consumer"):
        consumer.batches()


def test_header_names_that_are_not_utf8_are_replaced(broker: ThrowAwayBroker, topic: str) -> None:
    Topics(broker.address).create(topic)
    names = (b"a", b"\xff", b"b")
    records = tuple(Written(n, b"v%d" % n, headers=((name, b"1"),)) for n, name in enumerate(names))
    append(broker, topic, Whole(0, records, first_stamp=1_767_225_600_000))
    marked = [[("a", b"1")], [("\N{REPLACEMENT CHARACTER}", None)], [("b", b"1")]]

    singly = Consumer(topic, kafka=broker.address, until_end=True)
    assert [list(record.headers) for record in singly] == marked
    together = Consumer(topic, kafka=broker.address, until_end=True)
    columns = [row for batch in together.batches() for row in batch["headers"].to_pylist()]
    assert [[(one["name"], one["value"]) for one in row] for row in columns] == marked
    fetched = ClientFetcher(Cluster(broker.address), topic)
    [table] = fetched.read({0: (0, 3)}, ("headers", "offset"))
    fetched.close()
    assert [[(one["key"], one["value"]) for one in row]
            for row in table["headers"].to_pylist()] == marked  # fmt: skip
