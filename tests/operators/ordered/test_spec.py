"""`.ordered()` without Spark: stories, then the oracle over random rows, cuts and ranges."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.operators.windows import tables
from tests.operators.windows.counting import calls
from tests.operators.windows.driving import Driver
from tests.oracles import sliding as oracle

from millstream.errors import InvalidSpec
from millstream.event_time.batch_time import END_OF_TIME, MIN_TIME, BatchTime
from millstream.operators import waiting
from millstream.operators.ordered.kernel import OrderedKernel
from millstream.operators.ordered.spec import Ordered, ordered

Row = dict[str, Any]
COLUMNS = pa.schema(
    [("n", pa.int64()), ("s", pa.string()), ("deep", pa.struct([("a", pa.list_(pa.float64()))]))]
)


def made() -> OrderedKernel:
    return OrderedKernel(Ordered(), COLUMNS)


def row(n: int, at: int, *, partition: int = 0, source: int = 0, sub: int = 0) -> Row:
    origin = {"_source": source, "_partition": partition, "_offset": n, "_sub": sub}
    return {"n": n, "s": None if n % 3 == 0 else str(n), "deep": {"a": [n / 2]}, "_time": at,
            **origin}  # fmt: skip


def left_in_order(driver: Driver, rows: list[Row], *, before: int, after: int) -> list[int]:
    left = driver.step(tables.table(rows, COLUMNS), before=before, after=after)
    return [found["n"] for found in _by_origin(left.rows)]


def _by_origin(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: tuple(row[name] for name in oracle.ORIGIN))


def test_rows_wait_until_the_watermark_has_passed_them_and_are_emitted_in_order_of_time() -> None:
    with Driver(made()) as driver:
        assert left_in_order(driver, [row(0, 30), row(1, 10)], before=0, after=10) == []
        assert left_in_order(driver, [row(2, 10), row(3, 5)], before=10, after=11) == [1, 2]
        assert left_in_order(driver, [], before=11, after=31) == [0]


def test_a_row_at_the_watermark_is_on_time_and_one_behind_it_late() -> None:
    with Driver(made()) as driver:
        rows = tables.table([row(0, 9), row(1, 10)], COLUMNS)
        left = driver.step(rows, before=10, after=11)
        assert [found["n"] for found in left.rows] == [1]
        assert [(late["n"], windows) for late, windows in left.late] == [(0, None)]
        assert left.held == END_OF_TIME


def test_rows_of_one_time_are_emitted_in_order_of_origin_and_numbered() -> None:
    rows = [
        row(3, 7, partition=1),
        row(9, 7),
        row(0, 7, source=1),
        row(4, 7, sub=1),
        row(4, 7, sub=0),
    ]
    with Driver(made(), ranges=3) as driver:
        driver.step(tables.table(rows[:2], COLUMNS), before=0, after=0)
        left = driver.step(tables.table(rows[2:], COLUMNS), before=0, after=8)
    found = [(r["n"], [r[name] for name in oracle.ORIGIN]) for r in _by_origin(left.rows)]
    assert found == [
        (4, [-1, 0, 7, 0]),
        (4, [-1, 0, 7, 1]),
        (9, [-1, 0, 7, 2]),
        (3, [-1, 0, 7, 3]),
        (0, [-1, 0, 7, 4]),
    ]


def test_results_of_a_step_that_share_an_origin_are_all_kept_in_order_of_arrival() -> None:
    def result(n: int) -> Row:
        return row(0, 7, source=-1, sub=5) | {"n": n}

    with Driver(made(), ranges=2) as driver:
        assert left_in_order(driver, [result(1), result(2)], before=0, after=0) == []
        assert left_in_order(driver, [result(3), row(0, 7)], before=0, after=7) == []
        assert left_in_order(driver, [result(4)], before=7, after=8) == [1, 2, 3, 4, 0]


@settings(max_examples=40, deadline=None)
@given(
    places=st.lists(
        st.tuples(st.integers(-9, 9), st.integers(0, 1), st.integers(0, 1)), max_size=40
    ),
    shares=st.lists(st.floats(0, 1), max_size=4),
    watermarks=st.lists(st.integers(-10, 10), max_size=6),
    ranges=st.integers(1, 3),
    slices=st.integers(1, 3),
    merge_every=st.integers(0, 2),
)
def test_every_batch_gives_what_the_oracle_gives(
    places: list[tuple[int, int, int]],
    shares: list[float],
    watermarks: list[int],
    ranges: int,
    slices: int,
    merge_every: int,
) -> None:
    rows = [row(n, at, partition=p, source=s) for n, (at, p, s) in enumerate(places)]
    edges = [0, *sorted(int(share * len(rows)) for share in shares), len(rows), len(rows)]
    after = [*sorted(watermarks)[: len(edges) - 2], END_OF_TIME]
    after = [MIN_TIME] * (len(edges) - 1 - len(after)) + after
    cut = [rows[low:high] for low, high in pairwise(edges)]
    batches = list(zip(cut, [MIN_TIME, *after[:-1]], after, strict=True))
    expected = oracle.ordered(batches)
    late = []
    with Driver(made(), ranges=ranges, slices=slices, merge_every=merge_every) as driver:
        for number, (batch, before, upto) in enumerate(batches):
            left = driver.step(tables.table(batch, COLUMNS), before=before, after=upto)
            late += [found["n"] for found, _ in left.late]
            wanted = [leaving for leaving, _ in expected.left[number]]
            found = _by_origin(left.rows)
            assert [_user(r) for r in found] == [_user(r) for r in wanted]
            assert [r["_time"] for r in found] == [r["_offset"] for r in found]
            earlier: Counter[int] = Counter()
            for one in found:
                assert (one["_source"], one["_partition"]) == (-1, 0)
                assert one["_sub"] == earlier[one["_time"]]
                earlier[one["_time"]] += 1
        assert all(not manifest.runs for manifest in driver.manifests.values())
    assert sorted(late) == sorted(r["n"] for r in expected.late)


def _user(row: Row) -> tuple[Any, ...]:
    return (row["n"], row["s"], row["deep"], row["_time"])


def test_the_number_of_calls_does_not_grow_with_the_number_of_rows() -> None:
    def work(count: int) -> int:
        with Driver(made(), ranges=2) as driver:
            first, second = many(count), many(count)

            def two_batches() -> None:
                driver.step(first, before=MIN_TIME, after=0)
                driver.step(second, before=0, after=END_OF_TIME)

            return calls(two_batches)

    work(10)
    assert work(100_000) < 2 * work(1_000)


def many(count: int) -> pa.Table:
    numbers = np.arange(count, dtype=np.int64)
    origin = {"_source": np.int32, "_partition": np.int32, "_offset": np.int64, "_sub": np.int64}
    columns = {name: pa.array(np.zeros(count, kind)) for name, kind in origin.items()}
    columns |= {"_offset": pa.array(numbers), "_time": pa.array(numbers[::-1] // 10)}
    deep = pa.nulls(count, COLUMNS.field("deep").type)
    return pa.table({"n": numbers, "s": pa.nulls(count, pa.string()), "deep": deep, **columns})


def test_results_are_emitted_in_pieces_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "CHUNK_BYTES", 20_000)
    with Driver(made()) as driver:
        left = driver.step(many(5_000), before=MIN_TIME, after=END_OF_TIME)
    assert len(left.tables) > 5
    assert max(table.nbytes for table in left.tables) < 40_000
    times = np.concatenate([table["_time"].to_numpy() for table in left.tables])
    assert (np.diff(times) >= 0).all()


def test_the_output_has_the_columns_of_the_input_and_an_origin() -> None:
    assert made().output().names == ["n", "s", "deep", *oracle.ORIGIN]
    with_origin = pa.schema([("_offset", pa.int64()), *COLUMNS])
    assert OrderedKernel(ordered(), with_origin).output() == made().output()
    assert str(ordered()) == "ordered()"


def test_rows_before_the_watermark_are_due() -> None:
    assert made().due(7) == 7


def test_after_the_finish_every_row_is_late_also_one_at_the_end_of_time() -> None:
    rows = tables.table([row(0, 0), row(1, END_OF_TIME)], COLUMNS)
    prepared = made().prepare(rows, BatchTime(END_OF_TIME, END_OF_TIME, 0))
    assert prepared.late.tolist() == [0, 1]
    assert prepared.exchange.num_rows == 0


def test_retracted_rows_are_refused() -> None:
    rows = tables.table([row(0, 0) | {"_sign": -1}], COLUMNS)
    with pytest.raises(InvalidSpec, match="ordered needs rows that are never retracted"):
        made().prepare(rows, BatchTime(0, 0, 0))


def test_a_stream_without_event_time_is_refused() -> None:
    rows = tables.table([row(0, 0)], COLUMNS).drop_columns(["_time"])
    with pytest.raises(InvalidSpec, match="ordered needs rows with an event time"):
        made().prepare(rows, BatchTime(0, 0, 0))
