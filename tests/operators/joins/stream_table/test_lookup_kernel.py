"""The join with a table as it is now without Spark: stories, then the oracle."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.operators.windows import tables
from tests.operators.windows.counting import calls
from tests.operators.windows.driving import Driver, Left
from tests.oracles import joins_as_of as oracle

from millstream.errors import InvalidSpec
from millstream.event_time.batch_time import MIN_TIME, BatchTime
from millstream.operators.joins import sides as sides_module
from millstream.operators.joins.stream_table import lookup_kernel
from millstream.operators.joins.stream_table.lookup_kernel import LookupKernel
from millstream.operators.joins.stream_table.spec import Lookup

Row = dict[str, Any]
SALES = pa.schema([("country", pa.string()), ("sale", pa.int64()), ("_time", pa.int64())])
RATES = pa.schema([("country", pa.string()), ("rate", pa.int64())])
ON = (("country", "country"),)


def kernel(how: Any = "inner", sales: pa.Schema = SALES) -> LookupKernel:
    return LookupKernel(Lookup(ON, how), (sales, RATES))


def sale(number: int, country: str | None = "fr") -> Row:
    return {"country": country, "sale": number, **engine(number, 0)}


def rate(value: int, country: str = "fr", sign: int = 1, *, offset: int = 0) -> Row:
    return {"country": country, "rate": value, **engine(offset, 1), "_sign": sign}


def engine(offset: int, source: int) -> Row:
    return {"_time": 7, "_source": source, "_partition": 0, "_offset": offset, "_sub": 0}


def step(driver: Driver, sales: list[Row], rates: list[Row]) -> Left:
    rows = [tables.table(sales, SALES.remove(2)), tables.table(rates, RATES)]
    return driver.step(rows, before=MIN_TIME, after=0)


def answers(left: Left) -> list[tuple[int, int | None]]:
    return sorted(((row["sale"], row["rate"]) for row in left.rows), key=str)


def test_an_event_matches_the_row_its_key_has_in_its_own_batch() -> None:
    with Driver(kernel()) as driver:
        assert answers(step(driver, [sale(1)], [])) == []
        assert answers(step(driver, [sale(2)], [rate(10)])) == [(2, 10)]
        assert answers(step(driver, [sale(3)], [rate(10, sign=-1), rate(20)])) == [(3, 20)]
        assert answers(step(driver, [sale(4)], [])) == [(4, 20)]
        assert answers(step(driver, [sale(5)], [rate(20, sign=-1)])) == []
        assert answers(step(driver, [sale(6)], [])) == []


def test_an_added_row_wins_over_a_retracted_one_in_any_order() -> None:
    for order in ([rate(10, sign=-1), rate(20)], [rate(20), rate(10, sign=-1)]):
        with Driver(kernel(), slices=2) as driver:
            step(driver, [], [rate(10)])
            assert answers(step(driver, [sale(1)], order)) == [(1, 20)]
            assert answers(step(driver, [sale(2)], [])) == [(2, 20)]


def test_left_keeps_events_without_a_row_or_a_key() -> None:
    with Driver(kernel("left")) as driver:
        left = step(driver, [sale(1, "it"), sale(2, None), sale(3)], [rate(10)])
    assert answers(left) == [(1, None), (2, None), (3, 10)]
    assert [row["_time"] for row in left.rows] == [7, 7, 7]
    assert sorted(row["_offset"] for row in left.rows) == [1, 2, 3]


def test_a_null_key_matches_nothing_also_where_the_table_has_one() -> None:
    nobody = {**rate(10), "country": None}
    with Driver(kernel("left")) as driver:
        assert answers(step(driver, [sale(1, None)], [nobody])) == [(1, None)]


def test_events_without_a_time_are_looked_up_too() -> None:
    made = kernel(sales=SALES.remove(2))
    rows = tables.table([sale(1)], SALES.remove(2)).drop_columns(["_time"])
    with Driver(made) as driver:
        found = driver.step([rows, tables.table([rate(5)], RATES)], before=MIN_TIME, after=0).rows
    assert [(row["rate"], row["_time"]) for row in found] == [(5, None)]


def test_what_cannot_be_joined_is_refused() -> None:
    with pytest.raises(InvalidSpec, match="lookup needs names that only one side has"):
        LookupKernel(Lookup(ON), (SALES, SALES))
    rows = tables.table([{**sale(0), "_sign": -1}], SALES.remove(2))
    with pytest.raises(InvalidSpec, match="lookup needs rows that are never retracted"):
        kernel().prepare(rows, BatchTime(0, 0, 0))
    assert kernel().due(5) == MIN_TIME


def weak_hash(_columns: Any, count: int) -> Any:
    return np.full(count, 2**64 // 3, np.uint64)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_all_results_are_the_oracles_for_any_rows_and_ranges(
    data: st.DataObject,
) -> None:
    kind = data.draw(st.sampled_from(["long", "text", "double", "nested"]))
    events = pa.schema([("k", tables.KEY_TYPES[kind]), ("n", pa.int64()), ("_time", pa.int64())])
    table = pa.schema([("key", tables.KEY_TYPES[kind]), ("m", pa.int64())])
    how: Any = data.draw(st.sampled_from(["inner", "left"]))
    batches, number, current = [], 0, dict[str, Row]()
    for _ in range(data.draw(st.integers(1, 4))):
        changes: list[Row] = []
        keys = data.draw(st.lists(tables.keys(kind), max_size=6))
        for key in keys:
            if key is None:
                continue
            number += 1
            old = current.pop(repr(tables.plain(key)), None)
            if old is not None:
                changes.append({**old, **engine(number, 1), "_sign": -1})
            if data.draw(st.booleans()):
                row = {"key": key, "m": number, **engine(number, 1), "_sign": 1}
                current[repr(tables.plain(key))] = row
                changes.append(row)
        drawn = data.draw(st.lists(tables.keys(kind), max_size=6))
        rows = [{"k": key, "n": n, **engine(n, 0)} for n, key in enumerate(drawn)]
        batches.append(oracle.Batch(rows, changes, ((0, 0), (0, 0))))
    cut = {"ranges": data.draw(st.sampled_from([1, 3])), "slices": data.draw(st.integers(1, 2)),
           "merge_every": data.draw(st.sampled_from([0, 2]))}  # fmt: skip
    found = []
    with pytest.MonkeyPatch.context() as patch:
        if data.draw(st.booleans()):
            patch.setattr(sides_module, "hash_keys", weak_hash)
            patch.setattr(lookup_kernel, "hash_keys", weak_hash)
        made = LookupKernel(Lookup((("k", "key"),), how), (events, table))
        with Driver(made, **cut) as driver:
            for batch in batches:
                driver.kernel = made.planned({"current": data.draw(st.sampled_from([0, 10**12]))})
                both = [tables.table(batch.events, events.remove(2)),
                        tables.table(batch.changes, table)]  # fmt: skip
                found.append(driver.step(both, before=MIN_TIME, after=0))
    wanted = oracle.lookup(batches, on=[("k", "key")], how=how)
    for one, other in zip(found, wanted, strict=True):
        assert Counter((r["n"], r["m"]) for r in one.rows) == Counter(
            (event["n"], version and version["m"]) for event, version in other.pairs
        )


def test_the_number_of_calls_does_not_grow_with_the_number_of_keys() -> None:
    def work(keys: int) -> int:
        numbers = np.arange(keys)
        zeros = np.zeros(keys, np.int64)
        places = {"_source": pa.array(zeros.astype(np.int32)),
                  "_partition": pa.array(zeros.astype(np.int32)),
                  "_offset": numbers, "_sub": zeros, "_time": zeros}  # fmt: skip
        names = pa.array(numbers).cast(pa.string())
        sales = pa.table({"country": names, "sale": numbers, **places})
        rates = pa.table({"country": names, "rate": numbers, **places})

        def two_batches() -> None:
            with Driver(kernel()) as driver:
                for _ in range(2):
                    driver.step((sales, rates), before=MIN_TIME, after=0)

        return calls(two_batches)

    work(10)
    assert work(100_000) < 2 * work(1_000)
