"""Groups whose members are other Kafka clients too, with the settings those have by default."""

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
    """A member that reads in a thread of its own."""

    def __init__(self) -> None:
        self.seen: set[tuple[int, int]] = set()
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.read)

    def read(self) -> None:
        raise NotImplementedError

    def owns(self) -> set[int]:
        raise NotImplementedError


class PlainMember(Member):
    """confluent-kafka, as its documentation begins."""

    def __init__(self, address: str, topic: str) -> None:
        super().__init__()
        self.owned: set[int] = set()
        self.client = Plain({"bootstrap.servers": address, "group.id": topic,
                             "auto.offset.reset": "earliest"})  # fmt: skip
        self.client.subscribe([topic])

    def read(self) -> None:
        while not self.over.is_set():
            message = self.client.poll(0.1)
            self.owned = {place.partition for place in self.client.assignment()}
            if message is not None and message.error() is None:
                self.seen.add((message.partition(), message.offset()))  # type: ignore[arg-type]
        self.client.close()

    def owns(self) -> set[int]:
        return self.owned


class OurMember(Member):
    """ours"""

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
        member.over.set()
        if isinstance(member, OurMember):
            member.consumer.stop()
        member.thread.join()


def fill(log: Log, topic: str, *, partitions: int = PARTITIONS, each: int = EACH) -> None:
    with Producer(log.address) as producer:
        for number in range(each * partitions):
            producer.send(topic, b"v", partition=number % partitions)


@pytest.mark.parametrize("ours_first", [True, False], ids=["ours first", "theirs first"])
@pytest.mark.parametrize("assignor", ["range", "roundrobin"])
def test_a_member_with_the_defaults_of_librdkafka_shares_the_work(
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
def test_members_without_an_assignor_in_common_are_told_what_to_do(
    log: Log, topic: str, assignor: Literal["range"] | None
) -> None:
    log.topics.create(topic, partitions=2)
    other = OurMember(log.consumer(topic, group=topic)) if assignor else PlainMember(
        log.address, topic)  # fmt: skip
    ours, wanted = "cooperative-sticky", "range"
    if assignor:
        ours, wanted = "range, roundrobin", "cooperative-sticky"
    said = rf'{ours}\); make this consumer with assignor="{wanted}"'
    with reading(other):
        assert eventually(lambda: len(other.owns()) == 2)
        consumer = log.consumer(topic, group=topic, assignor=assignor)
        with pytest.raises(MillstreamError, match=said) as raised:
            next(iter(consumer))
        assert f"the members of the group {topic} need" in str(raised.value)
        consumer.stop()
        consumer.close()


def test_a_member_that_gives_all_partitions_back_can_move_and_pause(log: Log, topic: str) -> None:
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
    ("options", "said"),
    [
        ({"assignor": "sticky", "group": "g"}, "assignor needs one of .* got 'sticky'"),
        ({"assignor": "range"}, "assignor= needs a group"),
        ({"settings": {"partition.assignment.strategy": "range"}}, "left to assignor="),
    ],
)
def test_an_assignor_that_cannot_be_is_refused(
    log: Log, topic: str, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidInput, match=said):
        log.consumer(topic, **options)


def test_moving_one_partition_doubles_nothing_of_the_others(log: Log, topic: str) -> None:
    """What was fetched of them and waits is handed out once; also what waits while paused."""
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
