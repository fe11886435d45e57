"""Single records of a topic with all their parts, fetched from a real broker."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from tests.faults.appending import append
from tests.kafka.batch_writing import Whole, Written

from millstream.errors import DataGone
from millstream.kafka.admin.topics import Topics
from millstream.kafka.settings import Cluster
from millstream.sources.kafka.originals import fetch

if TYPE_CHECKING:
    from millstream.testing.local_broker import ThrowAwayBroker

PARTITIONS = 12


def filled(broker: ThrowAwayBroker, topic: str, *, each: int, partitions: int = PARTITIONS) -> None:
    Topics(broker.address).create(topic, partitions=partitions)
    producer = Producer({"bootstrap.servers": broker.address, "linger.ms": 20})
    for number in range(each):
        for partition in range(partitions):
            headers: Any = [("h", b"x"), ("none", None)] if number == 2 else None
            producer.produce(topic, b"%d of %d" % (number, partition), b"k%d" % number,
                             partition=partition, timestamp=1_000 + number,
                             headers=headers)  # fmt: skip
            producer.poll(0)
    producer.flush()


def places(found: Any) -> list[tuple[int, int]]:
    return list(zip(found["partition"].to_pylist(), found["offset"].to_pylist(), strict=True))


def test_one_record_from_each_of_many_partitions_is_fetched_without_a_wait_per_partition(
    broker: ThrowAwayBroker, topic: str
) -> None:
    filled(broker, topic, each=5)
    wanted = {partition: [2] for partition in range(PARTITIONS)}
    began = time.monotonic()
    found = fetch(Cluster(broker.address), topic, wanted)
    assert time.monotonic() - began < 3.0  # 12 s if each partition waits for a thousand rows
    assert places(found) == [(partition, 2) for partition in range(PARTITIONS)]
    assert found["value"].to_pylist() == [b"2 of %d" % p for p in range(PARTITIONS)]
    assert found["headers"].to_pylist()[0] == [{"key": "h", "value": b"x"},
                                               {"key": "none", "value": None}]  # fmt: skip


def test_records_are_returned_in_the_requested_order_across_long_gaps(
    broker: ThrowAwayBroker, topic: str
) -> None:
    filled(broker, topic, each=30_000, partitions=2)
    wanted = {1: [0, 1, 9_000, 29_999], 0: [3, 4_000, 14_000]}
    found = fetch(Cluster(broker.address), topic, wanted)
    assert places(found) == [(0, 3), (0, 4_000), (0, 14_000),
                             (1, 0), (1, 1), (1, 9_000), (1, 29_999)]  # fmt: skip
    assert found["key"].to_pylist()[-1] == b"k29999"


@pytest.mark.parametrize("more", [True, False], ids=["in the middle", "at the end"])
def test_an_offset_without_a_record_is_named_at_once(
    broker: ThrowAwayBroker, topic: str, more: bool
) -> None:
    """Offset 1 is a control record; a compacted record leaves the same gap."""
    Topics(broker.address).create(topic)
    producer = Producer({"bootstrap.servers": broker.address, "transactional.id": topic})
    producer.init_transactions()
    for _ in range(2 if more else 1):
        producer.begin_transaction()
        producer.produce(topic, b"one")
        producer.commit_transaction()
    began = time.monotonic()
    with pytest.raises(DataGone, match=rf"{topic}/0 at offset 1"):
        fetch(Cluster(broker.address), topic, {0: [0, 1]})
    assert time.monotonic() - began < 5.0


def test_records_deleted_from_the_log_are_named(broker: ThrowAwayBroker, topic: str) -> None:
    filled(broker, topic, each=5, partitions=1)
    Topics(broker.address).truncate(topic, before={0: 3})
    with pytest.raises(DataGone, match=rf"{topic}/0 at offset 1"):
        fetch(Cluster(broker.address), topic, {0: [1]})


def test_invalid_utf8_in_header_names_is_replaced(broker: ThrowAwayBroker, topic: str) -> None:
    Topics(broker.address).create(topic)
    few = (Written(0, b"v", b"k", 7, ((b"\xff", b"1"), (b"", None), (b"a\0b", b""))),)
    many = tuple(Written(n, b"v", None, 7, ((b"\xff", b"%d" % n),)) for n in range(100))
    for records in (few, many):
        append(broker, topic, Whole(0, records, "zstd", first_stamp=1_767_225_600_000))
    found = fetch(Cluster(broker.address), topic, {0: [0, 1, 90]})
    assert found["headers"].to_pylist() == [
        [
            {"key": "\ufffd", "value": b"1"},
            {"key": "", "value": None},
            {"key": "a\0b", "value": b""},
        ],
        [{"key": "\ufffd", "value": b"0"}],
        [{"key": "\ufffd", "value": b"89"}],
    ]
    assert found["timestamp"].cast("int64").to_pylist() == [1_767_225_600_007_000] * 3
