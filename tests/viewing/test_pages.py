"""Pages of a topic on a real broker: each record once, whatever the page size."""

from __future__ import annotations

import itertools
import json
import random
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest

from millstream.errors import InvalidInput, NotFound, Unavailable
from millstream.kafka.admin.topics import Topics
from millstream.kafka.clients.producing.producer import Producer
from millstream.kafka.librdkafka import Link
from millstream.kafka.settings import Cluster
from millstream.viewing import pages as pages_module
from millstream.viewing.pages import Bounds, Page, Pages
from millstream.viewing.selection import Selection
from millstream.viewing.where.parser import parse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.testing.local_broker import ThrowAwayBroker

Place = tuple[int, int]
START = datetime(2026, 1, 1, tzinfo=UTC)
PARTITIONS = 3
PATIENCE = 60.0


class WrittenTopic:
    """A topic with known content: for each position the number of its record."""

    def __init__(self, topic: str, cluster: Cluster, numbers: dict[Place, int]) -> None:
        self.topic, self.cluster, self.numbers = topic, cluster, numbers

    def pages(self, *partitions: int, **bounds: float) -> Pages:
        said = Bounds(**{"seconds": PATIENCE, **bounds})  # type: ignore[arg-type]
        return Pages(self.cluster, self.topic, partitions, said)

    def wanted(self, modulo: int = 1) -> set[Place]:
        return {place for place, number in self.numbers.items() if number % modulo == 0}


@pytest.fixture(scope="module")
def written(broker: ThrowAwayBroker) -> WrittenTopic:
    """Three partitions with committed and aborted transactions, so offsets have gaps, and with
    times that jump back and forth."""
    cluster, topic = Cluster(broker.address), f"pages-{random.randrange(10**9)}"
    Topics(cluster).create(topic, partitions=PARTITIONS)
    chance, numbers, kept = random.Random(7), itertools.count(), set[int]()
    with Producer(cluster, transactional_id=topic) as producer:
        for block in range(10):
            with suppress(_Abort), producer.transaction():
                sent = list(itertools.islice(numbers, chance.randrange(5, 45)))
                for number in sent:
                    at = START + timedelta(seconds=block + chance.uniform(-3, 3))
                    producer.send(topic, {"n": number}, timestamp=at,
                                  partition=chance.choice((0, 0, 0, 1, 2)))  # fmt: skip
                producer.flush()
                _abort(when=block % 4 == 2)
                kept.update(sent)
    return WrittenTopic(topic, cluster, committed(broker.address, topic, kept))


class _Abort(Exception):
    """Aborts the transaction."""


def _abort(*, when: bool) -> None:
    if when:
        raise _Abort


def committed(address: str, topic: str, kept: set[int]) -> dict[Place, int]:
    """What any Kafka client sees of a topic once all that was committed can be seen (a commit
    returns before that): per place the number of the record."""
    reader = confluent_kafka.Consumer(
        {"bootstrap.servers": address, "group.id": topic, "isolation.level": "read_committed"}
    )
    reader.assign([confluent_kafka.TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
    numbers: dict[Place, int] = {}
    deadline = time.monotonic() + PATIENCE
    while set(numbers.values()) != kept:
        assert time.monotonic() < deadline
        message = reader.poll(1.0)
        if message is not None and message.error() is None:
            place = (message.partition() or 0, message.offset() or 0)
            numbers[place] = json.loads(message.value() or b"")["n"]
    reader.close()
    return numbers


def walked(
    written: WrittenTopic, modulo: int, limit: int, *, back: bool, **bounds: float
) -> Iterator[Page]:
    """Read the whole topic page by page."""
    pages = written.pages(**bounds)
    places: dict[int, int] | None = pages.end if back else pages.first
    while places is not None:
        page = _asked(written.pages(**bounds), places, modulo, limit, back=back)
        yield page
        before, places = places, page.earlier if back else page.later
        assert places != before, "a page that goes nowhere"


def _asked(pages: Pages, places: dict[int, int], modulo: int, limit: int, *, back: bool) -> Page:
    remainders = " or ".join(f"n = {number}" for number in range(0, 400, modulo))
    selection = Selection(where=None if modulo == 1 else parse(remainders))
    return (pages.before if back else pages.after)(places, selection, limit)


@pytest.mark.parametrize("back", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize(
    ("modulo", "limit", "bounds"),
    [(1, 40, {}), (1, 200, {}), (1, 30, {"records": 25}), (7, 9, {}), (50, 3, {"records": 90}),
     (1, 60, {"bytes": 900})],
    ids=["all", "one page", "a small scan", "filtered", "rare in a small scan", "few bytes"],
)  # fmt: skip
def test_paging_shows_each_committed_record_once(
    written: WrittenTopic, modulo: int, limit: int, bounds: dict[str, float], back: bool
) -> None:
    seen: list[Place] = []
    for page in walked(written, modulo, limit, back=back, **bounds):
        assert len(page.records) <= limit
        places = [(record.partition, record.offset) for record in page.records]
        for record in page.records:
            number = json.loads(record.value or b"")["n"]
            assert written.numbers[record.partition, record.offset] == number
        seen = places + seen if back else seen + places
    assert len(seen) == len(set(seen))
    assert set(seen) == written.wanted(modulo)
    for partition in range(PARTITIONS):
        offsets = [offset for part, offset in seen if part == partition]
        assert offsets == sorted(offsets)


def test_the_last_records_of_all_partitions_are_the_last_by_time(written: WrittenTopic) -> None:
    pages = written.pages(1)
    page = pages.before(pages.end, Selection(), 5)
    offsets = sorted(offset for part, offset in written.numbers if part == 1)
    assert [record.offset for record in page.records] == offsets[-5:]
    assert page.later is None
    assert page.earlier == {1: offsets[-5]}


def test_a_scan_that_ends_early_is_incomplete_and_can_be_continued(written: WrittenTopic) -> None:
    pages, selection = written.pages(records=10), Selection(where=parse("n = -1"))
    page = pages.after(pages.first, selection, 5)
    assert (page.records, page.complete, selection.seen) == ([], False, 10)
    assert page.later is not None
    assert sum(page.later.values()) >= sum(pages.first.values()) + 10


def test_a_time_or_an_offset_is_a_position(broker: ThrowAwayBroker, topic: str) -> None:
    cluster = Cluster(broker.address)
    Topics(cluster).create(topic)
    with Producer(cluster) as producer:
        for second in range(10):
            producer.send(topic, {"n": second}, timestamp=START + timedelta(seconds=second))
    pages = Pages(cluster, topic, bounds=Bounds(seconds=PATIENCE))
    assert pages.offsets(START + timedelta(seconds=3.5)) == pages.offsets(4) == {0: 4}
    assert pages.offsets(START + timedelta(days=9)) == pages.offsets(10**15) == {0: 10}
    assert pages.offsets("start") == pages.offsets(0) == {0: 0}
    page = pages.after(pages.offsets(START + timedelta(seconds=8)), Selection(), 10)
    assert [record.offset for record in page.records] == [8, 9]
    assert (page.earlier, page.later) == ({0: 8}, None)


def test_one_record_is_found_by_its_position_and_a_marker_is_not(written: WrittenTopic) -> None:
    pages = written.pages()
    (partition, offset), number = next(iter(written.numbers.items()))
    record = pages.one(partition, offset)
    assert record is not None
    assert json.loads(record.value or b"") == {"n": number}
    markers = set(range(pages.end[0])) - {offset for part, offset in written.numbers if part == 0}
    assert pages.one(0, min(markers)) is None
    assert pages.one(0, 10**12) is None


def test_connecting_does_not_use_up_the_time_to_read(
    written: WrittenTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock is advanced whenever a client is created."""
    moved, made = [0.0], Link.consumer

    def slowly(link: Link, *said: Any, **more: Any) -> Any:
        moved[0] += 2 * PATIENCE
        return made(link, *said, **more)

    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + moved[0])
    monkeypatch.setattr(pages_module, "time", clock)
    monkeypatch.setattr(Link, "consumer", slowly)
    (partition, offset), number = next(iter(written.numbers.items()))
    record = written.pages().one(partition, offset)
    assert record is not None
    assert json.loads(record.value or b"") == {"n": number}
    pages = written.pages()
    page = pages.before(pages.end, Selection(where=parse("n = -1")), 3)
    assert (page.records, page.complete) == ([], True)


def test_a_record_that_could_not_be_read_in_time_is_not_reported_as_missing(
    written: WrittenTopic,
) -> None:
    partition, offset = next(iter(written.numbers))
    for bounds in ({"records": 0}, {"seconds": 0.0}):
        with pytest.raises(Unavailable, match=f"offset {offset} of .* could not be read in time"):
            written.pages(**bounds).one(partition, offset)


def test_records_of_an_open_transaction_are_not_seen(written: WrittenTopic) -> None:
    ends = written.pages().end
    with (
        Producer(written.cluster, transactional_id=f"{written.topic}-open") as producer,
        suppress(_Abort),
        producer.transaction(),
    ):
        producer.send(written.topic, {"n": -1}, partition=2)
        producer.flush()
        assert written.pages().end == ends
        _abort(when=True)
    page = written.pages().after({2: ends[2]}, Selection(), 10)
    assert [record for record in page.records if record.partition == 2] == []


def test_offsets_deleted_by_retention_are_counted(broker: ThrowAwayBroker, topic: str) -> None:
    cluster = Cluster(broker.address)
    Topics(cluster).create(topic)
    with Producer(cluster) as producer:
        for number in range(10):
            producer.send(topic, {"n": number})
    Topics(cluster).truncate(topic, {0: 6})
    page = Pages(cluster, topic, bounds=Bounds(seconds=PATIENCE)).after({0: 2}, Selection(), 10)
    assert [record.offset for record in page.records] == [6, 7, 8, 9]
    assert page.gone == 4


def test_a_missing_topic_or_partition_is_reported(written: WrittenTopic) -> None:
    with pytest.raises(NotFound, match="nowhere does not exist"):
        Pages(written.cluster, "nowhere")
    with pytest.raises(InvalidInput, match="has, 0 to 2; got 9"):
        written.pages(9)
