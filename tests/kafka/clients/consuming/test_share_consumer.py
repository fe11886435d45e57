"""A queue: one record, one member, one acknowledgement."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

import millstream as ms
from millstream.errors import InvalidInput, InvalidSpec, MillstreamError, NotFound

if TYPE_CHECKING:
    from tests.kafka.shortly import Log

    from millstream.kafka.clients.consuming.share_consumer import SharedRecord

WORKER = """
import sys, time
import millstream as ms
with ms.ShareConsumer(sys.argv[2], group=sys.argv[2], kafka=sys.argv[1], most=1) as queue:
    for record in queue:
        print(record.value.decode(), flush=True)
        time.sleep(600)
"""


def queue(log: Log, topic: str, **options: Any) -> ms.ShareConsumer:
    return ms.ShareConsumer(topic, **{"group": topic, "kafka": log.address, **options})


def numbers(count: int) -> list[bytes]:
    return [f"{number:04}".encode() for number in range(count)]


def take(consumer: ms.ShareConsumer, count: int) -> list[SharedRecord]:
    """Read `count` records; each is acknowledged when the next one is requested."""
    found = []
    for record in consumer:
        found.append(record)
        if len(found) == count:
            break
    return found


@pytest.fixture
def filled(log: Log, topic: str) -> str:
    """A queue of twenty records on two partitions."""
    log.topics.create(topic, partitions=2)
    log.fill(topic, numbers(20), linger="0 ms")
    return topic


def test_each_record_is_delivered_to_one_member(log: Log, filled: str) -> None:
    members = [queue(log, filled) for _ in range(2)]
    seen: list[bytes | None] = []

    def work(member: ms.ShareConsumer) -> None:
        with member:
            for record in member:
                seen.append(record.value)
                if len(seen) >= 20:
                    break
        for other in members:
            other.stop()

    with ThreadPoolExecutor() as pool:
        list(pool.map(work, members))

    assert Counter(seen) == Counter(numbers(20))


def test_a_released_record_is_redelivered_and_a_rejected_one_is_not(log: Log, filled: str) -> None:
    seen: list[tuple[bytes | None, int]] = []
    with queue(log, filled) as consumer:
        for record in consumer:
            seen.append((record.value, record.deliveries))
            if seen[-1] == (b"0003", 1):
                consumer.release(record)
            elif record.value == b"0004":
                consumer.reject(record)
            elif record.value == b"0005":
                consumer.acknowledge(record)
            if len(seen) == 21:
                break

    assert Counter(seen) == Counter([*((value, 1) for value in numbers(20)), (b"0003", 2)])


def test_acknowledged_records_are_not_redelivered_and_fetched_ones_are_released(
    log: Log, filled: str
) -> None:
    with queue(log, filled) as consumer:
        done = {record.value for record in take(consumer, 5)}
    with queue(log, filled) as consumer:
        rest = [record.value for record in take(consumer, 15)]

    assert done | set(rest) == set(numbers(20))


def test_an_exception_releases_the_record(log: Log, filled: str) -> None:
    failed: list[bytes | None] = []

    def fail() -> None:
        with queue(log, filled) as consumer:
            for record in consumer:
                failed.append(record.value)
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with queue(log, filled) as consumer:
        again = {record.value: record.deliveries for record in take(consumer, 20)}

    assert again[failed[0]] == 2


def test_the_record_of_a_dead_member_goes_to_another(log: Log, filled: str) -> None:
    with queue(log, filled, lock="3 seconds") as consumer:
        assert consumer.lock == 3
    with subprocess.Popen(
        [sys.executable, "-c", WORKER, log.address, filled], stdout=subprocess.PIPE, text=True
    ) as worker:
        assert worker.stdout is not None
        locked = worker.stdout.readline().strip().encode()
        os.kill(worker.pid, signal.SIGKILL)
    with queue(log, filled) as consumer:
        got = take(consumer, 20)

    deliveries = {record.value: record.deliveries for record in got}
    assert set(deliveries) == set(numbers(20))
    assert deliveries[locked] >= 2


def test_a_slow_record_does_not_block_others(log: Log, topic: str) -> None:
    log.topics.create(topic)
    for value in numbers(5):
        log.fill(topic, [value])
    with queue(log, topic, most=1) as slow:
        [first] = take(slow, 1)
        with queue(log, topic, most=1) as quick:
            others = [record.value for record in take(quick, 4)]

    assert {first.value, *others} == set(numbers(5))


def test_acknowledging_after_the_lock_expired_raises_and_the_record_is_redelivered(
    log: Log, topic: str
) -> None:
    log.topics.create(topic)
    log.fill(topic, [b"slow"])
    with queue(log, topic, lock="2 seconds") as consumer:
        [record] = take(consumer, 1)
        time.sleep(4)
        with pytest.raises(MillstreamError, match=r"within 2 s; got a lock that has expired"):
            consumer.acknowledge(record)
        [again] = take(consumer, 1)

    assert again.value == b"slow"
    assert again.deliveries > record.deliveries


def test_without_the_check_of_the_response_a_record_is_processed_twice_silently(
    log: Log, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shows that the test above depends on reading the response to acknowledgements."""
    log.topics.create(topic)
    log.fill(topic, [b"slow"])
    with queue(log, topic, lock="2 seconds") as consumer:
        monkeypatch.setattr(consumer, "_send", lambda: consumer._client.commit_sync(4.0))
        [record] = take(consumer, 1)
        time.sleep(4)
        consumer.acknowledge(record)
        [again] = take(consumer, 1)

    assert (record.value, again.value) == (b"slow", b"slow")


def test_a_record_is_delivered_at_most_attempts_times(log: Log, topic: str) -> None:
    log.topics.create(topic)
    log.fill(topic, [b"poison", b"good"])
    seen: list[tuple[bytes | None, int]] = []
    with queue(log, topic, attempts=2) as consumer:
        assert consumer.attempts == 2
        for record in consumer:
            seen.append((record.value, record.deliveries))
            if record.value == b"poison":
                consumer.release(record)
            if len(seen) == 3:
                log.fill(topic, [b"last"])
            if record.value == b"last":
                break

    assert Counter(seen) == Counter([(b"poison", 1), (b"poison", 2), (b"good", 1), (b"last", 1)])


def test_a_new_group_begins_at_start(log: Log, topic: str) -> None:
    log.topics.create(topic)
    log.fill(topic, [b"old"])
    with queue(log, topic, start="end") as consumer:
        received = threading.Event()

        def send() -> None:
            while not received.wait(0.5):
                log.fill(topic, [b"new"])

        sender = threading.Thread(target=send)
        sender.start()
        try:
            [record] = take(consumer, 1)
        finally:
            received.set()
            sender.join()

    assert record.value == b"new"


def test_records_of_aborted_transactions_are_not_delivered(log: Log, topic: str) -> None:
    log.topics.create(topic)
    with ms.Producer(log.address, transactional_id=topic) as producer:
        with pytest.raises(ZeroDivisionError), producer.transaction():  # noqa: PT012
            producer.send(topic, b"aborted")
            raise ZeroDivisionError
        with producer.transaction():
            producer.send(topic, b"good")
    with queue(log, topic) as consumer:
        [record] = take(consumer, 1)

    assert record.value == b"good"


def test_only_the_last_record_can_be_acknowledged_and_once(log: Log, filled: str) -> None:
    with queue(log, filled) as consumer:
        first, second = take(consumer, 2)
        with pytest.raises(InvalidInput, match="the last record delivered"):
            consumer.acknowledge(first)
        consumer.acknowledge(second)
        with pytest.raises(InvalidInput, match="the last record delivered"):
            consumer.release(second)
    with pytest.raises(InvalidInput, match="a closed one"):
        next(iter(consumer))
    consumer.close()


def test_stop_ends_the_loop(log: Log, topic: str) -> None:
    log.topics.create(topic)
    with queue(log, topic) as consumer:
        consumer.stop()
        assert list(consumer) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"group": ""}, "a group needs a name"),
        ({"start": "yesterday"}, 'start needs "start" or "end"'),
        ({"attempts": 0}, "attempts needs a whole number from 1 on; got 0"),
        ({"most": 0}, "most needs a whole number from 1 on; got 0"),
        ({"lock": "1 ms"}, r"group setting share\.record\.lock.* at least 1000"),
        ({"isolation": "none"}, "isolation needs"),
        ({"settings": {"group.id": "x"}}, "set by group="),
    ],
)
def test_an_invalid_option_is_refused(
    log: Log, topic: str, options: dict[str, Any], message: str
) -> None:
    log.topics.create(topic)
    with pytest.raises((InvalidInput, InvalidSpec), match=message):
        queue(log, topic, **options)


def test_a_missing_topic_is_named(log: Log) -> None:
    with pytest.raises(NotFound, match="the topic no-such does not exist"):
        queue(log, "no-such")


def test_a_broker_that_is_down_raises() -> None:
    with pytest.raises(MillstreamError, match="refused"):
        ms.ShareConsumer("t", group="g", kafka="127.0.0.1:1")
