from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from tests.kafka.shortly import eventually

from millstream.errors import AlreadyRunning, DataGone, InvalidInput, MillstreamError, NotFound
from millstream.kafka.clients.producing.producer import Producer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kafka.shortly import Log

    from millstream.kafka.clients.consuming.consumer import Consumer

MEMBER = """
import os
import sys

from millstream.kafka.clients.consuming.consumer import Consumer

address, topic, group = sys.argv[1:]
settings = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 500}
consumer = Consumer(topic, kafka=address, group=group, commit="manual", settings=settings)
for record in consumer:
    os.write(1, b"%d %d %s\\n" % (record.partition, record.offset, record.value))
    consumer.commit()
"""


class Committed(NamedTuple):
    """A record that a member has read and committed, as it printed it."""

    partition: int
    offset: int
    value: str

    @classmethod
    def parse(cls, line: str) -> Committed:
        partition, offset, value = line.split()
        return cls(int(partition), int(offset), value)


class Member:
    """A member of a group in a separate process, which prints what it commits."""

    def __init__(self, log: Log, topic: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", MEMBER, log.address, topic, topic],
            stdout=subprocess.PIPE,
            text=True,
        )
        self.lines: list[str] = []
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._listener.join()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def members(log: Log, topic: str) -> Iterator[list[Member]]:
    log.topics.create(topic, partitions=6)
    started = [Member(log, topic) for _ in range(3)]
    yield started
    for member in started:
        member.kill()


def shares(log: Log, group: str) -> list[int]:
    """How many partitions each member has, once the group is stable."""
    try:
        found = log.topics.group(group)
    except NotFound:
        return []
    return sorted(len(it.partitions) for it in found.members) if found.state == "stable" else []


def test_when_one_of_three_members_is_killed_the_others_take_over(
    log: Log, topic: str, members: list[Member]
) -> None:
    eventually(lambda: shares(log, topic) == [2, 2, 2], within=60)
    log.fill(topic, [b"%d" % i for i in range(1_200)], partitioner="round_robin")
    eventually(lambda: len(members[0].lines) > 20)
    members[0].kill()
    killed = [Committed.parse(line) for line in members[0].lines]
    committed = {it.partition: it.committed or 0 for it in log.topics.group(topic).partitions}

    eventually(lambda: shares(log, topic) == [3, 3], within=40)
    eventually(lambda: sum(log.topics.lag(topic).values()) == 0, within=60)

    survived = [Committed.parse(line) for member in members[1:] for line in member.lines]
    taken_over = {it.partition for it in killed}
    again = [
        it for it in survived if it.partition in taken_over and it.offset < committed[it.partition]
    ]
    assert again == [], "records that the dead member had committed were redelivered"
    values = Counter(it.value for it in [*killed, *survived])
    assert set(values) == {str(i) for i in range(1_200)}, "something was lost"
    assert sum(values.values()) - 1_200 <= len(taken_over), (
        "more than the uncommitted records were redelivered"
    )
    assert len(killed) < 1_200


def test_uncommitted_records_of_a_dead_member_are_redelivered(log: Log, topic: str) -> None:
    log.topics.create(topic)
    log.fill(topic, [b"1", b"2", b"3", b"4"])
    quick = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 500}
    zombie = log.consumer(topic, group=topic, commit="manual", settings=quick)
    records = iter(zombie)
    assert [next(records).value, next(records).value] == [b"1", b"2"]
    zombie.commit()
    assert next(records).value == b"3"

    with log.consumer(topic, group=topic, settings=quick) as heir:
        zombie.close()
        assert [next(iter(heir)).value for _ in range(2)] == [b"3", b"4"]


def test_members_without_a_partition_are_idle_and_log_it(
    log: Log, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    log.topics.create(topic, partitions=2)
    with ExitStack() as stack:
        consumers = [stack.enter_context(log.consumer(topic, group=topic)) for _ in range(3)]
        _run(stack, consumers)
        eventually(lambda: shares(log, topic) == [0, 1, 1], within=40)
        found = log.topics.group(topic)

        assert [member.idle for member in found.idle] == [True]
        assert len(found.members) == 3
        eventually(lambda: [it.idle for it in consumers].count(True) == 1)
        assert sorted(len(it.assignment()) for it in consumers) == [0, 1, 1]
    assert "a group member is idle" in caplog.text


def _run(stack: ExitStack, consumers: list[Consumer]) -> None:
    def read(consumer: Consumer) -> None:
        for _ in consumer:
            pass

    threads = [threading.Thread(target=read, args=(it,)) for it in consumers]
    for thread in threads:
        thread.start()

    def stop() -> None:
        for consumer in consumers:
            consumer.stop()
        for thread in threads:
            thread.join(timeout=20)

    stack.callback(stop)


def test_every_group_gets_every_record(log: Log, topic: str) -> None:
    log.topics.create(topic, partitions=3)
    values = [b"%d" % i for i in range(100)]
    log.fill(topic, values, partitioner="round_robin")

    for group in (f"{topic}-a", f"{topic}-b"):
        assert sorted(map(str, log.values(topic, group=group))) == sorted(map(str, values))


def test_a_group_continues_where_it_was(log: Log, topic: str) -> None:
    log.topics.create(topic)
    log.fill(topic, [b"%d" % i for i in range(5)])

    assert log.values(topic, group=topic) == [b"%d" % i for i in range(5)]
    assert log.values(topic, group=topic) == []
    log.fill(topic, [b"5"])
    assert log.values(topic, group=topic) == [b"5"]


def test_after_an_exception_the_record_is_redelivered_and_after_a_break_it_is_not(
    log: Log, topic: str
) -> None:
    log.topics.create(topic)
    log.fill(topic, [b"0", b"1", b"2", b"3"])

    def fail_at(value: bytes) -> None:
        with log.consumer(topic, group=topic) as consumer:
            for record in consumer:
                if record.value == value:
                    raise KeyError

    with pytest.raises(KeyError):
        fail_at(b"2")
    with log.consumer(topic, group=topic) as consumer:
        assert next(iter(consumer)).value == b"2"
    with log.consumer(topic, group=topic) as consumer:
        assert next(iter(consumer)).value == b"3"


def test_after_an_exception_the_batch_is_redelivered(log: Log, topic: str) -> None:
    log.topics.create(topic, partitions=2)
    log.fill(topic, [b"%d" % i for i in range(10)], partitioner="round_robin")

    def fail() -> None:
        with log.consumer(topic, group=topic) as consumer:
            batches = consumer.batches(rows=4, wait="5 seconds")
            next(batches)
            next(batches)
            raise KeyError

    with pytest.raises(KeyError):
        fail()

    assert len(log.values(topic, group=topic)) == 6


def test_processed_records_are_committed_automatically(log: Log, topic: str) -> None:
    log.topics.create(topic)
    log.fill(topic, [b"%d" % i for i in range(10)])
    with log.consumer(topic, group=topic) as consumer:
        records = iter(consumer)
        next(records)
        next(records)
        time.sleep(1.1)
        next(records)

        assert eventually(lambda: consumer.committed() == {(topic, 0): 2})


def test_a_manual_group_commits_only_on_request(log: Log, topic: str) -> None:
    log.topics.create(topic)
    log.fill(topic, [b"0", b"1", b"2"])
    with log.consumer(topic, group=topic, commit="manual") as consumer:
        records = iter(consumer)
        next(records)
        assert consumer.committed() == {(topic, 0): None}
        consumer.commit()
        assert consumer.committed() == {(topic, 0): 1}
        next(records)

    assert log.values(topic, group=topic, commit="manual") == [b"1", b"2"]


@pytest.mark.parametrize(("start", "first"), [("start", 0), ("end", 3), ({0: 1}, 1)])
def test_a_new_group_begins_at_start_and_an_existing_one_continues(
    log: Log, topic: str, start: Any, first: int
) -> None:
    log.topics.create(topic)
    log.fill(topic, [b"0", b"1", b"2"])

    assert log.values(topic, group=topic, start=start) == [b"0", b"1", b"2"][first:]
    log.fill(topic, [b"3"])
    assert log.values(topic, group=topic, start="end") == [b"3"]


def test_a_member_that_takes_over_begins_where_the_new_group_began(log: Log, topic: str) -> None:
    log.topics.create(topic)
    log.fill(topic, [b"old"])
    with log.consumer(topic, group=topic, start="end", commit="manual", until_end=True) as first:
        assert list(first) == []
    log.fill(topic, [b"between"])

    assert log.values(topic, group=topic, start="end") == [b"between"]


def test_a_member_that_seeks_stays_in_its_group(log: Log, topic: str) -> None:
    log.topics.create(topic, partitions=2)
    log.fill(topic, [b"%d" % i for i in range(20)], partitioner=lambda _key, _count: 1)
    with log.consumer(topic, group=topic) as consumer:
        records = iter(consumer)
        assert [next(records).value for _ in range(5)][-1] == b"4"
        for _ in range(3):
            consumer.seek(topic, 1, 2)
            assert [next(records).value, next(records).value] == [b"2", b"3"]
            consumer.seek_to("start")
            assert next(records).value == b"0"
        log.topics.truncate(topic, {1: 10})
        consumer.seek_to("start")
        assert next(records).value == b"10"
        member = log.topics.group(topic).members[0]
        assert member.partitions == ((topic, 0), (topic, 1))
        assert len(consumer.assignment()) == 2

    assert log.values(topic, group=topic) == [b"%d" % i for i in range(11, 20)]


def test_lag_is_the_end_minus_the_committed_offset(log: Log, topic: str) -> None:
    log.topics.create(topic, partitions=3)
    with Producer(log.address) as producer:
        for partition, count in enumerate((5, 3, 2)):
            for _ in range(count):
                producer.send(topic, b"x", partition=partition)
    log.values(topic, group=topic)
    with Producer(log.address) as producer:
        for _ in range(4):
            producer.send(topic, b"x", partition=1)
    log.topics.reset_group(topic, topic, {2: 1})

    found = log.topics.group(topic)

    assert log.topics.lag(topic) == {(topic, 0): 0, (topic, 1): 4, (topic, 2): 1}
    assert (found.state, found.members, found.lag) == ("empty", (), 5)
    assert [(it.partition, it.committed, it.end, it.gone) for it in found.partitions] == [
        (0, 5, 5, 0),
        (1, 3, 7, 0),
        (2, 1, 2, 0),
    ]


def test_records_that_retention_removed_unread_are_counted(log: Log, topic: str) -> None:
    log.topics.create(topic, partitions=2)
    log.fill(topic, [b"x"] * 10, partitioner=lambda _key, _count: 0)
    log.values(topic, group=topic)
    log.topics.reset_group(topic, topic, {0: 2})
    log.topics.truncate(topic, {0: 6})

    first = log.topics.group(topic).partitions[0]

    assert (first.committed, first.earliest, first.gone, first.lag) == (2, 6, 4, 8)


def test_a_group_is_reset_to_a_position_a_time_or_offsets(log: Log, topic: str) -> None:
    log.topics.create(topic, partitions=2, settings={"retention.ms": -1})
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    with Producer(log.address) as producer:
        for minute in range(6):
            producer.send(
                topic, str(minute), partition=minute % 2, timestamp=noon + timedelta(minutes=minute)
            )
    log.values(topic, group=topic)

    def reset(to: Any) -> dict[int, tuple[int | None, int]]:
        return log.topics.reset_group(topic, topic, to)

    assert reset("start") == {0: (3, 0), 1: (3, 0)}
    assert reset(noon + timedelta(minutes=3)) == {0: (0, 2), 1: (0, 1)}
    assert reset({1: 2}) == {1: (1, 2)}
    assert reset(1) == {0: (2, 1), 1: (2, 1)}
    assert sorted(map(str, log.values(topic, group=topic))) == ["b'2'", "b'3'", "b'4'", "b'5'"]
    assert reset(timedelta(minutes=1)) == {0: (3, 3), 1: (3, 3)}
    assert reset("end") == {0: (3, 3), 1: (3, 3)}


def test_a_dry_run_returns_the_changes_and_makes_none(log: Log, topic: str) -> None:
    log.topics.create(topic)
    log.fill(topic, [b"x"] * 3)
    log.values(topic, group=topic)

    assert log.topics.reset_group(topic, topic, "start", dry_run=True) == {0: (3, 0)}
    assert log.topics.group(topic).partitions[0].committed == 3


def test_a_group_with_active_members_is_not_reset(log: Log, topic: str) -> None:
    log.topics.create(topic)
    log.fill(topic, [b"x"] * 3)
    with log.consumer(topic, group=topic) as consumer:
        next(iter(consumer))
        for dry_run in (False, True):
            with pytest.raises(AlreadyRunning, match=r"no active members; got 1: millstream at"):
                log.topics.reset_group(topic, topic, "start", dry_run=dry_run)


@pytest.mark.parametrize(
    ("to", "error", "message"),
    [
        ("middle", InvalidInput, "`to` needs .* got 'middle'"),
        (True, InvalidInput, "`to` needs .* got True"),
        (-1, InvalidInput, "offset from 0 on; got -1"),
        (9, InvalidInput, "up to its end, 3; got 9"),
        ({0: 0}, DataGone, "offset 0; got a log that begins at 1"),
        ({4: 0}, InvalidInput, "partitions 0 to 0; got an offset for partition 4"),
    ],
)
def test_an_offset_that_a_group_cannot_be_reset_to_is_refused(
    log: Log, topic: str, to: Any, error: type[MillstreamError], message: str
) -> None:
    log.topics.create(topic)
    log.fill(topic, [b"x"] * 3)
    log.values(topic, group=topic)
    log.topics.truncate(topic, {0: 1})

    with pytest.raises(error, match=message):
        log.topics.reset_group(topic, topic, to)
    assert log.topics.group(topic).partitions[0].committed == 3


def test_a_missing_group_is_reported_with_similar_names(log: Log, topic: str) -> None:
    log.topics.create(topic)
    log.fill(topic, [b"x"])
    log.values(topic, group=topic)

    assert topic in [group.name for group in log.topics.groups()]
    for call in (log.topics.group, log.topics.lag):
        with pytest.raises(NotFound, match=f"group {topic}s does not exist; did you mean {topic}"):
            call(f"{topic}s")
    with pytest.raises(NotFound, match="did you mean"):
        log.topics.reset_group(f"{topic}s", topic, "start")
    with pytest.raises(NotFound, match="the topic"):
        log.topics.reset_group(topic, f"{topic}s", "start")
    with pytest.raises(InvalidInput, match="a group needs a name; got ''"):
        log.topics.group("")


def test_a_commit_raises_after_the_partitions_were_reassigned(log: Log, topic: str) -> None:
    log.topics.create(topic)
    log.fill(topic, [b"x"] * 3)
    slow = {"max.poll.interval.ms": 6000, "session.timeout.ms": 6000}
    with log.consumer(topic, group=topic, commit="manual", settings=slow) as consumer:
        next(iter(consumer))
        eventually(lambda: shares(log, topic) == [], within=30)

        with pytest.raises(MillstreamError, match="a rebalance that assigned them to another"):
            consumer.commit()
