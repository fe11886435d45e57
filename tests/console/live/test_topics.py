"""Live tailing on a real broker: all readers share one consumer, and none waits for a slow one."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from tests.console.streams import PATIENCE, Stream

from millstream.console.live import topics as module
from millstream.console.live.topics import QUEUE, SHOWN, LiveTopic, LiveTopics, Reader
from millstream.kafka.admin.topics import Topics
from millstream.kafka.clients.producing.producer import Producer
from millstream.kafka.settings import Cluster
from millstream.viewing.selection import Selection
from millstream.viewing.where.parser import parse

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.console.serving import Served

    from millstream.testing.local_broker import ThrowAwayBroker


@pytest.fixture
def made(broker: ThrowAwayBroker, topic: str) -> str:
    """A topic of two partitions that holds a record was sent before anybody follows it."""
    Topics(broker.address).create(topic, partitions=2)
    send(broker, topic, [-1])
    return topic


def send(broker: ThrowAwayBroker, topic: str, numbers: list[int]) -> None:
    with Producer(broker.address) as producer:
        for number in numbers:
            producer.send(topic, {"n": number}, partition=number % 2)


def numbers(update: dict[str, Any]) -> list[int]:
    return sorted(json.loads(record["value"]["text"])["n"] for record in update["records"])


def eventually(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def threads(topic: str) -> int:
    return sum(thread.name == f"follow {topic}" for thread in threading.enumerate())


def test_each_reader_gets_its_selection_and_all_share_one_consumer(
    kafka_console: Served, broker: ThrowAwayBroker, made: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = quote("n >= 4 and n < 8")
    with (
        Stream(kafka_console, f"/api/topics/{made}/follow") as everything,
        Stream(kafka_console, f"/api/topics/{made}/follow?where={where}") as some,
        Stream(kafka_console, f"/api/topics/{made}/follow?partition=1&format=hex") as half,
    ):
        begun = [stream.next() for stream in (everything, some, half)]
        assert [event[1]["records"] for event in begun if event] == [[], [], []]
        assert threads(made) == 1
        send(broker, made, list(range(10)))
        assert numbers(everything.until(10)) == list(range(10))
        filtered = some.until(4)
        assert numbers(filtered) == [4, 5, 6, 7]
        odd = half.until(5)
        assert {record["partition"] for record in odd["records"]} == {1}
        assert {record["value"]["kind"] for record in odd["records"]} == {"bytes"}
        assert odd["scanned"] == 5
    monkeypatch.setattr(module, "_LINGER", 0.1)
    eventually(lambda: threads(made) == 0)


def test_reading_can_start_where_following_began(
    kafka_console: Served, broker: ThrowAwayBroker, made: str
) -> None:
    with Stream(kafka_console, f"/api/topics/{made}/follow") as stream:
        begun = stream.next()
        assert begun is not None
        send(broker, made, [1, 2, 3])
        reached = stream.until(3)["later"]
    page = kafka_console(f"/api/topics/{made}/records?from={quote(begun[1]['later'])}").json
    assert numbers(page) == [1, 2, 3]
    assert kafka_console(f"/api/topics/{made}/records?from={quote(reached)}").json["records"] == []


def test_a_topic_that_is_deleted_ends_its_streams_with_a_sentence(
    kafka_console: Served, broker: ThrowAwayBroker, made: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CHECK", 0.2)
    monkeypatch.setattr(module, "_KEEP_ALIVE", 3600.0)
    with Stream(kafka_console, f"/api/topics/{made}/follow") as stream:
        stream.next()
        Topics(broker.address).delete(made)
        event = stream.next()
        assert event is not None
        assert event[0] == "gone"
        assert made in event[1]
        assert stream.next() is None


def row(number: int) -> Any:
    from datetime import UTC, datetime

    from millstream.kafka.records import Record
    from millstream.viewing.fields import RecordRow

    value = json.dumps({"n": number}).encode()
    return RecordRow(Record("t", 0, number, datetime(2026, 1, 1, tzinfo=UTC), None, value))


def test_of_a_burst_a_part_is_shown_and_the_rest_is_counted() -> None:
    reader = Reader(Selection(where=parse("n >= 10")))
    for number in range(SHOWN + 110):
        reader.offer(row(number))
    update = reader.take()
    assert update is not None
    assert [record.offset for record in update["records"]] == list(range(10, 10 + SHOWN))
    assert (update["scanned"], update["left_out"]) == (SHOWN + 110, 100)
    assert reader.take() is None


def test_a_slow_reader_is_disconnected_with_a_message_while_others_continue(
    broker: ThrowAwayBroker, made: str
) -> None:
    async def scene() -> None:
        live_topics = LiveTopics(tick=0.01)
        live_topic = await live_topics.open(Cluster(broker.address), made)
        slow, quick = Reader(Selection()), Reader(Selection())
        streams = [live_topics.watch(live_topic, reader) for reader in (slow, quick)]
        for stream in streams:
            assert b'"later"' in await anext(stream)
        for number in range(QUEUE + 5):
            await asyncio.to_thread(send, broker, made, [number])
            await asyncio.wait_for(anext(streams[1]), PATIENCE)
        assert live_topic.readers == 1
        words = await asyncio.wait_for(anext(streams[0]), PATIENCE)
        assert words.startswith(b'event: dropped\ndata: "this client is too slow')
        with pytest.raises(StopAsyncIteration):
            await asyncio.wait_for(anext(streams[0]), PATIENCE)
        await streams[1].aclose()
        assert live_topics.readers == 0
        live_topic.stop()
        while not live_topic.over:
            await asyncio.sleep(0.01)

    asyncio.run(scene())


def test_a_live_topic_far_behind_continues_at_the_end_and_counts_what_it_skipped(
    broker: ThrowAwayBroker, made: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_LAG", 10)
    monkeypatch.setattr(module, "_CHECK_LAG", 0.0)

    class Stumbling(Reader):
        def offer(self, row: Any) -> None:
            super().offer(row)
            if self.scanned == 1:
                send(broker, made, list(range(100)))

    async def scene() -> dict[str, Any]:
        live_topic = LiveTopic(Cluster(broker.address), made)
        reader = Stumbling(Selection())
        live_topic.join(reader)
        await asyncio.to_thread(send, broker, made, [1000])
        deadline = time.monotonic() + PATIENCE
        while not reader.skipped:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
        live_topic.stop()
        update = reader.take()
        assert update is not None
        return update

    update = asyncio.run(scene())
    assert update["skipped"] > 10
    assert update["scanned"] + update["skipped"] >= 101


def test_the_number_of_followed_topics_is_limited(
    kafka_console: Served, made: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TOPICS", 0)
    answer = kafka_console(f"/api/topics/{made}/follow")
    assert (answer.status, "topics can be followed at once" in answer.json["error"]) == (503, True)


def test_a_slow_filter_affects_only_its_own_reader(
    kafka_console: Served, broker: ThrowAwayBroker, made: str
) -> None:
    """Records for which a filter has no time are skipped and counted; others get every record."""
    records = 40
    where = quote("s like '%" + "_a" * 450 + "b%'")
    large = {"n": 0, "s": "a" * 900_000}
    with (
        Stream(kafka_console, f"/api/topics/{made}/follow?where={where}") as slow,
        Stream(kafka_console, f"/api/topics/{made}/follow") as quick,
    ):
        assert [stream.next() is not None for stream in (slow, quick)] == [True, True]
        with Producer(broker.address) as producer:
            for _ in range(records):
                producer.send(made, large)
        update = {"scanned": 0, "skipped": 0}
        began = time.monotonic()
        while update["scanned"] < records:
            add(update, quick.next())
        seconds = time.monotonic() - began
        assert update["skipped"] == 0
        waiting = {"scanned": 0, "skipped": 0}
        while sum(waiting.values()) < records:
            add(waiting, slow.next())
    assert waiting["skipped"] > 0
    assert seconds < 15


def add(update: dict[str, int], event: tuple[str, Any] | None) -> None:
    assert event is not None
    for name in update:
        update[name] += event[1][name]


def test_joining_does_not_wait_for_another_readers_filter(
    broker: ThrowAwayBroker, made: str
) -> None:
    """`join` runs in the thread that answers every request."""
    busy = threading.Event()

    class Busy(Reader):
        def offer(self, row: Any) -> None:
            busy.set()
            time.sleep(3)

    live_topic = LiveTopic(Cluster(broker.address), made)
    try:
        live_topic.join(Busy(Selection()))
        send(broker, made, [1])
        assert busy.wait(PATIENCE)
        began = time.monotonic()
        live_topic.join(Reader(Selection()))
        assert time.monotonic() - began < 1
    finally:
        live_topic.stop()
