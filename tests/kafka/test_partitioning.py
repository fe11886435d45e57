from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.oracles.murmur2_oracle import java_hash, java_partition

from millstream.errors import InvalidInput, UserCodeFailed
from millstream.kafka.clients.producing.producer import Producer
from millstream.kafka.partitioning import chooser, partition_of

if TYPE_CHECKING:
    from tests.kafka.shortly import Log

# From Kafka's own UtilsTest.testMurmur2.
VECTORS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


def test_the_oracle_agrees_with_kafkas_test_vectors() -> None:
    assert {key: java_hash(key) for key in VECTORS} == VECTORS


@given(st.binary(max_size=40), st.integers(1, 200))
def test_a_key_goes_to_the_partition_that_the_java_client_chooses(
    key: bytes, partitions: int
) -> None:
    assert partition_of(key, partitions) == java_partition(key, partitions)


def test_records_are_stored_in_the_partition_that_the_java_client_chooses(
    log: Log, topic: str
) -> None:
    log.topics.create(topic, partitions=7)
    keys = [*VECTORS, b"", *(b"key-%d" % i for i in range(200))]
    with Producer(log.address) as producer:
        producer.send_many(topic, keys, keys=keys)
        for key in keys:
            producer.send(topic, key, key=key)

    found = {(record.key, record.partition) for record in log.read(topic)}

    assert found == {(key, java_partition(key, 7)) for key in keys}


def test_records_without_a_key_are_distributed(log: Log, topic: str) -> None:
    log.topics.create(topic, partitions=3)
    with Producer(log.address) as producer:
        for _ in range(60):
            producer.send_many(topic, [b"x"] * 100)
            producer.flush()
            time.sleep(0.015)  # longer than records without a key stick to one partition

    assert {record.partition for record in log.read(topic)} == {0, 1, 2}


def test_round_robin_ignores_keys(log: Log, topic: str) -> None:
    log.topics.create(topic, partitions=3)
    with Producer(log.address, partitioner="round_robin") as producer:
        producer.send_many(topic, [b"a"] * 4, keys=[b"same"] * 4)
        producer.send(topic, b"b", key=b"same")

    placed = [record.partition for record in log.read(topic)]

    assert sorted(placed) == [0, 0, 1, 1, 2]


def test_a_user_partitioner_gets_the_bytes_of_the_key_and_the_partition_count(
    log: Log, topic: str
) -> None:
    log.topics.create(topic, partitions=4)
    seen = []

    def by_length(key: bytes | None, partitions: int) -> int:
        seen.append((key, partitions))
        return len(key or b"") % partitions

    with Producer(log.address, partitioner=by_length) as producer:
        producer.send(topic, b"v", key="four")
        producer.send(topic, b"v")
        producer.send_many(topic, [b"v", b"v"], keys=["a", b"abc"])

    assert seen == [(b"four", 4), (None, 4), (b"a", 4), (b"abc", 4)]
    assert {(record.key, record.partition) for record in log.read(topic)} == {
        (b"four", 0),
        (None, 0),
        (b"a", 1),
        (b"abc", 3),
    }


def test_crc32_keeps_a_key_in_one_partition(log: Log, topic: str) -> None:
    log.topics.create(topic, partitions=5)
    keys = [b"key-%d" % (i % 20) for i in range(200)]
    with Producer(log.address, partitioner="crc32") as producer:
        producer.send_many(topic, keys, keys=keys)

    places = {(record.key, record.partition) for record in log.read(topic)}

    assert len(places) == 20


@pytest.mark.parametrize("chosen", [3, -1, True, "1", None, 1.0])
def test_a_partitioner_that_returns_no_valid_partition_is_refused(chosen: object) -> None:
    choose = chooser(lambda _key, _count: chosen)  # type: ignore[arg-type, return-value]
    assert choose is not None

    with pytest.raises(InvalidInput, match="partitioner needs to return"):
        choose(b"k", 3)


def test_a_partitioner_that_raises_is_named_with_its_key() -> None:
    choose = chooser(lambda _key, count: 1 // (count - count))
    assert choose is not None

    with pytest.raises(UserCodeFailed, match=r"ZeroDivisionError.*b'k'"):
        choose(b"k", 3)


def test_an_unknown_partitioner_is_refused() -> None:
    with pytest.raises(InvalidInput, match="murmur3"):
        chooser("murmur3")  # type: ignore[arg-type]
