"""Distinct without Spark: stories, then the oracle over random rows, cuts and ranges."""

from __future__ import annotations

import time
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
from tests.oracles import distinct_oracle

from millstream.errors import InvalidSpec
from millstream.event_time.batch_time import END_OF_TIME, MIN_TIME, BatchTime
from millstream.operators.distinct import kernel as distinct_kernel
from millstream.operators.distinct.kernel import DistinctKernel
from millstream.operators.distinct.spec import Distinct
from millstream.state.sorting import arrange

Row = dict[str, Any]
CLICKS = pa.schema([("id", pa.string()), ("n", pa.int64())])


def click(offset: int, key: str | None = "a", at: int = 0, *, partition: int = 0) -> Row:
    origin = {"_source": 0, "_partition": partition, "_offset": offset, "_sub": 0}
    return {"id": key, "n": offset, "_time": at, **origin}


def passed(driver: Driver, rows: list[Row], *, before: int = MIN_TIME, after: int = 0) -> list[int]:
    left = driver.step(tables.table(rows, CLICKS), before=before, after=after)
    return [row["n"] for row in left.rows]


def test_without_within_the_first_row_of_a_key_passes_and_no_other_ever() -> None:
    with Driver(DistinctKernel(Distinct(("id",)), CLICKS)) as driver:
        assert passed(driver, [click(0), click(1), click(2, "b"), click(3, None)]) == [0, 2, 3]
        assert passed(driver, [click(4), click(5, None), click(6, "c")], after=10**15) == [6]
        assert passed(driver, [click(7)], before=10**15, after=END_OF_TIME) == []


def test_rows_are_taken_in_order_of_origin_not_of_arrival() -> None:
    with Driver(DistinctKernel(Distinct(("id",)), CLICKS), slices=2) as driver:
        rows = [click(9), click(2, partition=1), click(3), click(1, "b", partition=1)]
        assert passed(driver, rows) == [3, 1]


def test_a_row_exactly_within_away_is_a_repeat_and_one_further_away_is_not() -> None:
    with Driver(DistinctKernel(Distinct(("id",), within=10), CLICKS)) as driver:
        rows = [click(0, at=100), click(1, at=110), click(2, at=111), click(3, at=89)]
        assert passed(driver, rows, after=50) == [0, 2, 3]
        again = [click(4, at=121), click(5, at=122), click(6, at=79), click(7, at=78)]
        assert passed(driver, again, before=50, after=50) == [5, 7]


def test_only_rows_that_passed_make_repeats() -> None:
    with Driver(DistinctKernel(Distinct(("id",), within=10), CLICKS)) as driver:
        rows = [click(0, at=100), click(1, at=108), click(2, at=116)]
        assert passed(driver, rows) == [0, 2]


def test_a_row_is_late_when_its_time_and_within_are_behind_the_watermark() -> None:
    with Driver(DistinctKernel(Distinct(("id",), within=10), CLICKS)) as driver:
        rows = [click(0, at=89), click(1, "b", at=90)]
        left = driver.step(tables.table(rows, CLICKS), before=100, after=100)

    assert [(row["n"], windows) for row, windows in left.late] == [(0, None)]
    assert [row["n"] for row in left.rows] == [1]


def test_a_pass_is_kept_as_long_as_an_on_time_row_can_be_near_it() -> None:
    with Driver(DistinctKernel(Distinct(("id",), within=10), CLICKS)) as driver:
        assert passed(driver, [click(0, at=100)], after=120) == [0]
        assert passed(driver, [click(1, at=110)], before=120, after=120) == []
        # The pass is in the cell [99, 110): none of its times matters from 109 + 2 × 10 + 1 on.
        driver.step(tables.table([], CLICKS), before=120, after=129)
        assert driver.manifests["rows"].runs != ()
        driver.step(tables.table([], CLICKS), before=129, after=130)
        assert driver.manifests["rows"].runs == ()


def test_a_pass_that_is_dropped_at_once_never_reaches_the_state() -> None:
    with Driver(DistinctKernel(Distinct(("id",), within=10), CLICKS)) as driver:
        rows = tables.table([click(0, at=100), click(1, at=500)], CLICKS)
        assert driver.step(rows, before=MIN_TIME, after=500).gained == 1
        assert driver.step(rows, before=500, after=END_OF_TIME).gained == 0
        assert driver.manifests["rows"].runs == ()


def test_nothing_waits_for_the_watermark() -> None:
    for within in (None, 10):
        assert DistinctKernel(Distinct(("id",), within), CLICKS).due(END_OF_TIME) == MIN_TIME


def test_passing_rows_keep_their_columns_and_time_and_do_not_hold_back_the_watermark() -> None:
    made = DistinctKernel(Distinct(("id",), within=10), CLICKS)
    with Driver(made) as driver:
        left = driver.step(tables.table([click(3, at=7)], CLICKS), before=MIN_TIME, after=0)

    assert left.rows == [{"id": "a", "n": 3, "_time": 7, "_sign": 1}]
    assert left.held == END_OF_TIME
    assert left.tables[0].schema.remove_metadata() == pa.schema(
        [*made.output(), ("_time", pa.int64()), ("_sign", pa.int8())]
    )


def test_a_stream_without_event_time_passes_rows_without_one() -> None:
    made = DistinctKernel(Distinct(("id",)), CLICKS)
    rows = [{name: value for name, value in click(n).items() if name != "_time"} for n in (1, 2)]
    with Driver(made) as driver:
        left = driver.step(tables.table(rows, CLICKS), before=MIN_TIME, after=MIN_TIME)
    assert left.rows == [{"id": "a", "n": 1, "_time": None, "_sign": 1}]

    timed = DistinctKernel(Distinct(("id",), within=1), CLICKS)
    with pytest.raises(InvalidSpec, match="needs rows with an event time"):
        timed.prepare(tables.table(rows, CLICKS), BatchTime(MIN_TIME, MIN_TIME, 0))


def test_repeats_that_can_never_pass_do_not_reach_the_shuffle() -> None:
    batch_time = BatchTime(MIN_TIME, MIN_TIME, 0)
    clicks = [click(n, at=5) for n in range(3)] + [click(3, at=6)]
    rows = tables.table(clicks + [click(n, "b") for n in range(4, 7)], CLICKS)

    ever = DistinctKernel(Distinct(("id",)), CLICKS).prepare(rows, batch_time).exchange
    assert ever["n"].to_pylist() == [0, 4]
    within = DistinctKernel(Distinct(("id",), within=10), CLICKS).prepare(rows, batch_time).exchange
    assert within["n"].to_pylist() == [0, 3, 4]


def test_a_few_repeats_are_shuffled_and_found_afterwards() -> None:
    rows = [click(n, str(n)) for n in range(9)] + [click(9, "0")]
    kernel = DistinctKernel(Distinct(("id",)), CLICKS)
    batch_time = BatchTime(MIN_TIME, MIN_TIME, 0)
    assert kernel.prepare(tables.table(rows, CLICKS), batch_time).exchange.num_rows == 10
    with Driver(kernel) as driver:
        left = driver.step(tables.table(rows, CLICKS), before=MIN_TIME, after=MIN_TIME)
    assert [row["n"] for row in left.rows] == list(range(9))


@pytest.mark.parametrize(("keys", "sorted_"), [(14_000, False), (2_000, True)])
def test_rows_are_sorted_before_the_shuffle_only_where_many_repeat(
    keys: int, sorted_: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 10,000 draws from 14,000 keys 28 of 100 are repeats, from 2,000 keys 80."""
    seen: list[int] = []

    def watched(orders: Any, *rest: Any) -> Any:
        seen.append(len(orders))
        return arrange(orders, *rest)

    monkeypatch.setattr(distinct_kernel, "arrange", watched)
    drawn = np.random.default_rng(3).integers(0, keys, 10_000)
    rows = [click(n, str(key)) for n, key in enumerate(drawn)]
    kernel = DistinctKernel(Distinct(("id",)), CLICKS)
    left = kernel.prepare(tables.table(rows, CLICKS), BatchTime(MIN_TIME, MIN_TIME, 0)).exchange

    assert seen == ([10_000] if sorted_ else [])
    assert left.num_rows == (len(np.unique(drawn)) if sorted_ else 10_000)


def test_retracted_rows_and_unknown_columns_are_refused() -> None:
    rows = tables.table([{**click(0), "_sign": -1}], CLICKS)
    with pytest.raises(InvalidSpec, match="never retracted"):
        DistinctKernel(Distinct(("id",)), CLICKS).prepare(rows, BatchTime(MIN_TIME, MIN_TIME, 0))
    with pytest.raises(InvalidSpec, match="distinct needs columns of its input; got city; choose"):
        DistinctKernel(Distinct(("id", "city")), CLICKS)


def weak_hash(_columns: list[pa.Array], count: int) -> Any:
    return np.full(count, 2**64 // 3, np.uint64)


near = st.integers(-40, 40)
far = st.sampled_from([MIN_TIME, MIN_TIME + 5, END_OF_TIME - 5, END_OF_TIME])
marks = st.integers(-60, 60) | st.sampled_from([MIN_TIME, END_OF_TIME - 1, END_OF_TIME])


@settings(max_examples=200)
@given(data=st.data())
def test_passing_and_late_rows_are_the_oracles_for_any_rows_batches_and_ranges(
    data: st.DataObject,
) -> None:
    kind = data.draw(st.sampled_from(["long", "text", "double", "decimal", "nested"]))
    columns = pa.schema([("k", tables.KEY_TYPES[kind]), ("k2", pa.string()), ("n", pa.int64())])
    by = data.draw(st.sampled_from([["k"], ["k", "k2"]]))
    within = data.draw(st.none() | st.integers(0, 12) | st.just(2**59))
    origin = st.permutations(range(10))
    row = st.fixed_dictionaries(
        {"k": tables.keys(kind), "k2": st.sampled_from([None, "x"]), "_time": near | far}
    )
    edges = [MIN_TIME, *sorted(data.draw(st.lists(marks, min_size=1, max_size=4)))]
    batches, number = [], 0
    for _ in edges[1:]:
        places = data.draw(origin)
        rows = data.draw(st.lists(row, max_size=10))
        batches.append([
            {**r, "n": number + n, "_source": 0, "_partition": places[n] % 2,
             "_offset": number + places[n], "_sub": 0} for n, r in enumerate(rows)
        ])  # fmt: skip
        number += 10
    cut = {"ranges": data.draw(st.sampled_from([1, 2, 5])), "slices": data.draw(st.integers(1, 3)),
           "merge_every": data.draw(st.sampled_from([0, 2]))}  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        if data.draw(st.booleans()):
            patch.setattr(distinct_kernel, "hash_keys", weak_hash)
        with Driver(DistinctKernel(Distinct(tuple(by), within), columns), **cut) as driver:
            lefts = [
                driver.step(tables.table(rows, columns), before=before, after=after)
                for rows, before, after in zip(batches, edges[:-1], edges[1:], strict=True)
            ]

    wanted = distinct_oracle.distinct(
        list(zip(batches, edges[:-1], strict=True)), by=by, within=within
    )
    assert [sorted(r["n"] for r in left.rows) for left in lefts] == [
        sorted(r["n"] for r in rows) for rows in wanted.passed
    ]
    late = [row["n"] for left in lefts for row, _ in left.late]
    assert sorted(late) == sorted(row["n"] for row in wanted.late)


@settings(max_examples=60)
@given(
    steps=st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 9)), max_size=25),
    within=st.integers(0, 12),
    cuts=st.tuples(*[st.lists(st.integers(0, 25), max_size=5).map(sorted)] * 2),
)
def test_the_same_rows_pass_for_any_batches_when_none_is_later_than_declared(
    steps: list[tuple[str, int]], within: int, cuts: tuple[list[int], list[int]]
) -> None:
    delay, largest, rows = 4, 0, []
    for offset, (key, ahead) in enumerate(steps):
        time = largest - delay + ahead
        largest = max(largest, time)
        rows.append(click(offset, key, time))
    found = []
    for places in cuts:
        numbers, before = [], MIN_TIME
        with Driver(DistinctKernel(Distinct(("id",), within), CLICKS)) as driver:
            for low, high in pairwise([0, *places, len(rows)]):
                after = max([before, *(row["_time"] - delay for row in rows[:high])])
                numbers += passed(driver, rows[low:high], before=before, after=after)
                before = after
        found.append(numbers)

    assert found[0] == found[1]


def clicks(count: int, keys: int, *, spread: int) -> pa.Table:
    random = np.random.default_rng(5)
    offsets = np.arange(count, dtype=np.int64)
    return pa.table(
        {
            "id": pa.array(offsets % keys).cast(pa.string()),
            "n": offsets,
            "_time": offsets // keys + random.integers(0, spread, count),
            "_source": pa.array(np.zeros(count), pa.int32()),
            "_partition": pa.array(np.zeros(count), pa.int32()),
            "_offset": offsets,
            "_sub": np.zeros(count, np.int64),
        }
    )


@pytest.mark.parametrize("within", [None, 20])
def test_the_number_of_calls_does_not_grow_with_the_number_of_keys(within: int | None) -> None:
    def batches(keys: int) -> int:
        rows = clicks(4 * keys, keys, spread=50)
        with Driver(DistinctKernel(Distinct(("id",), within), CLICKS)) as driver:
            return calls(
                lambda: [driver.step(rows, before=MIN_TIME, after=MIN_TIME) for _ in range(2)]
            )

    batches(10)
    assert batches(100_000) < 2 * batches(1_000)


@pytest.mark.parametrize(("keys", "spread"), [(1, 1), (1, 500), (1_000_000, 1)])
def test_a_million_rows_of_one_key_and_of_a_million_keys_finish_quickly(
    keys: int, spread: int
) -> None:
    rows = clicks(1_000_000, keys, spread=spread)
    started = time.process_time()
    with Driver(DistinctKernel(Distinct(("id",), within=99), CLICKS)) as driver:
        left = driver.step(rows, before=MIN_TIME, after=0)
    assert time.process_time() - started < 20

    times = np.sort(np.concatenate([table["_time"].to_numpy() for table in left.tables]))
    if keys > 1:
        assert len(times) == keys
    else:
        assert np.diff(times).min() == 100
        assert len(times) >= 1_000_000 // 200


@pytest.mark.parametrize("within", [None, 5])
def test_results_are_emitted_in_bounded_pieces_in_order_of_origin(
    monkeypatch: pytest.MonkeyPatch, within: int | None
) -> None:
    monkeypatch.setattr(distinct_kernel, "CHUNK_BYTES", 10_000)
    with Driver(DistinctKernel(Distinct(("id",), within), CLICKS)) as driver:
        left = driver.step(clicks(3_000, 3_000, spread=1), before=MIN_TIME, after=0)

    assert len(left.tables) > 5
    assert max(table.nbytes for table in left.tables) <= 10_000
    assert [row["n"] for row in left.rows] == list(range(3_000))
