"""Rebalances during a fetch lose and duplicate no records."""

from __future__ import annotations

import sqlite3
import threading
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from tests.kafka.scripted import ScriptedClient, message
from tests.kafka.shortly import eventually

from millstream.errors import Fenced
from millstream.kafka.clients.consuming.consumer import Consumer
from millstream.kafka.clients.consuming.stored_offsets import SqlOffsets
from millstream.kafka.clients.producing.producer import Producer
from millstream.kafka.librdkafka import Link

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from confluent_kafka import Message
    from tests.kafka.shortly import Log

    from millstream.kafka.positions import Slot

    Begin = Callable[..., Consumer]


def starts(_: Link, slots: Sequence[Slot], *_place: object) -> dict[Slot, int]:
    return dict.fromkeys(slots, 0)


def all_held(_: Link, slots: Iterable[Slot]) -> dict[Slot, tuple[int, int]]:
    return dict.fromkeys(slots, (0, 100))


@pytest.fixture
def begin(monkeypatch: pytest.MonkeyPatch) -> Begin:
    """A group member with a scripted client; it needs no cluster."""

    def started(*steps: Any, **options: Any) -> Consumer:
        client = ScriptedClient(*steps)
        monkeypatch.setattr(
            "millstream.kafka.clients.consuming.consumer.slots_of", lambda *_: [("t", 0), ("t", 1)]
        )
        monkeypatch.setattr("millstream.kafka.clients.consuming.consumer.offsets_at", starts)
        monkeypatch.setattr("millstream.kafka.clients.consuming.consumer.bounds", all_held)
        monkeypatch.setattr(Link, "consumer", lambda *_: client)
        chosen = options or {"commit": "manual"}
        consumer = Consumer("t", kafka="127.0.0.1:1", group="g", **chosen)
        client.ended = consumer.stop
        return consumer

    return started


def given(client: ScriptedClient) -> list[Message]:
    client.give(0, 1)
    return []


def some(*places: tuple[int, int]) -> Callable[[ScriptedClient], list[Message]]:
    return lambda _: [message(*place) for place in places]


def one_leaves(*places: tuple[int, int]) -> Callable[[ScriptedClient], list[Message]]:
    """Partition 1 is revoked in the call that returns these records."""

    def step(client: ScriptedClient) -> list[Message]:
        client.take_away(1)
        return [message(*place) for place in places]

    return step


def test_records_fetched_while_another_partition_is_revoked_are_not_lost(begin: Begin) -> None:
    consumer = begin(given, some(), one_leaves((0, 0), (0, 1)), some((0, 2)))

    assert [record.value for record in consumer] == [b"0:0", b"0:1", b"0:2"]


def test_records_of_a_partition_revoked_in_the_same_fetch_are_not_delivered(
    begin: Begin,
) -> None:
    consumer = begin(given, some((1, 0)), one_leaves((0, 0)), some((0, 1)))

    assert [record.value for record in consumer] == [b"0:0", b"0:1"]
    assert consumer.position() == {("t", 0): 2}


def test_a_batch_has_no_rows_of_a_partition_revoked_while_it_was_read(
    begin: Begin,
) -> None:
    consumer = begin(given, some(), some((0, 0), (1, 0)), one_leaves((0, 1)))

    batches = consumer.batches(wait="1 minute")
    rows = [value for batch in batches for value in batch["value"].to_pylist()]

    assert rows == [b"0:0", b"0:1"]
    assert consumer.position() == {("t", 0): 2}


def test_a_first_batch_that_failed_is_redelivered(begin: Begin) -> None:
    consumer = begin(lambda client: [*given(client), message(0, 0)], some((0, 1)))

    def fail() -> None:
        with consumer:
            for _ in consumer.batches(wait="1 minute"):
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert consumer.position() == {("t", 0): 0, ("t", 1): 0}


def stored() -> dict[str, Any]:
    return {"delivery": "exactly_once", "offsets": SqlOffsets(sqlite3.connect(":memory:"), "r")}


def leave(how: str, *places: tuple[int, int]) -> Callable[[ScriptedClient], list[Message]]:
    def step(client: ScriptedClient) -> list[Message]:
        getattr(client, how)(1)
        return [message(*place) for place in places]

    return step


@pytest.mark.parametrize("how", ["take_away", "lose"])
def test_records_delivered_before_a_revocation_are_part_of_the_next_commit(
    begin: Begin, how: str
) -> None:
    options = stored()
    records = iter(consumer := begin(given, some((1, 0)), some(), leave(how, (0, 0)), **options))

    assert [next(records).value, next(records).value] == [b"1:0", b"0:0"]
    consumer.commit()

    assert options["offsets"].positions([("t", 0), ("t", 1)]) == {("t", 0): 1, ("t", 1): 1}


@pytest.mark.parametrize("how", ["take_away", "lose"])
def test_a_commit_fails_if_another_member_has_continued_in_a_revoked_partition(
    begin: Begin, how: str
) -> None:
    options = stored()
    records = iter(consumer := begin(given, some((1, 0)), some(), leave(how, (0, 0)), **options))
    assert [next(records).value, next(records).value] == [b"1:0", b"0:0"]
    options["offsets"].advance({("t", 1): (None, 5)})

    with pytest.raises(Fenced, match="another that has continued"):
        consumer.commit()


def test_a_partition_assigned_again_before_the_commit_raises(begin: Begin) -> None:
    def back(client: ScriptedClient) -> list[Message]:
        client.give(1)
        return []

    consumer = begin(given, some((1, 0)), some(), leave("take_away"), back, **stored())

    with pytest.raises(Fenced, match=r"t/1 need to be committed before a rebalance"):
        list(consumer)


def test_a_partition_revoked_unread_causes_no_error(begin: Begin) -> None:
    options = stored()

    def back(client: ScriptedClient) -> list[Message]:
        options["offsets"].advance({("t", 1): (None, 5)})
        client.give(1)
        return []

    steps = (given, some(), leave("take_away"), back, some((0, 0)))
    records = iter(consumer := begin(*steps, **options))
    assert next(records).value == b"0:0"
    consumer.commit()

    assert options["offsets"].positions([("t", 0), ("t", 1)]) == {("t", 0): 1, ("t", 1): 5}


def test_a_second_member_joins_mid_stream_and_no_record_is_lost(log: Log, topic: str) -> None:
    log.topics.create(topic, partitions=4)
    sent: list[bytes] = []
    seen: list[set[bytes | None]] = [set(), set()]
    enough = threading.Event()

    def write() -> None:
        with Producer(log.address, partitioner="round_robin") as producer:
            for number in count():
                if enough.wait(0.001):
                    return
                sent.append(b"%d" % number)
                producer.send(topic, sent[-1])

    def read(consumer: Consumer, into: set[bytes | None]) -> None:
        with consumer:
            for record in consumer:
                into.add(record.value)

    members = [log.consumer(topic, group=topic)]
    threads = [threading.Thread(target=write)]
    threads.append(threading.Thread(target=read, args=(members[0], seen[0])))
    for thread in threads:
        thread.start()
    try:
        eventually(lambda: len(seen[0]) > 500, within=60)
        members.append(log.consumer(topic, group=topic))
        threads.append(threading.Thread(target=read, args=(members[1], seen[1])))
        threads[-1].start()
        eventually(lambda: len(seen[1]) > 500, within=60)
        enough.set()
        threads[0].join()
        assert eventually(lambda: seen[0] | seen[1] == set(sent), within=60)
    finally:
        enough.set()
        for member in members:
            member.stop()
        for thread in threads:
            thread.join()
