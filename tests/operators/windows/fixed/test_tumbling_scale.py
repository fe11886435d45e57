"""Many keys, long keys, large outputs: work goes by arrays, and output comes in pieces."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from tests.operators.windows.counting import calls
from tests.operators.windows.driving import Driver

from millstream.event_time.batch_time import END_OF_TIME, MIN_TIME
from millstream.operators.aggregates import aggregation
from millstream.operators.aggregates import functions as aggregates
from millstream.operators.windows.fixed.tumbling_kernel import TumblingKernel
from millstream.operators.windows.spec import Tumbling

if TYPE_CHECKING:
    import pytest

COLUMNS = pa.schema([("k", pa.int64()), ("s", pa.string()), ("v", pa.float64())])
ANSWERS: dict[str, aggregates.Aggregate] = {
    "n": aggregates.count(),
    "total": aggregates.sum("v"),
    "least": aggregates.min("s"),
    "most": aggregates.max("v"),
}


def made(keys: list[str]) -> TumblingKernel:
    return TumblingKernel(Tumbling(1000), keys, ANSWERS, COLUMNS)


def rows(count: int, keys: int, *, window: int = 0) -> pa.Table:
    random = np.random.default_rng(7)
    chosen = random.permutation(np.arange(count, dtype=np.int64) % keys)
    return pa.table(
        {
            "k": chosen,
            "s": pa.array(chosen % 1000).cast(pa.string()),
            "v": np.ones(count),
            "_time": window * 1000 + np.arange(count, dtype=np.int64) % 1000,
        }
    )


def two_batches(keys: int) -> int:
    """Calls for a batch that opens windows for all keys, and one that adds to and closes them."""
    first, second = rows(2 * keys, keys), rows(2 * keys, keys)
    with Driver(made(["k", "s"]), ranges=2) as driver:

        def work() -> None:
            driver.step(first, before=MIN_TIME, after=0)
            left = driver.step(second, before=0, after=1000)
            assert sum(table.num_rows for table in left.tables) == keys

        return calls(work)


def test_the_number_of_calls_does_not_grow_with_the_number_of_keys() -> None:
    two_batches(10)
    few, many = two_batches(1_000), two_batches(100_000)
    assert many < 2 * few


def test_a_million_keys_of_one_row_and_one_key_of_a_million_rows_finish_quickly() -> None:
    started = time.process_time()
    for keys in (1_000_000, 1):
        with Driver(made(["k"])) as driver:
            driver.step(rows(1_000_000, keys), before=MIN_TIME, after=0)
            left = driver.step(rows(0, 1), before=0, after=END_OF_TIME)
        counts = pa.concat_tables(left.tables)["n"].to_numpy()
        assert len(counts) == keys
        assert set(counts.tolist()) == {1_000_000 // keys}
    assert time.process_time() - started < 20


def test_results_are_emitted_in_bounded_pieces_in_order_of_window_and_hash(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(aggregation, "CHUNK_BYTES", 20_000)
    both = pa.concat_tables([rows(2_000, 2_000), rows(2_000, 2_000, window=1)])
    with Driver(made(["k"])) as driver:
        driver.step(both, before=MIN_TIME, after=0)
        left = driver.step(both, before=0, after=END_OF_TIME)

    assert len(left.tables) > 10
    assert max(table.nbytes for table in left.tables) <= 20_000
    starts = np.concatenate([t["window_start"].cast(pa.int64()).to_numpy() for t in left.tables])
    assert (np.diff(starts) >= 0).all()
    assert {r["n"] for r in left.rows} == {2}
    assert len(left.rows) == 4_000


def test_state_read_in_many_pieces_meets_the_batch_in_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "millstream.state.runs.view.View.scan.__kwdefaults__", {"max_bytes": 10_000}
    )
    with Driver(made(["k"]), ranges=2) as driver:
        driver.step(rows(3_000, 3_000), before=MIN_TIME, after=0)
        driver.step(rows(1_000, 1_000), before=0, after=0)
        left = driver.step(rows(3_500, 3_500), before=0, after=END_OF_TIME)

    assert len(left.tables) > 4
    found = {r["k"]: r["n"] for r in left.rows}
    assert len(left.rows) == 3_500
    assert found == {key: 1 + (key < 3_000) + (key < 1_000) for key in range(3_500)}
