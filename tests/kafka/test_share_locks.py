"""Expired locks: releasing records late does not undo acknowledgements."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import (
    AcknowledgeType,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from tests.kafka.scripted import message

import millstream as ms
from millstream.kafka.clients.consuming.share_settings import ShareGroup
from millstream.kafka.librdkafka import Link

if TYPE_CHECKING:
    from collections.abc import Callable

ACCEPT, RELEASE = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE


class Clock:
    """A clock that a test sets."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


class Queue:
    """A client whose cluster refuses a whole request if it releases records late."""

    def __init__(self, clock: Clock, *offsets: int) -> None:
        self._clock, self._offsets = clock, offsets
        self._unsent: list[tuple[int, AcknowledgeType]] = []
        self.requests: list[list[tuple[int, AcknowledgeType]]] = []
        self.ended: Callable[[], None] = lambda: None

    def subscribe(self, topics: list[str]) -> None: ...

    def close(self) -> None: ...

    def poll(self, wait: float) -> list[Message]:
        found, self._offsets = self._offsets, ()
        if not found:
            self.ended()
        return [message(0, offset) for offset in found]

    def acknowledge(self, record: Message, how: AcknowledgeType) -> None:
        self._unsent.append((record.offset() or 0, how))

    def commit_sync(self, timeout: float) -> dict[TopicPartition, KafkaException | None]:
        request, self._unsent = self._unsent, []
        self.requests.append(request)
        refused = KafkaException(KafkaError(KafkaError.INVALID_RECORD_STATE))
        late = self._clock.now > 1 and any(how == RELEASE for _, how in request)
        return {TopicPartition("t", 0): refused if late else None}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("millstream.kafka.clients.consuming.share_consumer.time", clock)
    return clock


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> Queue:
    """Three records fetched at once and locked for a second."""
    client = Queue(clock, 0, 1, 2)
    monkeypatch.setattr("millstream.kafka.clients.consuming.share_consumer.slots_of", lambda *_: [])
    monkeypatch.setattr(
        "millstream.kafka.clients.consuming.share_consumer.apply_settings",
        lambda *_: ShareGroup(1.0, 5),
    )
    monkeypatch.setattr(Link, "share_consumer", lambda *_: client)
    return client


def test_after_an_exception_expired_records_are_released_in_a_separate_request(
    queue: Queue, clock: Clock
) -> None:
    def fail() -> None:
        with ms.ShareConsumer("t", group="g", kafka="127.0.0.1:1") as consumer:
            for record in consumer:
                if record.offset == 1:
                    clock.now = 1.5
                    raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()

    assert queue.requests == [[(0, ACCEPT)], [(1, RELEASE), (2, RELEASE)]]


def test_in_the_loop_expired_records_are_released_in_a_separate_request(
    queue: Queue, clock: Clock
) -> None:
    with ms.ShareConsumer("t", group="g", kafka="127.0.0.1:1") as consumer:
        queue.ended = consumer.stop
        for record in consumer:
            clock.now = 0.9 if record.offset == 0 else 1.1

    assert queue.requests == [[(0, ACCEPT)], [(1, ACCEPT)], [(2, RELEASE)]]


def test_closing_acknowledges_processed_records_before_it_releases_the_rest(
    queue: Queue,
) -> None:
    with ms.ShareConsumer("t", group="g", kafka="127.0.0.1:1") as consumer:
        next(iter(consumer))

    assert queue.requests == [[(0, ACCEPT)], [(1, RELEASE), (2, RELEASE)]]
