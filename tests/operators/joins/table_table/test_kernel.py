"""The join of two tables without Spark: examples and the whole view recomputed after each batch."""

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
from tests.oracles import joins_tables as oracle

from millstream.event_time.batch_time import MIN_TIME, BatchTime
from millstream.operators.joins.table_table import sides as table_sides
from millstream.operators.joins.table_table import view_rows
from millstream.operators.joins.table_table.kernel import TableJoinKernel
from millstream.operators.joins.table_table.spec import table_join

Row = dict[str, Any]
ORDERS = pa.schema([("order", pa.int64()), ("customer", pa.string()), ("sum", pa.int64())])
CUSTOMERS = pa.schema([("id", pa.string()), ("city", pa.string())])


def kernel(how: Any = "inner") -> TableJoinKernel:
    spec = table_join({"customer": "id"}, ("order",), ("id",), how)
    return TableJoinKernel(spec, (ORDERS, CUSTOMERS))


def order(number: int, customer: str | None, total: int = 0, sign: int = 1) -> Row:
    return {"order": number, "customer": customer, "sum": total, **engine(number, 0, sign)}


def customer(name: str, city: str, sign: int = 1) -> Row:
    return {"id": name, "city": city, **engine(7, 1, sign)}


def engine(offset: int, source: int, sign: int) -> Row:
    return {"_time": 5, "_source": source, "_partition": 0, "_offset": offset, "_sub": 0,
            "_sign": sign}  # fmt: skip


def step(driver: Driver, orders: list[Row], customers: list[Row]) -> Left:
    rows = [tables.table(orders, ORDERS), tables.table(customers, CUSTOMERS)]
    return driver.step(rows, before=MIN_TIME, after=0)


def signed(left: Left) -> list[tuple[int, int | None, str | None]]:
    found = [(row["_sign"], row["order"], row["city"]) for row in left.rows]
    assert [sign for sign, _, _ in found] == sorted(sign for sign, _, _ in found)
    return sorted(found, key=str)


def test_a_change_of_the_right_updates_every_left_row_that_refers_to_it() -> None:
    with Driver(kernel()) as driver:
        first = step(driver, [order(1, "ann"), order(2, "ann"), order(3, "bob")], [])
        assert signed(first) == []
        assert signed(step(driver, [], [customer("ann", "Rome")])) == [
            (1, 1, "Rome"),
            (1, 2, "Rome"),
        ]
        moved = step(driver, [], [customer("ann", "Rome", -1), customer("ann", "Oslo")])
        assert signed(moved) == [
            (-1, 1, "Rome"),
            (-1, 2, "Rome"),
            (1, 1, "Oslo"),
            (1, 2, "Oslo"),
        ]
        assert {row["_source"] for row in moved.rows} == {1}
        gone = step(driver, [order(2, "ann", sign=-1)], [customer("ann", "Oslo", -1)])
        assert signed(gone) == [(-1, 1, "Oslo"), (-1, 2, "Oslo")]


def test_a_left_row_that_refers_to_another_right_row_is_replaced() -> None:
    with Driver(kernel(), ranges=4) as driver:
        step(driver, [order(1, "ann")], [customer("ann", "Rome"), customer("bob", "Oslo")])
        left = step(driver, [order(1, "ann", sign=-1), order(1, "bob")], [])
    assert sorted((r["_sign"], r["city"]) for r in left.rows) == [(-1, "Rome"), (1, "Oslo")]


def test_an_unmatched_row_is_emitted_by_an_outer_join() -> None:
    with Driver(kernel("full")) as driver:
        first = step(driver, [order(1, None)], [customer("ann", "Rome")])
        assert signed(first) == [(1, 1, None), (1, None, "Rome")]
        assert first.gained == 2  # ann and how many she is; what names nobody is not kept
        met = step(driver, [order(2, "ann")], [])
        assert signed(met) == [(-1, None, "Rome"), (1, 2, "Rome")]
        again = step(driver, [order(3, "ann")], [])
        assert signed(again) == [(1, 3, "Rome")]
        alone = step(driver, [order(n, "ann", sign=-1) for n in (2, 3)], [])
        assert signed(alone) == [(-1, 2, "Rome"), (-1, 3, "Rome"), (1, None, "Rome")]


def test_an_unmatched_right_row_has_the_shared_key_and_rows_without_a_key_are_spread() -> None:
    left = pa.schema([("id", pa.int32()), ("x", pa.int64())])
    right = pa.schema([("id", pa.int64()), ("y", pa.int64())])
    made = TableJoinKernel(table_join("id", ("id",), ("id",), "full"), (left, right))
    assert made.output().field("id").type == pa.int64()
    with Driver(made) as driver:
        alone = tables.table([{"id": 2**40, "y": 1, **engine(0, 1, 1)}], right)
        (found,) = driver.step((tables.table([], left), alone), before=MIN_TIME, after=0).rows
    assert (found["id"], found["x"], found["y"]) == (2**40, None, 1)
    named = tables.table([order(n, None) for n in range(50)], ORDERS)
    assert len(set(kernel().prepare(named, BatchTime(0, 0, 0)).exchange["_hash"].to_pylist())) == 50


def test_tables_joined_by_other_columns_than_keys_give_every_pair() -> None:
    tweets = pa.schema([("tweet", pa.int64()), ("author", pa.string())])
    follows = pa.schema([("who", pa.string()), ("whom", pa.string())])
    spec = table_join({"author": "whom"}, ("tweet",), ("who", "whom"))
    assert spec.key == ((0, "tweet"), (1, "who"), (1, "whom"))
    with Driver(TableJoinKernel(spec, (tweets, follows))) as driver:

        def batch(mine: list[Row], theirs: list[Row]) -> list[tuple[int, int, str]]:
            rows = [tables.table(mine, tweets), tables.table(theirs, follows)]
            left = driver.step(rows, before=MIN_TIME, after=0)
            return sorted((r["_sign"], r["tweet"], r["who"]) for r in left.rows)

        def tweet(number: int, sign: int = 1) -> Row:
            return {"tweet": number, "author": "ann", **engine(number, 0, sign)}

        def follow(who: str, sign: int = 1) -> Row:
            return {"who": who, "whom": "ann", **engine(0, 1, sign)}

        assert batch([tweet(1)], [follow("bob"), follow("cid")]) == [(1, 1, "bob"), (1, 1, "cid")]
        assert batch([tweet(2)], [follow("bob", -1)]) == [(-1, 1, "bob"), (1, 2, "cid")]
        assert batch([tweet(1, -1)], [follow("dee")]) == [(-1, 1, "cid"), (1, 2, "dee")]


@pytest.mark.parametrize(
    ("on", "left", "right", "how", "key"),
    [
        ({"f": "k"}, ("a",), ("k",), "inner", ("a",)),
        ({"f": "k"}, ("a",), ("k",), "left", ("a",)),
        ({"f": "k"}, ("a",), ("k",), "right", ("a", "k")),
        ({"a": "f"}, ("a",), ("k",), "inner", ("k",)),
        ({"a": "f"}, ("a",), ("k",), "right", ("k",)),
        ({"a": "f"}, ("a",), ("k",), "left", ("a", "k")),
        ({"k": "k"}, ("k",), ("k",), "full", ("k",)),
        ({"f": "g"}, ("a",), ("b",), "inner", ("a", "b")),
    ],
)
def test_the_key_of_the_view_identifies_its_rows(
    on: Any, left: Any, right: Any, how: Any, key: Any
) -> None:
    found = table_join(on, left, right, how).key
    assert tuple(name for _, name in found) == key
    assert all(name in (left, right)[side] for side, name in found)


def weak_hash(_columns: Any, count: int) -> Any:
    return np.full(count, 2**64 // 3, np.uint64)


def test_rows_with_a_null_join_column_never_match(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_sides, "hash_keys", weak_hash)
    with Driver(kernel("full")) as driver:
        nobody = {**customer("x", "Rome"), "id": None}
        assert signed(step(driver, [order(1, None)], [nobody])) == [
            (1, 1, None),
            (1, None, "Rome"),
        ]


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_the_changes_make_the_view_of_the_oracle_after_every_batch(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(["long", "text", "double", "nested"]))
    how: Any = data.draw(st.sampled_from(["inner", "left", "right", "full"]))
    on, left, right = _tables(data.draw(st.sampled_from(["key", "foreign", "any"])), kind)
    spec = table_join(dict(on), (left.names[0],), (right.names[0],), how)
    cut = {"ranges": data.draw(st.sampled_from([1, 3])), "slices": data.draw(st.integers(1, 2)),
           "merge_every": data.draw(st.sampled_from([0, 2]))}  # fmt: skip
    rows: tuple[dict[str, Row], dict[str, Row]] = ({}, {})
    shown = Counter[Any]()
    with pytest.MonkeyPatch.context() as patch:
        if data.draw(st.booleans()):
            patch.setattr(table_sides, "hash_keys", weak_hash)
        with Driver(TableJoinKernel(spec, (left, right)), **cut) as driver:
            for batch in range(data.draw(st.integers(1, 4))):
                changes = [
                    _changes(data, rows[side], schema, kind, (batch + 1) * 100 + side * 50, side)
                    for side, schema in ((0, left), (1, right))
                ]
                both = [tables.table(changes[0], left), tables.table(changes[1], right)]
                found = driver.step(both, before=MIN_TIME, after=0)
                emitted = Counter((r["n"], r["m"], r["_sign"]) for r in found.rows)
                assert set(emitted.values()) <= {1}
                assert not [row for row in emitted if (row[0], row[1], -row[2]) in emitted]
                for row in found.rows:
                    shown[(row["n"], row["m"])] += row["_sign"]
                wanted = oracle.view([*rows[0].values()], [*rows[1].values()], on=on, how=how)
                assert +shown == Counter((a and a["n"], b and b["m"]) for a, b in wanted)
                assert not -shown


def _tables(shape: str, kind: str) -> tuple[list[tuple[str, str]], pa.Schema, pa.Schema]:
    key = tables.KEY_TYPES[kind]
    left = [("a", pa.int64()), ("f", key), ("n", pa.int64())]
    right = [("k", key), ("g", key), ("m", pa.int64())]
    if shape == "key":
        left = [("k", key), ("f", key), ("n", pa.int64())]
        return [("k", "k")], pa.schema(left), pa.schema(right)
    if shape == "foreign":
        return [("f", "k")], pa.schema(left), pa.schema(right)
    return [("f", "g")], pa.schema(left), pa.schema(right)


def _changes(
    data: st.DataObject, table: dict[str, Row], schema: pa.Schema, kind: str, first: int, side: int
) -> list[Row]:
    """Changes of one batch, one after the other, which the table has from then on."""
    name, other, value = schema.names
    some = tables.keys(kind).filter(lambda one: one is not None)
    ids = st.integers(0, 4) if name == "a" else some
    changes: list[Row] = []
    for number, one in enumerate(data.draw(st.lists(ids, max_size=6))):
        old = table.pop(repr(tables.plain(one)), None)
        if old is not None:
            changes.append({**old, **engine(first + number, side, -1)})
        if data.draw(st.booleans()):
            new = {name: one, other: data.draw(tables.keys(kind)), value: first + number}
            table[repr(tables.plain(one))] = {**new, **engine(first + number, side, 1)}
            changes.append(table[repr(tables.plain(one))])
    return changes


def many(count: int) -> pa.Table:
    numbers = np.arange(count, dtype=np.int64)
    zeros = np.zeros(count, np.int64)
    return pa.table(
        {
            "order": numbers, "customer": pa.repeat("ann", count), "sum": numbers, "_time": zeros,
            "_source": pa.array(zeros.astype(np.int32)),
            "_partition": pa.array(zeros.astype(np.int32)), "_offset": numbers, "_sub": zeros,
            "_sign": pa.array(np.ones(count, np.int8)),
        }
    )  # fmt: skip


def test_a_change_that_moves_a_hundred_thousand_rows_is_emitted_in_bounded_pieces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(view_rows, "CHUNK_BYTES", 1 << 20)
    with Driver(kernel()) as driver:
        rome, oslo = customer("ann", "Rome"), customer("ann", "Oslo")
        driver.step((many(100_000), tables.table([rome], CUSTOMERS)), before=MIN_TIME, after=0)
        change = tables.table([{**rome, "_sign": -1}, oslo], CUSTOMERS)
        left = driver.step((many(0), change), before=0, after=0)
    assert sum(table.num_rows for table in left.tables) == 200_000
    assert len(left.tables) > 10
    assert max(table.nbytes for table in left.tables) < 3 << 20
    signs = np.concatenate([table["_sign"].to_numpy() for table in left.tables])
    assert (np.diff(signs) >= 0).all()


def test_the_number_of_calls_does_not_grow_with_the_number_of_keys() -> None:
    def work(keys: int) -> int:
        orders = many(keys)
        names = pa.array(np.arange(keys)).cast(pa.string())
        orders = orders.set_column(1, "customer", names)
        customers = orders.drop_columns(["customer", "sum"]).rename_columns(
            ["id", *orders.column_names[3:]])  # fmt: skip
        customers = customers.set_column(0, "id", names).append_column("city", names)

        def two_batches() -> None:
            with Driver(kernel("full")) as driver:
                driver.step((orders, customers), before=MIN_TIME, after=0)
                driver.step((orders.slice(0, 0), customers), before=0, after=0)

        return calls(two_batches)

    work(10)
    assert work(100_000) < 2 * work(1_000)
