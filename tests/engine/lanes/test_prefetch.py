"""Prefetching: a batch gets exactly the rows that it would have read, or none."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.prefetch_log import LogPrefetchReader, PrefetchableReader, until
from tests.faults.small_world import Log

from millstream.engine.checkpoint.fault_points import PREFETCHED
from millstream.engine.lanes import prefetch
from millstream.engine.lanes.prefetch import (
    Piece,
    Prefetched,
    Prefetcher,
    SourcePrefetcher,
    Track,
    concat_rows,
    fits,
)
from millstream.schema import Schema
from millstream.sources.decode import Decoder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.sources.decode import Report, Rows
    from millstream.sources.spec import Ranges

TOPIC = "rows"
DECODER = Decoder(0, TOPIC, Schema.parse("n long not null, ts timestamp"), "ts", None)
Patch = pytest.MonkeyPatch


@pytest.fixture(autouse=True)
def found(monkeypatch: Patch) -> list[str]:
    """Prefetch pieces of any size; the list has one entry per piece."""
    points: list[str] = []
    monkeypatch.setattr(prefetch, "LEAST", 1)
    monkeypatch.setattr(prefetch, "reached", lambda point, batch: points.append(point))
    return points


class Fed:
    """A topic of two partitions in memory, and one thread that prefetches it."""

    def __init__(self) -> None:
        self.log = Log()
        self.reader = PrefetchableReader(self.log, TOPIC)
        for partition in (0, 1):
            self.log.partition(TOPIC, partition)
        self.source = SourcePrefetcher(TOPIC, lambda: self.reader.prefetch_reader(()), DECODER)
        self.at = {0: 0, 1: 0}

    def feed(self, partition: int, rows: int) -> None:
        for _ in range(rows):
            number = len(self.log.partition(TOPIC, partition))
            row = {"n": number, "ts": number * 1000}
            value = b"{" if number % 7 == 3 else json.dumps(row).encode()
            record = {"key": None, "value": value, "headers": None, "timestamp": None}
            self.log.append(TOPIC, partition, record)

    def ends(self) -> dict[int, int]:
        return self.reader.extent().end

    def take(self, upto: dict[int, int], **track: Any) -> Prefetched:
        """What a batch up to these ends gets; the next one starts there."""
        ranges = {p: (self.at[p], end) for p, end in upto.items() if end > self.at[p]}
        self.at |= upto
        return self.source.take(ranges, replace(Track(self.at.copy(), "first"), **track))

    def started(self) -> None:
        self.take({})


@pytest.fixture
def fed() -> Iterator[Fed]:
    made = Fed()
    yield made
    made.source.close()


def read(fed: Fed, ranges: Ranges) -> Rows:
    return DECODER(fed.reader.table(ranges))


def plain(rows: Rows) -> tuple[Any, ...]:
    """Everything about rows except the time it took."""
    bad = sorted(rows.bad.to_pylist(), key=lambda one: (one["partition"], one["offset"]))
    return rows.good.to_pylist(), bad, counted(rows.report)


def counted(report: Report) -> tuple[Any, ...]:
    parts = {p: (part.rows, part.bad) for p, part in report.parts.items()}
    return report.rows, report.bytes, report.extra, report.times, parts


def whole(fed: Fed, taken: Prefetched, ranges: Ranges) -> Rows:
    parts = [*taken.rows, *([read(fed, taken.left)] if taken.left or not taken.rows else [])]
    return concat_rows(parts, partitions=len(ranges))


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_a_batch_gets_the_rows_of_its_ranges_however_much_was_prefetched(
    data: st.DataObject,
) -> None:
    fed = Fed()
    try:
        fed.started()
        for _ in range(data.draw(st.integers(1, 6))):
            for partition in (0, 1):
                fed.feed(partition, data.draw(st.integers(0, 9)))
            if data.draw(st.booleans(), label="wait"):
                until(lambda: fed.source._at == fed.ends(), "all prefetched")
            ends = {p: data.draw(st.integers(fed.at[p], end)) for p, end in fed.ends().items()}
            ranges = {p: (fed.at[p], end) for p, end in ends.items() if end > fed.at[p]}
            taken = fed.take(ends)
            assert plain(whole(fed, taken, ranges)) == plain(read(fed, ranges))
    finally:
        fed.source.close()


def test_a_batch_gets_all_prefetched_rows(fed: Fed, found: list[str]) -> None:
    fed.feed(0, 3)
    fed.started()
    until(lambda: bool(found), "a piece")

    taken = fed.take({0: 3})

    assert taken.left == {}
    assert [rows.report.rows for rows in taken.rows] == [3]
    assert found == [PREFETCHED]


def test_a_batch_that_ends_inside_a_piece_reads_its_rows_itself(fed: Fed, found: list[str]) -> None:
    fed.feed(0, 5)
    fed.started()
    until(lambda: bool(found), "a piece")

    assert fed.take({0: 2}) == Prefetched((), {0: (0, 2)})

    until(lambda: len(found) == 2, "the rest as another piece")
    assert [rows.good["n"].to_pylist() for rows in fed.take({0: 5}).rows] == [[2, 4]]


@pytest.mark.parametrize(
    "other",
    [
        {"identity": "second"},
        {"skips": {0: {1: ("step", "reason")}}},
        {"ends": {0: 3, 1: 0, 2: 0}},
    ],
    ids=["another topic of that name", "rows to skip", "another partition"],
)
def test_rows_prefetched_for_another_track_are_dropped(
    fed: Fed, found: list[str], other: dict[str, Any]
) -> None:
    fed.feed(0, 3)
    fed.started()
    until(lambda: bool(found), "a piece")

    assert fed.take({0: 3}, **other).left == {0: (0, 3)}


def test_after_stop_a_batch_gets_nothing_and_nothing_is_read(fed: Fed, found: list[str]) -> None:
    fed.feed(0, 3)
    fed.started()
    until(lambda: bool(found), "a piece")
    fed.source.stop()
    fed.feed(0, 3)

    assert fed.take({0: 6}).left == {0: (0, 6)}
    assert len(found) == 1


def test_a_read_for_a_replaced_track_is_dropped(fed: Fed, monkeypatch: Patch) -> None:
    asked, go_on = threading.Event(), threading.Event()
    wait = LogPrefetchReader.wait

    def slow(self: LogPrefetchReader, starts: Any, **how: int) -> Any:
        found = wait(self, starts, **how)
        if found is not None and not asked.is_set():
            asked.set()
            go_on.wait(60)
        return found

    monkeypatch.setattr(LogPrefetchReader, "wait", slow)
    fed.feed(0, 4)
    fed.started()
    asked.wait(60)
    assert fed.take({0: 4}).left == {0: (0, 4)}
    go_on.set()
    fed.feed(0, 2)
    until(lambda: fed.source._at[0] == 6, "the rows after it")

    assert sum(rows.report.rows for rows in fed.take({0: 6}).rows) == 2


def test_after_a_failed_prefetch_the_batch_reads_itself_and_prefetching_starts_again(
    fed: Fed, monkeypatch: Patch
) -> None:
    tries: list[int] = []
    wait = LogPrefetchReader.wait

    def failing(self: LogPrefetchReader, starts: Any, **how: int) -> Any:
        tries.append(1)
        if len(tries) == 1:
            raise OSError("the broker is down")
        return wait(self, starts, **how)

    monkeypatch.setattr(LogPrefetchReader, "wait", failing)
    fed.feed(0, 2)
    fed.started()
    until(lambda: fed.source._track is None, "the prefetcher to give up")
    assert fed.take({0: 2}).left == {0: (0, 2)}
    fed.feed(0, 3)
    until(lambda: fed.source._at.get(0) == 5, "all rows")

    assert fed.take({0: 5}).left == {}


def test_prefetching_stops_when_its_buffer_is_full(
    fed: Fed, found: list[str], monkeypatch: Patch
) -> None:
    monkeypatch.setattr(prefetch, "MOST", 1)
    fed.feed(0, 20)
    fed.started()
    until(lambda: bool(found), "a piece")

    assert fed.source._at == {0: 5, 1: 0}
    assert fed.take({0: 20}).left == {0: (5, 20)}


def test_the_thread_ends_with_its_run(fed: Fed) -> None:
    fed.started()
    fed.source.close()

    assert not fed.source._thread.is_alive()


def test_a_source_is_prefetched_unless_its_rows_depend_on_the_batch_clock() -> None:
    reader = PrefetchableReader(Log(), TOPIC)
    clocked = Prefetcher({TOPIC: reader}, {TOPIC: replace(DECODER, ahead=1, by_clock=True)})
    plain = Prefetcher({TOPIC: reader}, {TOPIC: DECODER})
    try:
        for _ in range(3):
            clocked.take(TOPIC, {}, Track({0: 0}, None))
        assert threads() == []
        for _ in range(2):
            plain.take(TOPIC, {}, Track({0: 0}, None))
        assert threads() == [f"prefetch {TOPIC}"]
    finally:
        clocked.close()
        plain.close()
    assert threads() == []


def threads() -> list[str]:
    return [one.name for one in threading.enumerate() if one.name.startswith("prefetch ")]


def test_a_piece_fits_only_at_the_start_of_ranges(fed: Fed) -> None:
    fed.feed(0, 5)
    piece = Piece({0: (2, 4)}, read(fed, {0: (2, 4)}), 10)

    assert fits(piece, {0: 2, 1: 7}, {0: (2, 4), 1: (7, 9)})
    assert fits(piece, {0: 2}, {0: (0, 9)})
    assert not fits(piece, {0: 3}, {0: (3, 9)})
    assert not fits(piece, {0: 1}, {0: (1, 9)})
    assert not fits(piece, {0: 2}, {0: (2, 3)})
    assert not fits(piece, {1: 2}, {1: (2, 9)})
