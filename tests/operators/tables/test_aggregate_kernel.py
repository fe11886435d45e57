"""Aggregates without a window, folds and changelogs, without Spark, against plain Python."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from tests.operators.windows import tables
from tests.operators.windows.driving import Driver
from tests.oracles.tables_oracle import MaterializedView, tallied

import millstream as ms
from millstream.errors import InvalidInput
from millstream.event_time.batch_time import MIN_TIME
from millstream.operators.tables.aggregate_kernel import TableAggregateKernel
from millstream.operators.tables.changelog_kernel import ChangelogKernel
from millstream.operators.tables.fold_kernel import FoldKernel
from millstream.operators.tables.spec import folded

ORIGIN = {"_source": 0, "_partition": 0, "_sub": 0}
SALES = pa.schema([("city", pa.string()), ("n", pa.int64()), *tables.ENGINE.items()])
Row = dict[str, Any]


def sale(city: str | None, n: int, offset: int, sign: int = 1, time: int = 0) -> Row:
    return {"city": city, "n": n, **ORIGIN, "_offset": offset, "_sign": sign, "_time": time}


def step(driver: Driver, rows: list[Row], schema: pa.Schema = SALES) -> list[Row]:
    table = pa.Table.from_pylist(rows, schema=schema)
    return driver.step(table, before=MIN_TIME, after=0).rows


def tally(*, retractable: bool = True) -> TableAggregateKernel:
    answers: dict[str, Any] = {"n": ms.count(), "total": ms.sum("n"), "mean": ms.mean("n"),
               "least": ms.min("n"), "most": ms.max("n")}  # fmt: skip
    return TableAggregateKernel(("city",), answers, SALES, retractable=retractable)


def test_a_count_decreases_when_a_row_leaves_its_group_and_an_empty_group_is_deleted() -> None:
    with Driver(tally()) as driver:
        first = step(driver, [sale("a", 1, 0, time=5), sale("a", 2, 1, time=9)])
        assert [(r["_sign"], r["n"], r["total"], r["_time"]) for r in first] == [(1, 2, 3, 9)]
        second = step(driver, [sale("a", 2, 1, -1, time=11), sale("b", 2, 1, time=11)])
        emitted = sorted((r["city"], r["_sign"], r["n"], r["most"]) for r in second)
        assert emitted == [("a", -1, 2, 2), ("a", 1, 1, 1), ("b", 1, 1, 2)]
        third = step(driver, [sale("a", 1, 0, -1)])
        assert [(r["_sign"], r["n"]) for r in third] == [(-1, 1)]
        assert [(r["_sign"], r["n"]) for r in step(driver, [sale("a", 7, 3)])] == [(1, 1)]


def test_a_row_added_and_retracted_in_one_batch_changes_nothing() -> None:
    with Driver(tally()) as driver:
        step(driver, [sale("a", 1, 0)])
        assert step(driver, [sale("a", 5, 1), sale("a", 5, 1, -1), sale("b", 5, 1)])[0]["n"] == 1
        assert step(driver, [sale("b", 5, 1, -1), sale("b", 5, 2)]) == []


@pytest.mark.parametrize("seed", range(8))
def test_random_rows_added_and_retracted_give_the_oracles_results(seed: int) -> None:
    choose = random.Random(seed)
    there: list[Row] = []
    signed: list[tuple[Row, int]] = []
    view = MaterializedView()
    with Driver(tally(), ranges=1 + seed % 3, slices=1 + seed % 2, merge_every=2) as driver:
        for offset in range(0, 200, 20):
            batch = []
            for number in range(choose.randrange(1, 20)):
                if there and choose.random() < 0.45:
                    gone = there.pop(choose.randrange(len(there)))
                    batch.append({**gone, "_sign": -1})
                else:
                    new = sale(choose.choice(["a", "b", "c", None]), choose.randrange(5),
                               offset + number)  # fmt: skip
                    there.append(new)
                    batch.append(new)
            signed += [(row, row["_sign"]) for row in batch]
            for r in step(driver, batch):
                answer = {name: r[name] for name in ("n", "total", "mean", "least", "most")}
                view.apply((r["city"],), answer, r["_sign"])
            expected = tallied(signed, "city", "n")
            assert {key: row for (key,), row in view.rows.items()} == expected


def test_a_row_of_a_table_is_retracted_by_another_change_than_it_was_added() -> None:
    schema = pa.schema([("id", pa.int64()), *SALES])
    kernel = TableAggregateKernel(
        ("city",), {"all": ms.collect("n")}, schema, retractable=True, of=["id"]
    )
    with Driver(kernel) as driver:
        step(driver, [{"id": 1, **sale("a", 5, 0)}, {"id": 2, **sale("a", 5, 1)}], schema)
        rows = step(
            driver, [{"id": 1, **sale("a", 5, 7, -1)}, {"id": 1, **sale("a", 6, 7)}], schema
        )

    assert sorted(rows[-1]["all"]) == [5, 6]


def test_a_group_whose_rows_were_all_retracted_is_not_in_the_state() -> None:
    with Driver(tally(), merge_every=2) as driver:
        step(driver, [sale("a", 1, 0)])
        step(driver, [sale("a", 1, 0, -1)])
        assert sum(run.rows for run in driver.manifests["rows"].runs) == 0


def test_changes_are_emitted_once_as_insert_update_or_delete() -> None:
    with Driver(ChangelogKernel(("city",), SALES), slices=3) as driver:
        rows = [sale("a", 1, 0), sale("a", 1, 1, -1, 5), sale("a", 2, 1, 1, 5), sale("b", 3, 2),
                sale("b", 3, 7, -1), sale("c", 4, 8, -1), sale("c", 4, 8)]  # fmt: skip
        emitted = [(r["change"], r["city"], r["n"], r["_sign"]) for r in step(driver, rows)]

    assert sorted(emitted) == [
        ("delete", "b", 3, 1), ("insert", "a", 1, 1), ("insert", "b", 3, 1), ("update", "a", 2, 1),
    ]  # fmt: skip


def test_a_steps_changes_of_a_key_in_one_batch_are_one_change() -> None:
    with Driver(ChangelogKernel(("city",), SALES)) as driver:
        rows = [{**sale("a", 1, 3, -1, 5), "_source": -1}, {**sale("a", 2, 9, 1, 6), "_source": -1}]
        emitted = [(r["change"], r["city"], r["n"]) for r in step(driver, rows)]

    assert emitted == [("update", "a", 2)]


def added(state: Row, row: Row) -> Row:
    return {"total": state["total"] + row["n"], "last": row["n"]}


def test_a_fold_continues_from_its_last_state_in_order_of_origin() -> None:
    spec = folded(("city",), {"total": 0, "last": 0}, added, None)
    plain = pa.schema([f for f in SALES if f.name != "_sign"])
    with Driver(FoldKernel(spec, plain), slices=2) as driver:
        rows = [{**sale("a", 2, 3), "_partition": 1}, sale("a", 1, 5, time=8), sale("b", 9, 4)]
        first = step(driver, rows, plain)
        second = step(driver, [sale("a", 4, 6, time=7)], plain)

    assert sorted((r["city"], r["total"], r["last"]) for r in first) == [("a", 3, 2), ("b", 9, 9)]
    assert [(r["_sign"], r["total"], r["last"], r["_time"]) for r in second] == [
        (-1, 3, 2, 8), (1, 7, 4, 8),
    ]  # fmt: skip


@pytest.mark.parametrize("given", [None, {"total": 1, "other": 2}, {"total": "x", "last": 0}])
def test_a_fold_that_returns_something_other_than_its_state_is_refused(given: Any) -> None:
    spec = folded(("city",), {"total": 0, "last": 0}, lambda _state, _row: given, None)
    plain = pa.schema([f for f in SALES if f.name != "_sign"])
    with Driver(FoldKernel(spec, plain)) as driver, pytest.raises(InvalidInput, match="fold"):
        step(driver, [sale("a", 2, 5)], plain)
