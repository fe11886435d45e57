"""Sliding windows: what they refuse, then the oracle over random rows, cuts and ranges."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.operators.windows import tables
from tests.operators.windows.by_rows import row_feeding
from tests.operators.windows.by_rows.row_feeding import (
    ANSWERS,
    COLUMNS,
    KEYS,
    batched,
    cuts,
    streams,
)
from tests.operators.windows.driving import Driver
from tests.oracles import sliding as oracle

from millstream.errors import InvalidSpec
from millstream.event_time.batch_time import END_OF_TIME, MIN_TIME, BatchTime
from millstream.operators.windows.sliding.kernel import SlidingKernel
from millstream.operators.windows.sliding.spec import Sliding, sliding

Row = dict[str, Any]


def made(size: int, keys: tuple[str, ...] = ("k",), *, retractable: bool = False) -> SlidingKernel:
    return SlidingKernel(Sliding(size), keys, ANSWERS, COLUMNS, retractable=retractable)


def watermarked(
    batches: list[list[Row]], watermarks: list[int]
) -> list[tuple[list[Row], int, int]]:
    """The batches with rising watermarks, the last of which is the end of time."""
    after = [*sorted(watermarks)[: len(batches) - 1], END_OF_TIME]
    after = [MIN_TIME] * (len(batches) - len(after)) + after
    return list(zip(batches, [MIN_TIME, *after[:-1]], after, strict=True))


@settings(max_examples=30, deadline=None)
@given(
    rows=streams(),
    shares=cuts(),
    watermarks=st.lists(st.integers(-25, 25), max_size=6),
    size=st.integers(1, 45),
    keys=st.sampled_from(KEYS),
    ranges=st.integers(1, 3),
    slices=st.integers(1, 3),
    merge_every=st.integers(0, 2),
)
def test_every_batch_gives_what_the_oracle_gives(
    rows: list[Row],
    shares: list[float],
    watermarks: list[int],
    size: int,
    keys: list[str],
    ranges: int,
    slices: int,
    merge_every: int,
) -> None:
    batches = watermarked(batched(rows, shares), watermarks)
    expected = oracle.sliding(batches, size, partial(row_feeding.key, keys=keys))
    late = []
    made_so = made(size, tuple(keys))
    with Driver(made_so, ranges=ranges, slices=slices, merge_every=merge_every) as driver:
        for number, (batch, before, after) in enumerate(batches):
            left = driver.step(tables.table(batch, COLUMNS), before=before, after=after)
            late += [row["_offset"] for row, _ in left.late]
            assert left.held == END_OF_TIME
            assert Counter(row_feeding.said(row, keys=keys) for row in left.rows) == Counter(
                (*row_feeding.key(row, keys=keys), row["_time"] - size, row["_time"],
                 *row_feeding.answers(window), row["_time"], 1)
                for row, window in expected.left[number]
            )  # fmt: skip
        assert all(not manifest.runs for manifest in driver.manifests.values())
    assert sorted(late) == sorted(row["_offset"] for row in expected.late)


def row(at: int, *, sign: int = 1) -> Row:
    origin = {"_source": 0, "_partition": 0, "_offset": at, "_sub": 0}
    empty = dict.fromkeys(COLUMNS.names)
    return empty | {"k": "a", "l": 1, "_time": at, "_sign": sign, **origin}


def counted(driver: Driver, rows: list[Row], *, before: int, after: int) -> list[tuple[int, int]]:
    left = driver.step(tables.table(rows, COLUMNS), before=before, after=after)
    return [(row["window_end"], row["n"]) for row in left.rows]


def test_a_row_at_the_watermark_is_on_time_and_waits_until_it_has_passed() -> None:
    with Driver(made(10)) as driver:
        assert counted(driver, [row(5)], before=5, after=5) == []
        assert counted(driver, [row(5)], before=5, after=6) == [(5, 2), (5, 2)]
        left = driver.step(tables.table([row(5)], COLUMNS), before=6, after=6)
        assert [late["_time"] for late, windows in left.late if windows is None] == [5]


def test_the_row_exactly_one_size_before_is_outside() -> None:
    with Driver(made(10)) as driver:
        assert counted(driver, [row(0), row(1)], before=0, after=2) == [(0, 1), (1, 2)]
        assert counted(driver, [row(10), row(11)], before=2, after=12) == [(10, 2), (11, 2)]


def test_a_row_retracted_before_it_was_emitted_has_no_result_and_is_in_none() -> None:
    with Driver(made(10, retractable=True)) as driver:
        assert counted(driver, [row(1), row(2)], before=0, after=0) == []
        assert counted(driver, [row(1, sign=-1)], before=0, after=9) == [(2, 1)]


def test_windows_at_the_beginning_and_the_end_of_time_do_not_wrap() -> None:
    with Driver(made(10)) as driver:
        times = [MIN_TIME, MIN_TIME + 3, END_OF_TIME - 1]
        left = driver.step(tables.table([row(at) for at in times], COLUMNS),
                           before=MIN_TIME, after=END_OF_TIME)  # fmt: skip
        found = sorted((row["window_start"], row["window_end"], row["n"]) for row in left.rows)
        assert found == [
            (MIN_TIME, MIN_TIME, 1),
            (MIN_TIME, MIN_TIME + 3, 2),
            (END_OF_TIME - 11, END_OF_TIME - 1, 1),
        ]


def test_after_the_finish_every_row_is_late_also_one_at_the_end_of_time() -> None:
    rows = tables.table([row(0), row(END_OF_TIME)], COLUMNS)
    prepared = made(10).prepare(rows, BatchTime(END_OF_TIME, END_OF_TIME, 0))
    assert prepared.late.tolist() == [0, 1]
    assert prepared.exchange.num_rows == 0


def test_rows_before_the_watermark_are_due() -> None:
    assert made(10).due(7) == 7
    assert made(10).due(END_OF_TIME) == END_OF_TIME


def test_a_spec_prints_as_it_is_written() -> None:
    assert str(sliding(timedelta(minutes=1))) == 'sliding("1 minute")'


@pytest.mark.parametrize("size", ["0 seconds", "-1 second", "ten", "20000000 days", None])
def test_a_size_that_is_not_a_duration_above_zero_is_refused(size: Any) -> None:
    with pytest.raises(InvalidSpec, match="sliding"):
        sliding(size)


def test_a_stream_without_event_time_is_refused() -> None:
    rows = tables.table([row(1)], COLUMNS).drop_columns(["_time"])
    with pytest.raises(InvalidSpec, match="sliding needs rows with an event time"):
        made(10).prepare(rows, BatchTime(0, 0, 0))
