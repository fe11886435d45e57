"""Damaged batches on a real broker's disk: their offsets, and the records around them."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest
from tests.kafka.damaging import (
    Harm,
    Stored,
    crc32c,
    flipped,
    log_file,
    other_format,
    rewrite,
    scrambled,
    unknown_codec,
)

from millstream.kafka.admin.topics import Topics
from millstream.kafka.clients.consuming.consumer import Consumer
from millstream.kafka.clients.consuming.damaged import (
    DamagedBatch,
    LostOffsets,
    lost_offsets,
    skip_damaged,
)
from millstream.kafka.clients.producing.producer import Producer
from millstream.kafka.librdkafka import Link
from millstream.kafka.settings import Cluster
from millstream.testing.local_broker import broker as local_broker
from millstream.viewing.pages import Bounds, Pages
from millstream.viewing.selection import Selection

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.testing.local_broker import ThrowAwayBroker

HARMS: dict[Harm, str] = {
    flipped: "fails its checksum",
    scrambled: "cannot be decompressed",
    unknown_codec: "has a compression that is not supported",
}
SIZES = (10, 1, 700, 3, 10)


@pytest.fixture(scope="module")
def hurt() -> Iterator[ThrowAwayBroker]:
    """A broker whose log files are damaged."""
    with local_broker() as made:
        yield made


def filled(broker: ThrowAwayBroker, sizes: tuple[int, ...] = SIZES, partitions: int = 1) -> str:
    """A topic with a batch of each size in every partition."""
    topic = f"damaged-{uuid.uuid4().hex[:8]}"
    Topics(broker.address).create(topic, partitions=partitions)
    for number, size in enumerate(sizes):
        with Producer(broker.address, compression="zstd", linger="200 ms") as producer:
            for partition in range(partitions):
                for record in range(size):
                    producer.send(topic, {"batch": number, "n": record, "x": "y" * 50},
                                  partition=partition)  # fmt: skip
    return topic


def harmed(
    broker: ThrowAwayBroker, topic: str, harms: dict[int, Harm], partition: int = 0
) -> list[Stored]:
    """Damage batches by their number; returns all batches as they were."""
    found: list[Stored] = []

    def change(batches: list[Stored]) -> None:
        found.extend(batches)
        for number, harm in harms.items():
            harm(batches[number].raw)

    rewrite(broker, (log_file(broker, topic, partition), change))
    return found


def test_the_checksum_of_these_tests_is_crc32c() -> None:
    assert crc32c(b"123456789") == 0xE3069283


@pytest.mark.parametrize("harm", HARMS, ids=lambda harm: harm.__name__)
def test_skip_damaged_continues_after_each_batch_and_reports_its_offsets(
    hurt: ThrowAwayBroker, harm: Harm
) -> None:
    topic = filled(hurt)
    batches = harmed(hurt, topic, {0: harm, 2: harm, 4: harm})
    assert [batch.last - batch.first + 1 for batch in batches] == list(SIZES)
    lost: list[LostOffsets] = []
    cluster = Cluster(hurt.address)
    with Consumer(topic, kafka=cluster, until_end=True) as consumer:
        offsets = [record.offset for record in skip_damaged(consumer, cluster, lost.append)]
    assert offsets == [10, *range(711, 714)]
    assert lost == [LostOffsets(0, batch.first, batch.last + 1, HARMS[harm])
                    for batch in (batches[0], batches[2], batches[4])]  # fmt: skip
    assert (
        str(lost[2]) == f"partition 0: offsets 714 to 723 cannot be read: the batch {HARMS[harm]}"
    )


def test_a_consumer_raises_with_the_offset_and_continues_after_a_seek(
    hurt: ThrowAwayBroker,
) -> None:
    topic = filled(hurt)
    harmed(hurt, topic, {1: scrambled})
    with Consumer(topic, kafka=hurt.address, until_end=True) as consumer:
        seen: list[int] = []
        with pytest.raises(DamagedBatch, match=f"partition 0 of {topic} .* offset 10 that cannot"):
            seen.extend(record.offset for record in consumer)
        assert consumer.position() == {(topic, 0): 10}
        with pytest.raises(DamagedBatch):
            next(iter(consumer))
        consumer.seek(topic, 0, 11)
        assert [record.offset for record in consumer] == list(range(11, 724))


def test_other_partitions_lose_and_repeat_nothing(hurt: ThrowAwayBroker) -> None:
    topic = filled(hurt, (30, 200, 30), partitions=3)
    harmed(hurt, topic, {1: flipped}, partition=1)
    lost: list[LostOffsets] = []
    cluster = Cluster(hurt.address)
    with Consumer(topic, kafka=cluster, until_end=True) as consumer:
        seen = sorted((record.partition, record.offset)
                      for record in skip_damaged(consumer, cluster, lost.append))  # fmt: skip
    assert seen == [(partition, offset) for partition in range(3) for offset in range(260)
                    if partition != 1 or not 30 <= offset < 230]  # fmt: skip
    assert lost == [LostOffsets(1, 30, 230, "fails its checksum")]


def test_the_end_of_a_batch_is_found_from_an_offset_inside_it(hurt: ThrowAwayBroker) -> None:
    topic = filled(hurt)
    harmed(hurt, topic, {2: scrambled})
    link = Link(Cluster(hurt.address))
    found = lost_offsets(link, DamagedBatch((topic, 0), 11, "cannot be decompressed"))
    assert (found.first, found.next) == (11, 711)


@pytest.mark.parametrize(
    "harms",
    [{0: flipped}, {4: scrambled}, {1: flipped, 2: scrambled}, dict.fromkeys(range(5), flipped)],
)
def test_pages_show_every_record_once_and_the_lost_offsets(
    hurt: ThrowAwayBroker, harms: dict[int, Harm]
) -> None:
    topic = filled(hurt)
    batches = harmed(hurt, topic, harms)
    expected = [offset for number, batch in enumerate(batches) if number not in harms
                for offset in range(batch.first, batch.last + 1)]  # fmt: skip
    damaged = {(batches[number].first, batches[number].last + 1) for number in harms}
    for forward in (True, False):
        seen, lost = walked(hurt, topic, forward=forward)
        assert seen == expected
        assert lost == damaged


def walked(
    broker: ThrowAwayBroker, topic: str, *, forward: bool
) -> tuple[list[int], set[tuple[int, int]]]:
    """The offsets of all records of a topic, page by page, and those reported as lost."""
    cluster = Cluster(broker.address)
    cursor = None
    seen: list[int] = []
    lost: set[tuple[int, int]] = set()
    for _ in range(40):
        pages = Pages(cluster, topic, bounds=Bounds(seconds=30))
        if forward:
            page = pages.after(cursor or pages.first, Selection(), 100)
            seen += [record.offset for record in page.records]
            cursor = page.later
        else:
            page = pages.before(cursor or pages.end, Selection(), 100)
            seen = [record.offset for record in page.records] + seen
            cursor = page.earlier
        lost |= {(one.first, one.next) for one in page.lost}
        if cursor is None:
            return seen, lost
    raise AssertionError("paging does not come to an end")


def test_a_record_in_a_damaged_batch_is_refused_with_the_reason(hurt: ThrowAwayBroker) -> None:
    topic = filled(hurt)
    harmed(hurt, topic, {2: flipped})
    pages = Pages(Cluster(hurt.address), topic)
    with pytest.raises(DamagedBatch, match="offset 11 that fails its checksum"):
        pages.one(0, 300)
    found = pages.one(0, 711)
    assert found is not None
    assert found.offset == 711


def test_a_batch_of_an_unknown_format_is_skipped_too(hurt: ThrowAwayBroker) -> None:
    topic = filled(hurt)
    harmed(hurt, topic, {1: other_format, 3: other_format})
    lost: list[LostOffsets] = []
    cluster = Cluster(hurt.address)
    with Consumer(topic, kafka=cluster, until_end=True) as consumer:
        offsets = [record.offset for record in skip_damaged(consumer, cluster, lost.append)]
    assert offsets == [*range(10), *range(11, 711), *range(714, 724)]
    why = "is of format 3, which is not supported"
    assert lost == [LostOffsets(0, 10, 11, why), LostOffsets(0, 711, 714, why)]
