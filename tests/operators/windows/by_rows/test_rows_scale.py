"""Rows, delta, punctuated and sliding windows with many keys, long keys, large outputs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from tests.operators.windows.counting import calls
from tests.operators.windows.driving import Driver

from millstream.event_time.batch_time import END_OF_TIME, MIN_TIME
from millstream.operators.aggregates import functions as aggregates
from millstream.operators.windows import folding, lifted
from millstream.operators.windows.by_rows.delta_kernel import Moved, delta_kernel
from millstream.operators.windows.by_rows.panes_kernel import RowPanesKernel
from millstream.operators.windows.by_rows.punctuated_kernel import punctuated_kernel, punctuating
from millstream.operators.windows.by_rows.rows_kernel import RowsKernel
from millstream.operators.windows.by_rows.spec import Delta, Punctuated, Rows
from millstream.operators.windows.by_rows.touched_windows import CountedWindows, CutWindows
from millstream.operators.windows.sliding import kernel as sliding_kernel
from millstream.operators.windows.sliding.kernel import SlidingKernel
from millstream.operators.windows.sliding.spec import Sliding
from millstream.operators.windows.trigger import AnyOf, Each, Every, Trigger

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.operators.kernel import Kernel
    from millstream.operators.windows.by_rows.touched_windows import Touching
    from millstream.operators.windows.trigger import Panes

COLUMNS = pa.schema(
    [("k", pa.int64()), ("v", pa.float64()), ("l", pa.int64()), ("_punctuation", pa.bool_())]
)
ANSWERS: dict[str, aggregates.Aggregate] = {
    "n": aggregates.count(),
    "total": aggregates.sum("v"),
    "most": aggregates.max("l"),
}


def shown(windows: Touching, panes: Panes = "retracting") -> Kernel:
    """A kernel that shows its windows early: some by their rows, the others by the clock."""
    schema = COLUMNS.append(pa.field("_time", pa.int64()))
    trigger = Trigger(AnyOf((Each(3), Every(2))), None, panes)
    return RowPanesKernel(windows, ["k"], ANSWERS, schema, trigger)


KERNELS: dict[str, Callable[[], Kernel]] = {
    "rows": lambda: RowsKernel(Rows(4, 4), ["k"], ANSWERS, COLUMNS),
    "rows sliding": lambda: RowsKernel(Rows(6, 4), ["k"], ANSWERS, COLUMNS),
    "delta": lambda: delta_kernel(Delta("v", 3), ["k"], ANSWERS, COLUMNS),
    "punctuated": lambda: punctuated_kernel(Punctuated("p"), ["k"], ANSWERS, COLUMNS),
    "all keys": lambda: punctuated_kernel(Punctuated("p", all_keys=True), ["k"], ANSWERS, COLUMNS),
    "sliding": lambda: SlidingKernel(Sliding(1_000), ["k"], ANSWERS, COLUMNS),
}
SHOWN: dict[str, Callable[[], Kernel]] = {
    "rows": lambda: shown(CountedWindows(Rows(4, 4))),
    "rows sliding": lambda: shown(CountedWindows(Rows(6, 4)), "accumulating"),
    "delta": lambda: shown(CutWindows(Moved(Delta("v", 3), COLUMNS))),
    "punctuated": lambda: shown(CutWindows(punctuating(Punctuated("p"))), "discarding"),
    "all keys": lambda: shown(CutWindows(punctuating(Punctuated("p", all_keys=True)))),
}


def rows(count: int, keys: int, *, first: int = 0, marks: int = 7) -> pa.Table:
    """Rows at one microsecond each; a marked one every so often, at least one."""
    numbers = np.arange(first, first + count, dtype=np.int64)
    random = np.random.default_rng(first)
    return pa.table(
        {
            "k": random.permutation(numbers % keys),
            "v": (numbers % 11).astype(np.float64),
            "l": numbers,
            "_punctuation": numbers % marks == 0,
            "_time": numbers,
            "_source": np.zeros(count, np.int32),
            "_partition": np.zeros(count, np.int32),
            "_offset": numbers,
            "_sub": np.zeros(count, np.int64),
        }
    )


def four_batches(made: Kernel, keys: int) -> int:
    """Calls to open windows for all keys, to add to them, for a later clock, for the finish."""
    each, marks = 2 * keys, 2 * keys // 10
    with Driver(made, ranges=2) as driver:
        batches = [rows(each, keys, first=at * each, marks=marks) for at in range(2)]

        def work() -> None:
            driver.step(batches[0], before=MIN_TIME, after=each, clock=0)
            driver.step(batches[1], before=each, after=2 * each, clock=1)
            driver.step(rows(0, 1), before=2 * each, after=2 * each, clock=3)
            driver.step(rows(0, 1), before=2 * each, after=END_OF_TIME, clock=4)

        return calls(work)


@pytest.mark.parametrize("kind", KERNELS)
def test_the_number_of_calls_does_not_grow_with_the_number_of_keys(kind: str) -> None:
    few, many = _calls(KERNELS[kind])
    assert many < 2 * few


@pytest.mark.parametrize("kind", SHOWN)
def test_the_number_of_calls_does_not_grow_with_the_number_of_emitted_keys(kind: str) -> None:
    few, many = _calls(SHOWN[kind])
    assert many < 2 * few


def _calls(made: Callable[[], Kernel]) -> tuple[int, int]:
    four_batches(made(), 10)
    return four_batches(made(), 1_000), four_batches(made(), 100_000)


@pytest.mark.parametrize(
    ("made", "windows"),
    [
        (RowsKernel(Rows(100_000, 1), ["k"], ANSWERS, COLUMNS), 600_000),
        (delta_kernel(Delta("v", 3), ["k"], ANSWERS, COLUMNS), 160_000),
        (punctuated_kernel(Punctuated("p"), ["k"], ANSWERS, COLUMNS), 85_715),
        (SlidingKernel(Sliding(100_000), ["k"], ANSWERS, COLUMNS), 600_000),
    ],
    ids=["rows", "delta", "punctuated", "sliding"],
)
def test_one_key_of_many_rows_finishes_quickly(made: Kernel, windows: int) -> None:
    """Windows of 100 000 rows each: a cost per row of every window would take hours."""
    half = 300_000
    started = time.process_time()
    found = 0
    with Driver(made) as driver:
        for at in range(2):
            before = at * half if at else MIN_TIME
            left = driver.step(rows(half, 1, first=at * half), before=before, after=(at + 1) * half)
            found += sum(table.num_rows for table in left.tables)
        left = driver.step(rows(0, 1), before=2 * half, after=END_OF_TIME)
        found += sum(table.num_rows for table in left.tables)
    assert found >= windows
    assert time.process_time() - started < 60


def test_the_windows_of_one_key_of_many_rows_have_the_right_rows() -> None:
    size, count = 1_000, 30_000
    table = rows(count, 1)
    values = table["v"].to_numpy()
    upto = np.concatenate([[0.0], np.cumsum(values)])
    with Driver(SlidingKernel(Sliding(size), ["k"], ANSWERS, COLUMNS)) as driver:
        driver.step(table.slice(0, 10_000), before=MIN_TIME, after=9_000)
        parts = [driver.step(table.slice(10_000), before=9_000, after=END_OF_TIME)]
    found = pa.concat_tables(parts[0].tables).sort_by("window_end")
    ends = found["window_end"].cast(pa.int64()).to_numpy()
    assert ends.tolist() == list(range(9_000, count))
    lows = np.maximum(0, ends - size + 1)
    assert (found["n"].to_numpy() == ends + 1 - lows).all()
    assert (found["total"].to_numpy() == upto[ends + 1] - upto[lows]).all()
    assert (found["most"].to_numpy() == ends).all()


@pytest.mark.parametrize("kind", KERNELS)
def test_results_are_emitted_in_pieces_of_bounded_size(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (folding, lifted, sliding_kernel):
        monkeypatch.setattr(module, "CHUNK_BYTES", 20_000)
    monkeypatch.setattr(
        "millstream.state.runs.view.View.scan.__kwdefaults__", {"max_bytes": 10_000}
    )
    whole, pieces = (_answers(KERNELS[kind](), cut=cut) for cut in (False, True))
    assert len(pieces) > 3
    assert max(table.nbytes for table in pieces) <= 40_000
    assert _sorted(pieces) == _sorted(whole)


def _answers(made: Kernel, *, cut: bool) -> list[pa.Table]:
    table = rows(6_000, 500)
    with Driver(made, ranges=2, slices=2) as driver:
        if not cut:
            return driver.step(table, before=MIN_TIME, after=END_OF_TIME).tables
        found = driver.step(table.slice(0, 2_000), before=MIN_TIME, after=1_500).tables
        return found + driver.step(table.slice(2_000), before=1_500, after=END_OF_TIME).tables


def _sorted(tables: list[pa.Table]) -> list[Any]:
    return sorted(tuple(row.values()) for table in tables for row in table.to_pylist())
