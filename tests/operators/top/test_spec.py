"""`.top` without Spark: stories, then a plain sort over random rows, cuts and ranges."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from itertools import groupby, pairwise
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.operators.windows import tables
from tests.operators.windows.counting import calls
from tests.operators.windows.driving import Driver

from millstream.errors import InvalidSpec
from millstream.event_time.batch_time import END_OF_TIME, MIN_TIME, BatchTime
from millstream.operators.top.kernel import TopKernel
from millstream.operators.top.spec import Top, top

Row = dict[str, Any]
BOUND = pa.timestamp("us", tz="UTC")
COLUMNS = pa.schema(
    [
        ("k", pa.string()),
        ("window_start", BOUND),
        ("window_end", BOUND),
        ("total", pa.float64()),
        ("parts", pa.list_(pa.int64())),
    ]
)
ORIGIN = ("_source", "_partition", "_offset", "_sub")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def made(n: int) -> TopKernel:
    return TopKernel(Top(n, "total"), COLUMNS)


def row(key: str, end: int, total: float | None, *, start: int | None = None, sub: int = 0) -> Row:
    bounds = (end - 10 if start is None else start, end)
    first, last = (EPOCH + timedelta(microseconds=bound) for bound in bounds)
    origin = {"_source": -1, "_partition": 0, "_offset": end - 1, "_sub": sub}
    return {"k": key, "window_start": first, "window_end": last, "total": total,
            "parts": [end], "_time": end - 1, **origin}  # fmt: skip


def left(driver: Driver, rows: list[Row], *, before: int, after: int) -> list[Row]:
    found = driver.step(tables.table(rows, COLUMNS), before=before, after=after)
    every = [row for table in found.tables for row in table.to_pylist()]
    return sorted(every, key=lambda row: tuple(row[name] for name in ORIGIN))


def test_the_largest_rows_of_a_window_are_emitted_when_the_watermark_has_passed_it() -> None:
    with Driver(made(2)) as driver:
        rows = [row("a", 10, 1.0, sub=1), row("b", 10, 3.0, sub=2), row("c", 20, 9.0, sub=3)]
        assert left(driver, rows, before=0, after=9) == []
        found = left(driver, [row("d", 10, 4.0, sub=4)], before=9, after=10)
        assert [(r["k"], r["total"], r["_sub"]) for r in found] == [("d", 4.0, 0), ("b", 3.0, 1)]
        assert [r["k"] for r in left(driver, [], before=10, after=20)] == ["c"]


def test_null_is_the_smallest_nan_the_largest_and_equal_values_are_ordered_by_origin() -> None:
    values = {"n": None, "x": 1.0, "y": 1.0, "i": math.inf, "q": math.nan}
    rows = [row(key, 10, value, sub=-place) for place, (key, value) in enumerate(values.items())]
    with Driver(made(9), slices=2) as driver:
        found = left(driver, rows, before=0, after=END_OF_TIME)
    assert [r["k"] for r in found] == ["q", "i", "y", "x", "n"]


def test_of_equal_rows_the_first_by_origin_is_kept_in_any_order_of_arrival() -> None:
    rows = [row("later", 10, 1.0, sub=5), row("first", 10, 1.0, sub=1)]
    with Driver(made(1)) as driver:
        found = left(driver, rows, before=0, after=END_OF_TIME)
    assert [r["k"] for r in found] == ["first"]


def test_windows_with_the_same_end_are_separate_and_rows_of_one_origin_all_count() -> None:
    rows = [row("a", 10, 1.0, start=0), row("b", 10, 2.0, start=5), row("c", 10, 0.5, start=5)]
    with Driver(made(2), ranges=2) as driver:
        assert left(driver, rows, before=0, after=0) == []
        found = left(driver, [row("d", 10, 0.7, start=5)], before=0, after=10)
    assert [(r["k"], r["_sub"]) for r in found] == [("a", 0), ("b", 1), ("d", 2)]


def test_a_row_is_not_confused_with_a_larger_one_of_its_origin() -> None:
    with Driver(made(1)) as driver:
        smaller, larger, largest = (row("a", 10, total) for total in (1.0, 5.0, 9.0))
        assert left(driver, [smaller, larger], before=0, after=0) == []
        found = left(driver, [largest], before=0, after=10)
    assert [r["total"] for r in found] == [9.0]


@settings(max_examples=40, deadline=None)
@given(
    count=st.integers(0, 60),
    seed=st.integers(0, 10**9),
    n=st.integers(1, 5),
    shares=st.lists(st.floats(0, 1), max_size=4),
    watermarks=st.lists(st.integers(0, 50), max_size=6),
    ranges=st.integers(1, 3),
    slices=st.integers(1, 3),
    merge_every=st.integers(0, 2),
)
def test_any_batches_give_what_a_sort_gives(
    count: int,
    seed: int,
    n: int,
    shares: list[float],
    watermarks: list[int],
    ranges: int,
    slices: int,
    merge_every: int,
) -> None:
    random = Random(seed)
    totals = [None, math.nan, *(float(value) for value in range(6))]
    rows = [
        row(str(place), 10 * random.randint(1, 4), random.choice(totals), sub=place)
        for place in range(count)
    ]
    edges = [0, *sorted(int(share * count) for share in shares), count, count]
    after = [*sorted(watermarks)[: len(edges) - 2], END_OF_TIME]
    after = [MIN_TIME] * (len(edges) - 1 - len(after)) + after
    found, late, before = [], [], MIN_TIME
    with Driver(made(n), ranges=ranges, slices=slices, merge_every=merge_every) as driver:
        for (low, high), upto in zip(pairwise(edges), after, strict=True):
            step = driver.step(tables.table(rows[low:high], COLUMNS), before=before, after=upto)
            found += [r["k"] for table in step.tables for r in table.to_pylist()]
            late += [r["k"] for r, windows in step.late if windows is None]
            before = upto
        assert not driver.manifests["rows"].runs
    on_time = [r for r in rows if r["k"] not in late]
    on_time.sort(key=lambda r: (r["_time"], _descending(r["total"]), r["_sub"]))
    by_window = [list(group) for _, group in groupby(on_time, key=lambda r: r["_time"])]
    assert sorted(found) == sorted(r["k"] for group in by_window for r in group[:n])


def _descending(total: float | None) -> tuple[int, float]:
    if total is None:
        return (2, 0.0)
    return (0, 0.0) if math.isnan(total) else (1, -total)


def test_the_number_of_calls_does_not_grow_with_the_number_of_rows() -> None:
    def work(count: int) -> int:
        table = tables.table([row("a", 10, 1.0)], COLUMNS).take(pa.array([0] * count))
        with Driver(made(10), ranges=2) as driver:

            def two_batches() -> None:
                driver.step(table, before=MIN_TIME, after=0)
                driver.step(table, before=0, after=END_OF_TIME)

            return calls(two_batches)

    work(10)
    assert work(100_000) < 2 * work(1_000)


def test_a_batch_keeps_no_more_than_the_largest() -> None:
    rows = [row(str(place), 10, float(place), sub=place) for place in range(50)]
    with Driver(made(3), slices=3) as driver:
        assert driver.step(tables.table(rows, COLUMNS), before=0, after=0).gained == 3


def test_a_spec_prints_as_it_is_written() -> None:
    assert str(top(3, by="total")) == 'top(3, by="total")'


@pytest.mark.parametrize("n", [0, -1, 1.5, True, None, 2**31])
def test_an_invalid_number_of_rows_is_refused(n: Any) -> None:
    with pytest.raises(InvalidSpec, match="top needs a number of rows from 1"):
        top(n, by="total")


@pytest.mark.parametrize("by", ["", " ", None, 3])
def test_a_column_without_a_name_is_refused(by: Any) -> None:
    with pytest.raises(InvalidSpec, match="the `by` of top needs the name of a column"):
        top(3, by=by)


@pytest.mark.parametrize(
    ("by", "schema", "message"),
    [
        ("nowhere", COLUMNS, "the `by` of top needs a column of its input; got 'nowhere'"),
        ("parts", COLUMNS, "the `by` of top needs a column of numbers, text, bytes, times"),
        ("v", pa.schema([("v", pa.int64())]), "top needs the results of a window; got rows"),
    ],
)
def test_an_unsupported_stream_is_refused(by: str, schema: pa.Schema, message: str) -> None:
    with pytest.raises(InvalidSpec, match=message):
        TopKernel(Top(3, by), schema)


def test_retracted_rows_are_refused() -> None:
    rows = tables.table([row("a", 10, 1.0) | {"_sign": -1}], COLUMNS)
    with pytest.raises(InvalidSpec, match="top needs rows that are never retracted"):
        made(3).prepare(rows, BatchTime(0, 0, 0))
