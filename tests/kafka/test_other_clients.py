"""Groups with members of other Kafka clients, which use their default settings."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import pytest
from confluent_kafka import Consumer as Plain
from tests.kafka.shortly import eventually

from millstream.errors import InvalidInput, MillstreamError
from millstream.kafka.clients.producing.producer import Producer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kafka.shortly import Log

    from millstream.kafka.clients.consuming.consumer import Consumer

PARTITIONS = 4
EACH = 50


class Member:
    """A member that reads in a separate thread."""

    def __init__(self) -> None:
        self.seen: set[tuple[int, int]] = set()
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self.read)

    def read(self) -> None:
        raise NotImplementedError

    def owns(self) -> set[int]:
        raise NotImplementedError


class PlainMember(Member):
    """confluent-kafka with default settings."""

    def __init__(self, address: str, topic: str) -> None:
        super().__init__()
        self.owned: set[int] = set()
        self.client = Plain({"bootstrap.servers": address, "group.id": topic,
                             "auto.offset.reset": "earliest"})  # fmt: skip
        self.client.subscribe([topic])

    def read(self) -> None:
        while not self.stopping.is_set():
            message = self.client.poll(0.1)
            self.owned = {part.partition for part in self.client.assignment()}
            if message is not None and message.error() is None:
                self.seen.add((message.partition(), message.offset()))  # type: ignore[arg-type]
        self.client.close()

    def owns(self) -> set[int]:
        return self.owned


class OurMember(Member):
    """Millstream's consumer."""

    def __init__(self, consumer: Consumer) -> None:
        super().__init__()
        self.consumer = consumer

    def read(self) -> None:
        with self.consumer:
            for record in self.consumer:
                self.seen.add((record.partition, record.offset))

    def owns(self) -> set[int]:
        return {partition for _, partition in self.consumer.assignment()}


@contextmanager
def reading(member: Member) -> Iterator[Member]:
    member.thread.start()
    try:
        yield member
    finally:
        member.stopping.set()
        if isinstance(member, OurMember):
            member.consumer.stop()
        member.thread.join()


def fill(log: Log, topic: str, *, partitions: int = PARTITIONS, each: int = EACH) -> None:
    with Producer(log.address) as producer:
        for number in range(each * partitions):
            producer.send(topic, b"v", partition=number % partitions)


@pytest.mark.parametrize("ours_first", [True, False], ids=["ours first", "theirs first"])
@pytest.mark.parametrize("assignor", ["range", "roundrobin"])
def test_a_librdkafka_member_with_default_settings_shares_the_partitions(
    log: Log, topic: str, assignor: Literal["range", "roundrobin"], ours_first: bool
) -> None:
    log.topics.create(topic, partitions=PARTITIONS)

    def ours() -> Member:
        return OurMember(log.consumer(topic, group=topic, assignor=assignor))

    def theirs() -> Member:
        return PlainMember(log.address, topic)

    begin, join = (ours, theirs) if ours_first else (theirs, ours)
    everything = {(partition, offset) for partition in range(PARTITIONS)
                  for offset in range(2 * EACH)}  # fmt: skip
    with reading(begin()) as first:
        assert eventually(lambda: len(first.owns()) == PARTITIONS)
        fill(log, topic)
        assert eventually(lambda: len(first.seen) == EACH * PARTITIONS)
        with reading(join()) as second:
            assert eventually(lambda: len(first.owns()) == len(second.owns()) == 2)
            fill(log, topic)
            assert eventually(lambda: first.seen | second.seen == everything)
            assert len(second.seen) == EACH * PARTITIONS // 2
        assert eventually(lambda: len(first.owns()) == PARTITIONS)
    assert log.topics.group(topic).lag == 0


@pytest.mark.parametrize("assignor", [None, "range"])
def test_members_without_a_common_assignor_get_an_error_that_names_one(
    log: Log, topic: str, assignor: Literal["range"] | None
) -> None:
    log.topics.create(topic, partitions=2)
    other = OurMember(log.consumer(topic, group=topic)) if assignor else PlainMember(
        log.address, topic)  # fmt: skip
    ours, wanted = "cooperative-sticky", "range"
    if assignor:
        ours, wanted = "range, roundrobin", "cooperative-sticky"
    message = rf'{ours}; create this consumer with assignor="{wanted}"'
    with reading(other):
        assert eventually(lambda: len(other.owns()) == 2)
        consumer = log.consumer(topic, group=topic, assignor=assignor)
        with pytest.raises(MillstreamError, match=message) as raised:
            next(iter(consumer))
        assert f"the members of the group {topic} need" in str(raised.value)
        consumer.stop()
        consumer.close()


def test_a_member_with_an_eager_assignor_can_seek(log: Log, topic: str) -> None:
    log.topics.create(topic, partitions=2)
    fill(log, topic, partitions=2, each=200)
    with log.consumer(topic, group=topic, assignor="range", until_end=True) as consumer:
        seen: list[tuple[int, int]] = []
        for record in consumer:
            seen.append((record.partition, record.offset))
            if len(seen) == 10:
                consumer.seek(topic, record.partition, record.offset)
    assert sorted(set(seen)) == [(p, o) for p in (0, 1) for o in range(200)]
    assert len(seen) == 401
    assert log.topics.group(topic).lag == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"assignor": "sticky", "group": "g"}, "assignor needs one of .* got 'sticky'"),
        ({"assignor": "range"}, "assignor= needs a group"),
        ({"settings": {"partition.assignment.strategy": "range"}}, "set by assignor="),
    ],
)
def test_an_invalid_assignor_is_refused(
    log: Log, topic: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        log.consumer(topic, **options)


def test_seeking_in_one_partition_duplicates_no_records_of_others(log: Log, topic: str) -> None:
    """Records fetched of them are delivered once, also those kept while paused."""
    log.topics.create(topic, partitions=3)
    fill(log, topic, partitions=3, each=300)
    seen: list[tuple[int, int]] = []
    with log.consumer(topic, until_end=True) as consumer:
        for record in consumer:
            seen.append((record.partition, record.offset))
            if len(seen) == 5:
                others = sorted({0, 1, 2} - {record.partition})
                consumer.pause(topic, others[0])
                consumer.seek(topic, record.partition, record.offset)
                consumer.resume(topic, others[0])
    assert len(seen) == 901
    assert len(set(seen)) == 900
