"""Aggregates over many keys and over one of a million rows: arrays do the work."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from tests.operators.aggregates.accumulating import Accumulating
from tests.operators.windows.counting import calls
from tests.operators.windows.driving import Driver

import millstream as ms
from millstream.event_time.batch_time import END_OF_TIME, MIN_TIME
from millstream.operators.windows.fixed.tumbling_kernel import TumblingKernel
from millstream.operators.windows.spec import Tumbling

if TYPE_CHECKING:
    from millstream.operators.aggregates.functions import Aggregate

COLUMNS = pa.schema(
    [("k", pa.int64()), ("v", pa.float64()), ("n", pa.int64()), ("s", pa.string()),
     ("_source", pa.int32()), ("_partition", pa.int32()), ("_offset", pa.int64()),
     ("_sub", pa.int64())]
)  # fmt: skip
BOUNDED: dict[str, Aggregate] = {
    "variance": ms.variance("v"),
    "stddev": ms.stddev("n"),
    "first": ms.first("s"),
    "last": ms.last("v"),
    "ten": ms.collect("s", limit=10),
    "approx_distinct": ms.approx_distinct("n"),
    "approx_quantile": ms.approx_quantile("v", 0.9),
    "largest": ms.largest("v", 5),
    "smallest": ms.smallest("s", 5),
}
GROWING: dict[str, Aggregate] = {
    "collect": ms.collect("n"),
    "count_distinct": ms.count_distinct("s"),
    "quantile": ms.quantile("v", 0.9),
    "frequent": ms.frequent("s", 5),
}
ALL = BOUNDED | GROWING


def rows(count: int, keys: int, *, first: int = 0) -> pa.Table:
    rng = np.random.default_rng(first)
    numbers = rng.integers(0, 1_000_000, count)
    return pa.table(
        {
            "k": rng.permutation(np.arange(count, dtype=np.int64) % keys),
            "v": numbers / 8,
            "n": numbers,
            "s": pa.array(numbers % 1000).cast(pa.string()),
            "_source": np.zeros(count, np.int64),
            "_partition": np.arange(count) % 3,
            "_offset": np.arange(first, first + count),
            "_sub": np.zeros(count, np.int64),
            "_time": np.full(count, 5, np.int64),
        }
    )


@pytest.mark.parametrize("retractable", [False, True])
@pytest.mark.parametrize("name", ALL)
def test_the_number_of_calls_does_not_grow_with_the_number_of_keys(
    name: str, *, retractable: bool
) -> None:
    if retractable and not ALL[name].can_retract:
        return

    def work(keys: int) -> int:
        one, other = rows(2 * keys, keys), rows(2 * keys, keys, first=2 * keys)

        def both() -> None:
            made = Accumulating({name: ALL[name]}, COLUMNS, retractable=retractable)
            state = made.merged([made.lifted(one), made.lifted(other)])
            assert len(made.made[name].finish(state)) == keys

        return calls(both)

    work(10)
    assert work(100_000 if name in ("first", "quantile") else 20_000) < 2 * work(1_000)


def test_one_key_of_a_million_rows_takes_seconds_and_a_state_as_large_as_it_must_be() -> None:
    million = rows(1_000_000, 1)
    started = time.process_time()
    made = Accumulating(ALL, COLUMNS)
    pieces = [made.lifted(million.slice(at, 250_000)) for at in range(0, 1_000_000, 250_000)]
    state = made.merged(pieces)
    for accumulator in made.made.values():
        accumulator.finish(state)
    assert time.process_time() - started < 60

    small = Accumulating(BOUNDED, COLUMNS).parts
    assert sum(state[name].nbytes for name in small if not name.startswith("_v:buckets")) < 20_000
    assert state["_v:buckets:0.01"].nbytes < 12 * 2_000
    assert state["_n:rows"].nbytes < 41 * 1_000_000
    assert state["_s:bag"].nbytes < 20 * 1_000


def test_through_files_slices_ranges_and_merges_the_results_are_those_of_one_piece() -> None:
    whole = Accumulating(ALL, COLUMNS)
    batches = [rows(300, 20, first=300 * at) for at in range(6)]
    expected = whole.answers(whole.lifted(pa.concat_tables(batches)))
    kernel = TumblingKernel(Tumbling(10), ["k"], ALL, COLUMNS)
    with Driver(kernel, ranges=3, slices=2, merge_every=2) as driver:
        for batch in batches:
            driver.step(batch, before=MIN_TIME, after=0)
        left = driver.step(rows(0, 1), before=0, after=END_OF_TIME)
    found = {row["k"]: {name: row[name] for name in ALL} for row in left.rows}
    for answers in expected.values():
        for name in ("variance", "stddev"):
            answers[name] = pytest.approx(answers[name], rel=1e-12)
    assert len(found) == 20
    assert found == expected
