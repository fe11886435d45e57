"""Both fetchers return the same records for a range, from a real broker."""

from __future__ import annotations

import random
import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from confluent_kafka import Producer

from millstream.errors import DataGone, NotFound
from millstream.kafka.admin.topics import Topics
from millstream.kafka.protocol import batch_headers
from millstream.kafka.protocol.fetch import fetch_request
from millstream.kafka.settings import Cluster
from millstream.sources.kafka import reader as topic_reader
from millstream.sources.kafka import wire_fetch as topic_wire
from millstream.sources.kafka.fetch import Fetch, fetcher, sliced
from millstream.sources.kafka.librdkafka_fetch import ClientFetcher
from millstream.sources.kafka.reader import TopicReader
from millstream.sources.kafka.wire_fetch import WireFetcher
from millstream.sources.spec import raw_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.kafka.protocol.messages import Request
    from millstream.sources.spec import Ranges
    from millstream.testing.local_broker import ThrowAwayBroker

COLUMNS = ("key", "value", "partition", "offset", "timestamp")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture(scope="module")
def varied(broker: ThrowAwayBroker) -> str:
    """Two partitions with codecs, keys, nulls, large values, transactions."""
    Topics(broker.address).create("varied", partitions=2)
    chance = random.Random(3)
    for codec in CODECS:
        producer = Producer({"bootstrap.servers": broker.address, "compression.type": codec,
                             "linger.ms": 5, "batch.num.messages": 300})  # fmt: skip
        for number in range(700):
            value = None if number % 50 == 7 else b"%d" % number * chance.randrange(60)
            key = None if number % 3 else b"k%d" % number
            producer.produce("varied", value, key, partition=number % 2, timestamp=10**12 + number,
                             headers=[("h", b"1")] if number % 90 == 1 else None)  # fmt: skip
        producer.flush()
    writer = Producer({"bootstrap.servers": broker.address, "transactional.id": "varied",
                       "linger.ms": 0})  # fmt: skip
    writer.init_transactions()
    for turn in range(6):
        writer.begin_transaction()
        for number in range(20):
            writer.produce("varied", b"turn %d" % turn, partition=number % 2)
        writer.abort_transaction() if turn % 2 else writer.commit_transaction()
    return "varied"


@pytest.fixture(scope="module")
def both(broker: ThrowAwayBroker, varied: str) -> Iterator[tuple[WireFetcher, ClientFetcher]]:
    cluster = Cluster(broker.address)
    made = WireFetcher(cluster, varied), ClientFetcher(cluster, varied)
    yield made
    for one in made:
        one.close()


def rows(one: Any, ranges: Ranges, *, live: bool = False) -> pa.Table:
    tables = one.read(ranges, COLUMNS, live=live)
    found = pa.concat_tables([raw_schema(COLUMNS).empty_table(), *tables])
    return found.sort_by([("partition", "ascending"), ("offset", "ascending")])


def test_both_fetchers_return_the_same_records_for_any_ranges(
    broker: ThrowAwayBroker, varied: str, both: tuple[WireFetcher, ClientFetcher],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    ends = Topics(broker.address).offsets(varied, at="end")
    plain, client = both
    whole = rows(client, {p: (0, end) for p, end in ends.items()})
    assert whole.num_rows == 5 * 700 + 3 * 20
    monkeypatch.setattr(topic_wire, "_MAX_BYTES", 20_000)
    chance = random.Random(5)
    for turn in range(12):
        ranges = {}
        for partition, end in ends.items():
            first, last = sorted((chance.randrange(end + 1), chance.randrange(end + 1)))
            ranges[partition] = (first, last)
        live = turn % 4 == 0
        if live:
            ranges = {p: (first, ends[p]) for p, (first, _) in ranges.items()}
        found = rows(plain, ranges, live=live)
        assert found == rows(client, ranges, live=live), ranges
        for partition, (first, last) in ranges.items():
            inside = [o for p, o in zip(whole["partition"].to_pylist(),
                                        whole["offset"].to_pylist(), strict=True)
                      if p == partition and first <= o < last]  # fmt: skip
            mine = found.filter(pc.equal(found["partition"], partition))
            assert mine["offset"].to_pylist() == inside


def test_consecutive_ranges_return_every_record_once(
    broker: ThrowAwayBroker, varied: str, both: tuple[WireFetcher, ClientFetcher]
) -> None:
    ends = Topics(broker.address).offsets(varied, at="end")
    for one in both:
        offsets: dict[int, list[int]] = {p: [] for p in ends}
        at = dict.fromkeys(ends, 0)
        while any(at[p] < end for p, end in ends.items()):
            ranges = {p: (at[p], min(end, at[p] + 333 + p)) for p, end in ends.items()}
            for row in rows(one, ranges).to_pylist():
                offsets[row["partition"]].append(row["offset"])
            at = {p: last for p, (_, last) in ranges.items()}
        for some in offsets.values():
            assert len(some) == len(set(some)) == (5 * 700 + 3 * 20) // 2


def test_a_reader_returns_records_by_partition_and_offset_from_both_fetchers(
    broker: ThrowAwayBroker, varied: str, both: tuple[WireFetcher, ClientFetcher],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    reader = TopicReader(Cluster(broker.address), varied, "any")
    ends = reader.extent().end
    ranges = {p: (5, end) for p, end in sorted(ends.items(), reverse=True)}
    monkeypatch.setattr(topic_wire, "_MAX_BYTES", 20_000)
    for way in both:
        monkeypatch.setattr(reader, "_fetcher", way)
        assert reader.table(ranges, ["key"]).equals(rows(both[0], ranges))
    monkeypatch.setattr(reader, "_fetcher", None)
    reader.close()


def test_following_returns_the_same_records_as_a_range(
    broker: ThrowAwayBroker, varied: str, both: tuple[WireFetcher, ClientFetcher]
) -> None:
    """The log also has aborted records and control records."""
    ends = Topics(broker.address).offsets(varied, at="end")
    ahead = WireFetcher(Cluster(broker.address), varied)
    at, pieces, together = dict.fromkeys(ends, 0), 0, 0
    while at != ends:
        found = ahead.following(at, COLUMNS, least=1, most=80_000 if pieces % 2 else 30_000)
        assert found is not None
        ranges, table = found
        assert {p: first for p, (first, _) in ranges.items()} == {p: at[p] for p in ranges}
        assert table.equals(rows(both[0], ranges))
        at |= {p: end for p, (_, end) in ranges.items()}
        pieces += 1
        together += len(ranges) > 1
    assert together
    ahead.close()
    assert pieces > 3


def test_following_returns_nothing_below_the_minimum_size_or_before_the_commit(
    broker: ThrowAwayBroker, topic: str
) -> None:
    Topics(broker.address).create(topic)
    ahead = WireFetcher(Cluster(broker.address), topic)
    writer = Producer({"bootstrap.servers": broker.address, "transactional.id": topic})
    writer.init_transactions()
    writer.begin_transaction()
    writer.produce(topic, b"x" * 1000)
    writer.flush()

    assert ahead.following({0: 0}, COLUMNS, least=1, most=10_000) is None
    writer.commit_transaction()
    assert ahead.following({0: 0}, COLUMNS, least=100_000, most=200_000) is None
    deadline = time.monotonic() + 60
    while (found := ahead.following({0: 0}, COLUMNS, least=500, most=10_000)) is None:
        assert time.monotonic() < deadline
    assert (found[0], found[1]["value"].to_pylist()) == ({0: (0, 2)}, [b"x" * 1000])
    ahead.close()


def test_following_raises_at_a_missing_offset_and_can_be_retried(
    broker: ThrowAwayBroker, varied: str, topic: str
) -> None:
    ahead = WireFetcher(Cluster(broker.address), varied)
    with pytest.raises(OSError, match="error 1"):
        ahead.following({0: 10**9}, COLUMNS, least=1, most=10_000)
    assert ahead.following({0: 0}, COLUMNS, least=1, most=10_000) is not None
    ahead.close()
    nowhere = WireFetcher(Cluster(broker.address), topic)
    with pytest.raises(OSError, match="no leader"):
        nowhere.following({0: 0}, COLUMNS, least=1, most=10_000)


def test_records_after_the_range_are_kept_for_the_next_one(
    broker: ThrowAwayBroker, topic: str
) -> None:
    Topics(broker.address).create(topic, partitions=3)
    producer = Producer({"bootstrap.servers": broker.address, "linger.ms": 0})
    made: list[WireFetcher | ClientFetcher] = [
        WireFetcher(Cluster(broker.address), topic),
        ClientFetcher(Cluster(broker.address), topic),
    ]
    for turn in range(5):
        for number in range(30):
            producer.produce(topic, b"%d" % number, partition=number % 3)
        producer.flush()
        ranges = dict.fromkeys(range(3), (10 * turn, 10 * turn + 10))
        if turn == 2:
            ranges = dict.fromkeys(range(3), (20, 25))
        if turn == 3:
            ranges = dict.fromkeys(range(3), (25, 40))
        for one in made:
            found = rows(one, ranges, live=True)
            assert found["offset"].to_pylist() == [o for a, b in ranges.values()
                                                   for o in range(a, b)]  # fmt: skip
    for one in made:
        one.close()


@pytest.mark.parametrize("kind", [WireFetcher, ClientFetcher])
def test_deleted_records_are_reported_with_their_offset(
    kind: type[WireFetcher | ClientFetcher], broker: ThrowAwayBroker, topic: str
) -> None:
    topics = Topics(broker.address)
    topics.create(topic)
    one = kind(Cluster(broker.address), topic)
    with pytest.raises(DataGone, match=f"{topic}/0 from offset 50"):
        list(one.read({0: (50, 60)}, COLUMNS))
    one.close()


def test_a_missing_topic_is_named(
    broker: ThrowAwayBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_wire, "_NEW_TOPIC_SECONDS", 0.0)
    one = WireFetcher(Cluster(broker.address), topic)

    with pytest.raises(NotFound, match=topic):
        list(one.read({0: (0, 1)}, COLUMNS))
    one.close()


def test_a_broken_connection_is_opened_again(
    broker: ThrowAwayBroker, varied: str, both: tuple[WireFetcher, ClientFetcher]
) -> None:
    plain, client = both
    ranges = {0: (0, 900)}
    assert rows(plain, ranges).num_rows
    for connection in plain._connections.values():
        connection._socket.shutdown(2)

    assert rows(plain, ranges) == rows(client, ranges)


@pytest.mark.parametrize("question", [2, 3, 5])
def test_a_connection_that_breaks_during_a_prefetch_loses_no_record(
    question: int, both: tuple[WireFetcher, ClientFetcher], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def request(*args: Any, **options: Any) -> Request:
        asked.append(args)
        if len(asked) == question:
            raise OSError("broken")
        return real(*args, **options)

    real = fetch_request
    monkeypatch.setattr(topic_wire, "fetch_request", request)
    monkeypatch.setattr(topic_wire, "_MAX_BYTES", 5_000)
    plain, client = both
    ranges = {0: (3, 900), 1: (5, 800)}

    assert rows(plain, ranges) == rows(client, ranges)
    assert len(asked) > question


def test_batches_of_an_old_format_are_read_by_librdkafka(
    broker: ThrowAwayBroker, varied: str, both: tuple[WireFetcher, ClientFetcher],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    calls = []

    def refuse(*arguments: Any, **more: Any) -> Any:
        calls.append(arguments)
        if len(calls) > 2:
            raise batch_headers.UnknownFormat("1")
        return real(*arguments, **more)

    real = batch_headers.batches
    monkeypatch.setattr(topic_wire, "batches", refuse)
    monkeypatch.setattr(topic_wire, "_MAX_BYTES", 5_000)
    plain, client = both
    ranges = {0: (3, 900), 1: (5, 800)}

    found = rows(plain, ranges)

    assert len(calls) > 2
    assert found == rows(client, ranges)


def test_headers_are_read_and_secured_listeners_use_librdkafka(
    broker: ThrowAwayBroker, varied: str
) -> None:
    open_, closed = Cluster(broker.address), Cluster("h:1", {"security.protocol": "SSL"})
    assert isinstance(fetcher(open_, varied), WireFetcher)
    assert isinstance(fetcher(closed, varied), ClientFetcher)
    for one in (fetcher(open_, varied), ClientFetcher(open_, varied)):
        table = pa.concat_tables(one.read({1: (0, 10)}, ("headers", "offset")))
        assert table["headers"].to_pylist()[:2] == [[{"key": "h", "value": b"1"}], None]
        one.close()


def test_a_task_reads_the_slice_with_its_number(broker: ThrowAwayBroker, varied: str) -> None:
    slices = sliced({0: (0, 1000), 1: (0, 10), 2: (5, 5)}, 4)
    assert sorted(slices) == [(0, 0, 250), (0, 250, 500), (0, 500, 1000), (1, 0, 10)]
    fetch = Fetch(Cluster(broker.address), varied, slices, ("offset", "partition"))

    found = pa.Table.from_batches(list(fetch(range(4)))).to_pylist()

    assert [(row["partition"], row["offset"]) for row in found] == [
        (p, offset) for p, first, end in slices for offset in range(first, end)
    ]


def test_one_record_is_not_divided_into_slices() -> None:
    assert sliced({0: (7, 8)}, 4) == ((0, 7, 8),)
    assert sliced({}, 4) == ()


def test_close_waits_only_briefly_for_offset_commits_in_flight(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An unavailable broker would block the commits, and the client's `close`, for minutes."""
    reader, away = TopicReader(Cluster("127.0.0.1:1"), "t", "any"), threading.Event()
    committer = reader._committer
    monkeypatch.setattr(topic_reader, "_CLOSE_SECONDS", 0.2)
    monkeypatch.setattr(reader, "_committer", SimpleNamespace(close=lambda: away.wait(60)))
    began = time.monotonic()
    reader.close()

    assert time.monotonic() - began < 20
    away.set()
    committer.close()
