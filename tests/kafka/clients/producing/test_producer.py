from __future__ import annotations

import random
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from millstream.errors import InvalidInput, NotFound
from millstream.kafka.clients.consuming.share_consumer import ShareConsumer
from millstream.kafka.clients.producing.producer import Producer

if TYPE_CHECKING:
    from tests.kafka.shortly import Log

    from millstream.kafka.clients.producing.delivery_reports import Delivery

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_key_value_headers_timestamp_and_partition_are_read_as_sent(log: Log, topic: str) -> None:
    log.topics.create(topic, partitions=3)
    with Producer(log.address) as producer:
        producer.send(
            topic,
            {"price": 5.0},
            key="ü",
            partition=2,
            timestamp=NOON,
            headers=[("trace", "a"), ("trace", b"\x00"), ("none", None)],
        )
        producer.send(topic, None, key=b"k", timestamp=1_500)
        producer.send(topic, "text")

    records = {record.value: record for record in log.read(topic)}

    sent = records[b'{"price":5.0}']
    assert (sent.topic, sent.partition, sent.offset) == (topic, 2, 0)
    assert (sent.key, sent.timestamp) == ("ü".encode(), NOON)
    assert sent.headers == (("trace", b"a"), ("trace", b"\x00"), ("none", None))
    assert (records[None].key, records[None].timestamp.timestamp()) == (b"k", 1.5)
    assert records[b"text"].key is None
    assert abs(records[b"text"].timestamp - datetime.now(UTC)).total_seconds() < 60


def test_many_records_are_sent_in_order_with_keys_and_timestamps(log: Log, topic: str) -> None:
    log.topics.create(topic)
    with Producer(log.address) as producer:
        count = producer.send_many(
            topic,
            (str(i) for i in range(5)),
            keys=[b"k", "k", None, "k", "k"],
            timestamps=[NOON, 5, 6, None, 8],
        )
        producer.flush()

        assert (count, producer.sent, producer.acknowledged, producer.failed) == (5, 5, 5, 0)
    records = log.read(topic)
    assert [record.value for record in records] == [b"0", b"1", b"2", b"3", b"4"]
    assert [record.key for record in records] == [b"k", b"k", None, b"k", b"k"]
    assert records[0].timestamp == NOON
    assert records[1].timestamp.timestamp() == 0.005


@pytest.mark.parametrize("keys", [[b"1"], iter([b"1"]), [b"1"] * 3])
def test_columns_of_different_length_are_refused_before_anything_is_sent(
    log: Log, topic: str, keys: Any
) -> None:
    log.topics.create(topic)

    with Producer(log.address) as producer:
        with pytest.raises(InvalidInput, match=r"2 values, [13] keys"):
            producer.send_many(topic, [b"a", b"b"], keys=keys)
        assert producer.sent == 0

    assert log.values(topic) == []


def test_records_sent_before_an_invalid_value_are_counted_and_delivered(
    log: Log, topic: str
) -> None:
    log.topics.create(topic)
    with Producer(log.address) as producer:
        with pytest.raises(InvalidInput, match="type int"):
            producer.send_many(topic, [b"a", b"b", 3, b"d"])  # type: ignore[list-item]
        assert producer.sent == 2

    assert log.values(topic) == [b"a", b"b"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"partition": 2}, "partitions 0 to 1; got partition 2"),
        ({"partition": -1}, "got partition -1"),
        ({"partition": True}, "got partition True"),
        ({"timestamp": "now"}, "got 'now'"),
        ({"timestamp": 0}, 'treats 0 as "now"'),
        ({"key": 5}, "key of a record needs .* got 5"),
        ({"headers": {"a": 5}}, "header value .* got 5"),
        ({"value": 5}, "value of a record needs .* got 5"),
        ({"value": b"x" * 2_000_000}, "too large"),
    ],
)
def test_an_invalid_record_is_refused_at_once(
    log: Log, topic: str, options: dict[str, Any], message: str
) -> None:
    log.topics.create(topic, partitions=2)

    with Producer(log.address) as producer:
        with pytest.raises(InvalidInput, match=message):
            producer.send(topic, **{"value": b"v", **options})
        assert (producer.sent, producer.failed) == (0, 0)


def test_sending_does_not_create_a_topic(log: Log, topic: str) -> None:
    log.topics.create(topic)
    with Producer(log.address) as producer:
        with pytest.raises(NotFound, match=f"{topic}x does not exist; did you mean {topic}"):
            producer.send(f"{topic}x", b"v")
        with pytest.raises(NotFound, match="did you mean"):
            producer.send_many(f"{topic}x", [b"v"])
        with pytest.raises(InvalidInput, match="got 'no topic'"):
            producer.send("no topic", b"v")

    assert f"{topic}x" not in [info.name for info in log.topics.list()]


def test_sending_waits_while_the_queue_is_full(log: Log, topic: str) -> None:
    log.topics.create(topic)
    small = {"queue.buffering.max.messages": 10}
    values = [b"%d" % i for i in range(2_000)]

    with Producer(log.address, linger="0 ms", settings=small) as producer:
        producer.send_many(topic, values[:1_000])
        for value in values[1_000:]:
            producer.send(topic, value)

    assert log.values(topic) == values


def test_a_failed_delivery_is_raised_by_the_next_flush_once(log: Log, topic: str) -> None:
    log.topics.create(topic, settings={"max.message.bytes": 1_000})
    with Producer(log.address, linger="100 ms", compression="none") as producer:
        producer.send(topic, b"x" * 5_000)

        with pytest.raises(InvalidInput, match=r"1 sent record was not delivered.*too large"):
            producer.flush()
        assert (producer.sent, producer.acknowledged, producer.failed) == (1, 0, 1)
        producer.send(topic, b"small")

    assert log.values(topic) == [b"small"]


def test_leaving_the_block_raises_failed_deliveries(log: Log, topic: str) -> None:
    log.topics.create(topic, settings={"max.message.bytes": 1_000})

    with (
        pytest.raises(InvalidInput, match="not delivered"),
        Producer(log.address, compression="none") as producer,
    ):
        producer.send(topic, b"x" * 5_000)


def test_an_exception_in_the_block_is_not_hidden_by_one_from_close(log: Log, topic: str) -> None:
    log.topics.create(topic, settings={"max.message.bytes": 1_000})

    def send_and_fail() -> None:
        with Producer(log.address, compression="none") as producer:
            producer.send(topic, b"x" * 5_000)
            raise KeyError

    with pytest.raises(KeyError) as raised:
        send_and_fail()
    assert "1 sent record was not delivered" in raised.value.__notes__[0]


def test_on_delivery_is_called_for_each_record(log: Log, topic: str) -> None:
    log.topics.create(topic)
    deliveries: list[Delivery] = []
    with Producer(log.address, on_delivery=deliveries.append) as producer:
        producer.send_many(topic, [b"a", b"b"], keys=["1", "2"])

    assert [(one.offset, one.key, one.value, one.error) for one in deliveries] == [
        (0, b"1", b"a", None),
        (1, b"2", b"b", None),
    ]


@pytest.mark.parametrize(("acks", "idempotent"), [(0, False), (1, False), ("all", True)])
def test_every_acks_setting_delivers_all_records_without_faults(
    log: Log, topic: str, acks: Any, idempotent: bool
) -> None:
    log.topics.create(topic)
    with Producer(log.address, acks=acks) as producer:
        assert producer.idempotent is idempotent
        producer.send_many(topic, [b"x"] * 100)
        producer.flush()
        assert producer.acknowledged == 100

    assert len(log.read(topic)) == 100


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"acks": 2}, "acks needs .* got 2"),
        ({"acks": True}, "acks needs .* got True"),
        ({"acks": 1, "idempotent": True}, 'idempotent producer needs acks="all"; got acks=1'),
        ({"acks": 1, "transactional_id": "x"}, "transactional_id needs"),
        ({"transactional_id": ""}, "transactional_id needs"),
        ({"compression": "rar"}, "compression needs .* got 'rar'"),
        ({"linger": "-1 ms"}, "linger needs"),
        ({"partitioner": "none"}, "partitioner needs"),
        ({"settings": {"acks": 1}}, "acks needs to be set by acks="),
        ({"settings": {"no.such.thing": 1}}, "got 'no.such.thing'"),
        ({"settings": {"batch.size": "big"}}, "batch.size needs another value; got 'big'"),
        ({"settings": {"batch.size": None}}, "batch.size needs text"),
        ({"settings": {"plugin.library.paths": "x"}}, "must not load code"),
        ({"settings": {"sasl.password": "x"}}, "set on the cluster"),
    ],
)
def test_an_invalid_option_is_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Producer("127.0.0.1:1", **options)


def test_a_closed_producer_sends_nothing(log: Log, topic: str) -> None:
    log.topics.create(topic)
    producer = Producer(log.address)
    producer.close()
    producer.close()

    with pytest.raises(InvalidInput, match="open producer"):
        producer.send(topic, b"x")


LARGE = random.Random(7).randbytes(2_500_000)


@pytest.mark.parametrize("transactional", [False, True])
@pytest.mark.parametrize("many", [False, True])
def test_large_records_are_sent_to_a_topic_that_accepts_them(
    log: Log, topic: str, many: bool, transactional: bool
) -> None:
    log.topics.create(topic, settings={"max.message.bytes": 3_000_000})
    with Producer(log.address, transactional_id=topic if transactional else None) as producer:
        with producer.transaction() if transactional else nullcontext():
            if many:
                producer.send_many(topic, [b"a", LARGE, b"b"])
            else:
                producer.send(topic, LARGE, key=b"k", headers={"h": "v"})
        producer.flush()
        assert producer.failed == 0

    assert log.values(topic) == ([b"a", LARGE, b"b"] if many else [LARGE])
    with ShareConsumer(topic, group=topic, kafka=log.address) as queue:
        assert next(record for record in queue if len(record.value or b"") > 1).value == LARGE


@pytest.mark.parametrize("where", ["value", "key", "headers"])
def test_a_record_over_the_limit_of_its_topic_is_refused(log: Log, topic: str, where: str) -> None:
    log.topics.create(topic, settings={"max.message.bytes": 2_000_000})
    record: dict[str, Any] = {"value": b"v", where: {"h": LARGE} if where == "headers" else LARGE}
    with Producer(log.address) as producer:
        with pytest.raises(InvalidInput, match=r"at most 2,000,000 bytes; got .* 2,500,\d\d\d"):
            producer.send(topic, **record)
        with pytest.raises(InvalidInput, match=r"at most 2,000,000 bytes"):
            producer.send_many(topic, [b"first", LARGE])
        assert producer.sent == 1

        log.topics.alter(topic, settings={"max.message.bytes": 3_000_000})
        producer.send(topic, **record)

    assert len(log.read(topic)) == 2


def test_the_largest_record_a_broker_accepts_is_sent_and_read(log: Log, topic: str) -> None:
    """librdkafka's default limits are a million bytes for sending and 100 million for reading."""
    log.topics.create(topic, settings={"max.message.bytes": 104_857_600})
    largest = LARGE * 41
    with Producer(log.address, compression="none") as producer:
        producer.send(topic, largest)

    assert log.values(topic) == [largest]
