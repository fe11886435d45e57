"""The join of two streams at size: calls, one hot key, bounded pieces, state that is cleaned."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.operators.windows.counting import calls
from tests.operators.windows.driving import Driver

from millstream.event_time.batch_time import END_OF_TIME, MIN_TIME, BatchTime
from millstream.operators.joins import results
from millstream.operators.joins.interval import pairs
from millstream.operators.joins.interval.kernel import IntervalKernel
from millstream.operators.joins.interval.spec import Interval

LEFT = pa.schema([("user", pa.int64()), ("word", pa.int64())])
RIGHT = pa.schema([("user", pa.int64()), ("page", pa.int64())])


def kernel(within: tuple[int, int], how: Any = "inner") -> IntervalKernel:
    return IntervalKernel(
        Interval((("user", "user"),), within, how), (LEFT, RIGHT), (("t", 0), ("u", 0))
    )


def rows(users: Any, times: Any, columns: pa.Schema, *, first: int = 0) -> pa.Table:
    numbers = np.arange(first, first + len(users), dtype=np.int64)
    zeros = np.zeros(len(users), np.int64)
    return pa.table(
        {
            "user": pa.array(np.asarray(users, np.int64)),
            columns.names[1]: numbers,
            "_time": pa.array(np.asarray(times, np.int64)),
            "_source": pa.array(zeros.astype(np.int32)),
            "_partition": pa.array(zeros.astype(np.int32)),
            "_offset": numbers,
            "_sub": zeros,
        }
    )


@pytest.mark.parametrize("how", ["inner", "full"])
def test_the_number_of_calls_does_not_grow_with_the_number_of_keys(how: Any) -> None:
    def work(keys: int) -> int:
        users = np.arange(2 * keys) % keys
        left, right = rows(users, users * 0, LEFT), rows(users, users * 0 + 5, RIGHT)

        def batches() -> None:
            with Driver(kernel((0, 9), how)) as driver:
                driver.step((left, right), before=MIN_TIME, after=2)
                driver.step((right.rename_columns(left.column_names), left.rename_columns(
                    right.column_names)), before=2, after=8)  # fmt: skip
                driver.step((left.slice(0, 0), right.slice(0, 0)), before=8, after=99)

        return calls(batches)

    work(10)
    assert work(100_000) < 2 * work(1_000)


@pytest.mark.parametrize("across", [False, True])
def test_one_key_with_half_of_all_rows_is_emitted_in_bounded_pieces(
    monkeypatch: pytest.MonkeyPatch, *, across: bool
) -> None:
    """2 000 rows of the hot key match 2 000 each: four million pairs, a few megabytes at a time."""
    for module in (results, pairs):
        monkeypatch.setattr(module, "CHUNK_BYTES", 4 << 20)
    users = np.where(np.arange(4_000) % 2, 7, np.arange(4_000) + 100)
    left, right = rows(users, users * 0, LEFT), rows(users, users * 0, RIGHT)
    made = kernel((-1, 1))
    found = largest = 0
    with Driver(made) as driver:
        if across:
            driver.step((left, right.slice(0, 0)), before=MIN_TIME, after=0)
            left = left.slice(0, 0)
        views = {name: driver._view(name, (0, 16)) for name in made.tables}
        batch_time = BatchTime(0, 0, 0)
        sides = [[made.prepare(table, batch_time, side).exchange]
                 for side, table in enumerate((left, right))]  # fmt: skip
        for table in made.run(sides, views, batch_time).results:
            found += table.num_rows
            largest = max(largest, table.nbytes)
    assert found == 2_000 * 2_000 + 2_000
    assert largest < 6 << 20


def test_the_state_is_bounded_by_within_and_both_watermarks() -> None:
    users = np.arange(100)
    largest = 0
    with Driver(kernel((0, 50), "full"), merge_every=2) as driver:
        before = MIN_TIME
        for batch in range(40):
            at = users * 0 + 10 * batch
            left = rows(users, at, LEFT, first=100 * batch)
            right = rows(users, at + 5, RIGHT, first=100 * batch)
            driver.step((left, right), before=before, after=10 * batch)
            before = 10 * batch
            held = [driver._view(name, (0, 16)).rows for name in ("left", "right")]
            largest = max(largest, *held)
        assert largest <= 100 * (50 + 26 + 20) // 10
        nothing = (left.slice(0, 0), right.slice(0, 0))
        driver.step(nothing, before=before, after=END_OF_TIME)
        assert all(not manifest.runs for manifest in driver.manifests.values())


def test_a_batch_far_apart_in_time_reads_only_the_cells_its_rows_can_reach() -> None:
    with Driver(kernel((0, 9))) as driver:
        users, spread = np.zeros(1_000, np.int64), np.arange(1_000) * 10**12
        driver.step((rows(users, spread, LEFT), rows([], [], RIGHT)), before=MIN_TIME, after=0)
        left = driver.step((rows([], [], LEFT), rows(users, spread + 9, RIGHT)), before=0, after=0)
    assert sum(table.num_rows for table in left.tables) == 1_000
