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
    """So many records, each done when the next is asked for."""
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


def test_members_share_all_records_and_each_goes_to_one(log: Log, filled: str) -> None:
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


def test_a_released_record_comes_again_counted_and_a_rejected_one_never(
    log: Log, filled: str
) -> None:
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


def test_what_was_done_never_comes_again_and_what_was_not_handed_out_does(
    log: Log, filled: str
) -> None:
    with queue(log, filled) as consumer:
        done = {record.value for record in take(consumer, 5)}
    with queue(log, filled) as consumer:
        rest = [record.value for record in take(consumer, 15)]

    assert done | set(rest) == set(numbers(20))


def test_an_exception_gives_the_record_back(log: Log, filled: str) -> None:
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


def test_a_worker_that_dies_with_a_record_leaves_it_to_another(log: Log, filled: str) -> None:
    with queue(log, filled, lock="3 seconds") as consumer:
        assert consumer.lock == 3
    with subprocess.Popen(
        [sys.executable, "-c", WORKER, log.address, filled], stdout=subprocess.PIPE, text=True
    ) as worker:
        assert worker.stdout is not None
        held = worker.stdout.readline().strip().encode()
        os.kill(worker.pid, signal.SIGKILL)
    with queue(log, filled) as consumer:
        got = take(consumer, 20)

    came = {record.value: record.deliveries for record in got}
    assert set(came) == set(numbers(20))
    assert came[held] >= 2


def test_a_slow_record_blocks_no_other(log: Log, topic: str) -> None:
    log.topics.create(topic)
    for value in numbers(5):
        log.fill(topic, [value])
    with queue(log, topic, most=1) as slow:
        [held] = take(slow, 1)
        with queue(log, topic, most=1) as quick:
            others = [record.value for record in take(quick, 4)]

    assert {held.value, *others} == set(numbers(5))


def test_work_that_outlasts_the_lock_is_told_and_comes_again(log: Log, topic: str) -> None:
    log.topics.create(topic)
    log.fill(topic, [b"slow"])
    with queue(log, topic, lock="2 seconds") as consumer:
        [record] = take(consumer, 1)
        time.sleep(4)
        with pytest.raises(MillstreamError, match=r"within 2 s; got a lock that had run out"):
            consumer.acknowledge(record)
        [again] = take(consumer, 1)

    assert again.value == b"slow"
    assert again.deliveries > record.deliveries


def test_without_the_word_of_the_cluster_work_is_done_twice_in_silence(
    log: Log, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guard of the test above, switched off: the refusal of an acknowledgement is told."""
    log.topics.create(topic)
    log.fill(topic, [b"slow"])
    with queue(log, topic, lock="2 seconds") as consumer:
        monkeypatch.setattr(consumer, "_send", lambda: consumer._client.commit_sync(4.0))
        [record] = take(consumer, 1)
        time.sleep(4)
        consumer.acknowledge(record)
        [again] = take(consumer, 1)

    assert (record.value, again.value) == (b"slow", b"slow")


def test_a_record_is_handed_out_so_often_and_no_more(log: Log, topic: str) -> None:
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


def test_a_new_group_begins_where_it_is_told(log: Log, topic: str) -> None:
    log.topics.create(topic)
    log.fill(topic, [b"old"])
    with queue(log, topic, start="end") as consumer:
        came = threading.Event()

        def send() -> None:
            while not came.wait(0.5):
                log.fill(topic, [b"new"])

        sender = threading.Thread(target=send)
        sender.start()
        try:
            [record] = take(consumer, 1)
        finally:
            came.set()
            sender.join()

    assert record.value == b"new"


def test_records_of_aborted_transactions_are_not_handed_out(log: Log, topic: str) -> None:
    log.topics.create(topic)
    with ms.Producer(log.address, transactional_id=topic) as producer:
        with pytest.raises(ZeroDivisionError), producer.transaction():  # noqa: PT012
            producer.send(topic, b"taken back")
            raise ZeroDivisionError
        with producer.transaction():
            producer.send(topic, b"good")
    with queue(log, topic) as consumer:
        [record] = take(consumer, 1)

    assert record.value == b"good"


def test_only_the_record_in_hand_can_be_settled_and_once(log: Log, filled: str) -> None:
    with queue(log, filled) as consumer:
        first, second = take(consumer, 2)
        with pytest.raises(InvalidInput, match="handed out last"):
            consumer.acknowledge(first)
        consumer.acknowledge(second)
        with pytest.raises(InvalidInput, match="handed out last"):
            consumer.release(second)
    with pytest.raises(InvalidInput, match="a closed one"):
        next(iter(consumer))
    consumer.close()


def test_a_loop_can_be_stopped_from_elsewhere(log: Log, topic: str) -> None:
    log.topics.create(topic)
    with queue(log, topic) as consumer:
        consumer.stop()
        assert list(consumer) == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"group": ""}, "a group needs a name"),
        ({"start": "yesterday"}, 'start needs "start" or "end"'),
        ({"attempts": 0}, "attempts needs a whole number from 1 on; got 0"),
        ({"most": 0}, "most needs a whole number from 1 on; got 0"),
        ({"lock": "1 ms"}, r"group setting share\.record\.lock.* at least 1000"),
        ({"isolation": "none"}, "isolation needs"),
        ({"settings": {"group.id": "x"}}, "left to group="),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(
    log: Log, topic: str, options: dict[str, Any], said: str
) -> None:
    log.topics.create(topic)
    with pytest.raises((InvalidInput, InvalidSpec), match=said):
        queue(log, topic, **options)


def test_a_topic_that_is_not_there_is_named(log: Log) -> None:
    with pytest.raises(NotFound, match="the topic no-such does not exist"):
        queue(log, "no-such")


def test_a_broker_that_is_not_there_is_told() -> None:
    with pytest.raises(MillstreamError, match="refused"):
        ms.ShareConsumer("t", group="g", kafka="127.0.0.1:1")
