"""The row that counts, without Spark: stories, then the oracle over random changes and cuts."""

from __future__ import annotations

import math
import random
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from tests.operators.windows import tables
from tests.operators.windows.driving import Driver
from tests.oracles.tables_oracle import Change, CurrentRows, MaterializedView

from millstream.event_time.batch_time import END_OF_TIME, MIN_TIME
from millstream.operators.tables.current_kernel import DAY, CurrentKernel
from millstream.operators.tables.spec import Current

USERS = pa.schema([("id", pa.int64()), ("name", pa.string()), ("n", pa.float64())])
ENGINE = {**tables.ENGINE, "_position": pa.int64()}
SCHEMA = pa.schema([*USERS, *ENGINE.items()])
Row = dict[str, Any]


def row(change: Change) -> Row:
    """A change as the engine hands it to the kernel."""
    (key,) = change.key
    return {
        "id": key,
        **(change.row or {}),
        "_source": 0,
        "_partition": change.partition,
        "_offset": change.offset,
        "_sub": 0,
        "_sign": -1 if change.row is None else 1,
        "_time": change.time,
        "_position": change.position,
    }


def table(changes: list[Change]) -> pa.Table:
    return pa.Table.from_pylist([row(change) for change in changes], schema=SCHEMA)


def sets(key: int | None, name: str, time: int, offset: int, **more: Any) -> Change:
    return Change((key,), {"name": name, "n": 1.0}, time, offset, **more)


def deletes(key: int, time: int, offset: int, **more: Any) -> Change:
    return Change((key,), None, time, offset, **more)


def current(**options: Any) -> Driver:
    return Driver(CurrentKernel(Current(("id",), **options), SCHEMA))


def left(driver: Driver, *changes: Change, after: int = 0) -> list[tuple[Any, ...]]:
    found = driver.step(table(list(changes)), before=MIN_TIME, after=after)
    return [(r["_sign"], r["id"], r["name"], r["_time"]) for r in found.rows]


def test_a_new_row_retracts_the_old_one_and_a_delete_only_retracts() -> None:
    with current() as driver:
        assert left(driver, sets(1, "a", 10, 0)) == [(1, 1, "a", 10)]
        assert left(driver, sets(1, "b", 20, 1)) == [(-1, 1, "a", 20), (1, 1, "b", 20)]
        assert left(driver, deletes(1, 30, 2)) == [(-1, 1, "b", 30)]
        assert left(driver, deletes(1, 40, 3)) == []
        assert left(driver, sets(1, "c", 50, 4)) == [(1, 1, "c", 50)]


def test_a_batch_emits_its_net_changes_or_each_change() -> None:
    changes = [sets(1, "a", 10, 0), sets(1, "b", 20, 1), deletes(1, 30, 2), sets(1, "c", 40, 3)]

    with current() as driver:
        assert left(driver, *changes) == [(1, 1, "c", 40)]
    with current(each=True) as driver:
        assert left(driver, *changes) == [
            (1, 1, "a", 10), (-1, 1, "a", 20), (1, 1, "b", 20), (-1, 1, "b", 30), (1, 1, "c", 40),
        ]  # fmt: skip


def test_an_older_change_has_no_effect_however_late_it_arrives() -> None:
    with current() as driver:
        left(driver, sets(1, "b", 20, 0), deletes(2, 20, 1))
        assert left(driver, sets(1, "a", 10, 2), sets(2, "a", 10, 3)) == []
        again = driver.step(table([sets(1, "a", 10, 4)]), before=MIN_TIME, after=0)
        assert again.gained == 0


def test_among_changes_of_one_time_the_source_position_decides_then_the_offset() -> None:
    with current() as driver:
        assert left(driver, sets(1, "b", 10, 0, position=7))[0][2] == "b"
        assert left(driver, sets(1, "a", 10, 1, position=6), sets(1, "x", 10, 2)) == []
        assert left(driver, sets(1, "c", 10, 3, position=7))[-1][2] == "c"


def test_a_change_read_again_changes_nothing() -> None:
    with current() as driver:
        left(driver, sets(1, "a", 10, 0, position=5))
        assert left(driver, sets(1, "a", 10, 9, position=5)) == []


def test_a_deleted_key_is_dropped_a_day_after_the_watermark_has_passed_it() -> None:
    with current() as driver:
        left(driver, sets(1, "a", 10, 0), deletes(1, 20, 1), sets(2, "b", 10, 2), after=20)
        assert left(driver, after=20 + DAY) == []
        assert left(driver, sets(1, "old", 15, 3), after=20 + DAY) == []
        left(driver, after=21 + DAY)
        assert left(driver, sets(1, "old", 15, 4), after=21 + DAY) == [(1, 1, "old", 15)]
        assert left(driver, sets(2, "c", 30, 5), after=END_OF_TIME)[-1] == (1, 2, "c", 30)


def test_a_deleted_key_is_in_no_table_once_it_is_dropped() -> None:
    with Driver(CurrentKernel(Current(("id",)), SCHEMA), merge_every=1) as driver:
        left(driver, sets(1, "a", 10, 0), deletes(1, 20, 1), after=20)
        assert driver.manifests["deleted"].runs != ()
        left(driver, after=21 + DAY)
        left(driver, after=22 + DAY)
        assert driver.manifests["deleted"].runs == ()
        assert sum(run.rows for run in driver.manifests["rows"].runs) == 0


def test_an_old_delete_is_applied_and_dropped_at_once() -> None:
    with Driver(CurrentKernel(Current(("id",)), SCHEMA), merge_every=1) as driver:
        left(driver, sets(1, "a", 10, 0), after=3 * DAY)
        found = driver.step(table([deletes(1, 20, 1)]), before=3 * DAY, after=3 * DAY)
        assert ([r["_sign"] for r in found.rows], found.gained) == ([-1], 1)
        left(driver, after=3 * DAY)
        assert driver.manifests["deleted"].runs == ()
        assert sum(run.rows for run in driver.manifests["rows"].runs) == 0


@pytest.mark.parametrize("after", [20, 2 * DAY])
def test_a_key_that_was_written_again_is_not_dropped(after: int) -> None:
    with current() as driver:
        left(driver, deletes(1, 20, 0), deletes(2, 20, 1), after=20)
        left(driver, sets(1, "a", 30, 2), deletes(2, 5 * DAY, 3), after=after)
        left(driver, after=3 * DAY)
        assert left(driver, sets(1, "b", 40, 4), after=3 * DAY)[0] == (-1, 1, "a", 40)
        assert left(driver, sets(2, "old", 4 * DAY, 5), after=3 * DAY) == []


def test_by_origin_the_last_row_counts_whatever_its_time() -> None:
    plain = pa.schema([f for f in SCHEMA if f.name not in ("_sign", "_position")])
    kernel = CurrentKernel(Current(("id",), "origin"), plain)
    with Driver(kernel, slices=2) as driver:
        changes = [sets(1, "new", 5, 8), sets(1, "old", 50, 2), sets(None, "none", 1, 9)]
        rows = table(changes).select(plain.names)
        found = driver.step(rows, before=MIN_TIME, after=0).rows
        assert sorted((r["_sign"], r["name"]) for r in found) == [(1, "new"), (1, "none")]
        again = table([sets(1, "newer", 1, 20)]).select(plain.names)
        found = driver.step(again, before=MIN_TIME, after=0).rows
        assert [(r["_sign"], r["name"]) for r in found] == [(-1, "new"), (1, "newer")]


@pytest.mark.parametrize("kind", sorted(tables.KEY_TYPES))
def test_keys_of_every_type_are_distinguished_also_nested_ones_and_nulls(
    kind: str,
) -> None:
    choices: dict[str, list[Any]] = {
        "long": [0, 5],
        "text": ["", "é"],
        "double": [0.5, math.nan],
        "boolean": [True, False],
        "decimal": [Decimal("1.10"), Decimal("-2.00")],
        "date": [date(1, 1, 1), date(2, 1, 1)],
        "nested": [{"a": 1.0, "b": ["x", None]}, {"a": None, "b": []}],
    }
    schema = pa.schema([("k", tables.KEY_TYPES[kind]), ("k2", pa.string()), ("v", pa.int64()),
                        *ENGINE.items()])  # fmt: skip
    keys = [(k, k2) for k in (*choices[kind], None) for k2 in ("x", None)]
    engine = {**row(sets(0, "", 0, 0)), "_sign": 1}
    rows = [{**engine, "k": k, "k2": k2, "v": v, "_time": v, "_offset": 10 * v + place}
            for v in (1, 2) for place, (k, k2) in enumerate(keys)]  # fmt: skip
    with Driver(CurrentKernel(Current(("k", "k2")), schema), ranges=2, slices=3) as driver:
        found = driver.step(pa.Table.from_pylist(rows, schema=schema), before=MIN_TIME, after=0)
        gone = [{**engine, "k": k, "k2": k2, "_sign": -1, "_time": 3} for k, k2 in keys]
        after = driver.step(pa.Table.from_pylist(gone, schema=schema), before=MIN_TIME, after=0)

    assert [r["v"] for r in found.rows] == [2] * len(keys)
    assert [(r["v"], r["_sign"]) for r in after.rows] == [(2, -1)] * len(keys)


@pytest.mark.parametrize("seed", range(12))
def test_random_changes_in_any_batches_give_the_oracles_rows(seed: int) -> None:
    choose = random.Random(seed)
    changes = [
        Change(
            (choose.randrange(6),),
            None if choose.random() < 0.3 else {"name": choose.choice("abc"), "n": 1.0},
            choose.randrange(40),
            offset,
            choose.randrange(2),
            choose.choice([None, -2, 1]),
        )
        for offset in range(120)
    ]
    changes.sort(key=lambda change: (change.partition, change.offset))
    each = bool(seed % 2)
    oracle, view, emitted = CurrentRows(), MaterializedView(), 0
    kernel = CurrentKernel(Current(("id",), each=each), SCHEMA)
    with Driver(kernel, ranges=1 + seed % 3, slices=1 + seed % 4, merge_every=3) as driver:
        while changes:
            size = choose.randrange(1, 30)
            batch, changes = changes[:size], changes[size:]
            for change in batch:
                oracle.take(change)
            rows = driver.step(table(batch), before=MIN_TIME, after=0).rows
            for r in rows:
                view.apply((r["id"],), {"name": r["name"], "n": r["n"]}, r["_sign"])
            emitted += len({(r["id"], r["_partition"], r["_offset"]) for r in rows})
            assert view.rows == oracle.rows
    assert emitted == len(oracle.changes) if each else emitted <= len(oracle.changes)
