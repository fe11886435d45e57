"""Aggregates of the user's own: three functions over Arrow, and what is asked of them."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.operators.aggregates.accumulating import Accumulating, in_pieces, single, table
from tests.operators.windows.counting import calls

import millstream as ms
from millstream.errors import InvalidInput, InvalidSpec, UserCodeFailed
from millstream.operators.aggregates.accumulators import accumulator

COLUMNS = pa.schema([("k", pa.int64()), ("v", pa.float64()), ("w", pa.float64())])


def weighed(rows: pa.Table) -> pa.Table:
    """The state of a weighted mean: value times weight, and weight."""
    return pa.table({"sum": pc.multiply(rows["v"], rows["w"]), "weight": rows["w"]})


def added(states: pa.Table, groups: np.ndarray, count: int) -> pa.Table:
    return pa.table(
        {name: np.bincount(groups, states[name].to_numpy(), count) for name in states.column_names}
    )


def divided(states: pa.Table) -> pa.ChunkedArray:
    return pc.divide(states["sum"], states["weight"])


MEAN = ms.aggregate(partial=weighed, merge=added, finish=divided, columns=["v", "w"])


def rows(count: int, keys: int) -> pa.Table:
    rng = np.random.default_rng(3)
    return pa.table({"k": rng.integers(0, keys, count), "v": rng.integers(0, 99, count) / 2,
                     "w": rng.integers(1, 9, count) / 4, "_offset": np.arange(count)})  # fmt: skip


def test_a_weighted_mean_is_the_same_for_any_batches_and_merges() -> None:
    some = rows(300, 5)
    made = Accumulating({"mean": MEAN, "n": ms.count()}, COLUMNS)
    expected = {
        key: np.average(part["v"], weights=part["w"]) for key, part in some.to_pandas().groupby("k")
    }
    for seed in range(8):
        found = in_pieces(made, some, random.Random(seed))
        assert {key: row["mean"] for key, row in found.items()} == pytest.approx(expected)
    assert sum(row["n"] for row in found.values()) == 300


def test_types_are_those_declared_or_those_of_the_results_for_no_rows() -> None:
    assert accumulator(MEAN, COLUMNS).type == pa.float64()
    declared = ms.aggregate(partial=weighed, merge=added, finish=divided, columns=["v", "w"],
                            state="sum double, weight float", returns="decimal(20, 3)")  # fmt: skip
    made = accumulator(declared, COLUMNS)
    assert made.type == pa.decimal128(20, 3)
    [part] = made.parts
    assert part.column.type == pa.struct([("sum", pa.float64()), ("weight", pa.float32())])
    assert part.column.name == "_:weighed"


def test_without_columns_it_gets_all_columns_of_the_user() -> None:
    seen: list[list[str]] = []

    def partial(given: pa.Table) -> pa.Table:
        seen.append(given.column_names)
        return given.select(["v"])

    whole = ms.aggregate(partial=partial, merge=added, finish=lambda states: states["v"])
    made = Accumulating({"sum": whole}, pa.schema([*COLUMNS, ("_offset", pa.int64())]))
    made.lifted(rows(3, 1))
    assert seen == [["k", "v", "w"]] * 2


def test_no_function_is_called_per_key_or_row() -> None:
    def work(keys: int) -> int:
        some = rows(4 * keys, keys)

        def both() -> None:
            made = Accumulating({"mean": MEAN}, COLUMNS)
            state = made.merged([made.lifted(some), made.lifted(some)])
            made.made["mean"].finish(state)

        return calls(both)

    work(10)
    assert work(50_000) < 2 * work(500)


def test_the_merge_gets_groups_in_order_and_their_number() -> None:
    def merge(states: pa.Table, groups: np.ndarray, count: int) -> pa.Table:
        assert groups.dtype == np.int64
        assert (np.diff(groups) >= 0).all()
        assert sorted(set(groups.tolist())) == list(range(count))
        return added(states, groups, count)

    checked = ms.aggregate(partial=weighed, merge=merge, finish=divided, columns=["v", "w"])
    Accumulating({"mean": checked}, COLUMNS).lifted(rows(50, 7))


@pytest.mark.parametrize(
    ("word", "function", "sentence"),
    [
        ("partial", lambda rows: rows["v"], "needs to give a pyarrow.Table; got Chunk"),
        ("partial", lambda rows: weighed(rows).slice(1), "needs to give 6 states; got 5"),
        ("partial", lambda rows: weighed(rows).select(["weight", "sum"]),
         "needs to give states of sum, weight; got weight, sum"),
        ("partial", lambda rows: pa.table({"sum": ["x"] * 6, "weight": rows["w"]}),
         "needs to give states of sum double, weight double; got Failed to parse string: 'x'"),
        ("merge", lambda states, groups, count: states, "needs to give 1 states; got 6"),
        ("merge", lambda states, groups, count: None, "a pyarrow.Table; got NoneType"),
        ("finish", lambda states: 7, "needs to give a pyarrow.Array; got int"),
        ("finish", lambda states: pa.array([1.0, 2.0]), "needs to give 1 answers; got 2"),
        ("finish", lambda states: pa.array(["x"]), "needs to give answers of double; got Failed"),
    ],
)  # fmt: skip
def test_a_function_that_returns_the_wrong_type_is_refused_with_what_is_needed(
    word: str, function: Any, sentence: str
) -> None:
    good: dict[str, Any] = {"partial": weighed, "merge": added, "finish": divided}
    wrong = ms.aggregate(**{**good, word: function}, columns=["v", "w"], name="wrong",
                         state="sum double, weight double", returns="double")  # fmt: skip
    made = Accumulating({"a": wrong}, COLUMNS)
    with pytest.raises(InvalidInput, match=rf"^{word} of the aggregate 'wrong' .*{sentence}"):
        made.answers(made.lifted(rows(6, 1)))


def test_a_function_that_raises_is_named_with_its_line() -> None:
    def partial(given: pa.Table) -> pa.Table:
        raise RuntimeError(f"no {given.num_rows}")

    broken = ms.aggregate(partial=partial, merge=added, finish=divided, columns=["v"])
    with pytest.raises(UserCodeFailed, match=r"partial of the aggregate 'partial' raised "
                       r"RuntimeError: no 0; see .*test_aggregate_user\.py:\d+"):  # fmt: skip
        accumulator(broken, COLUMNS)


def test_two_of_one_name_are_refused_and_the_same_twice_is_kept_once() -> None:
    other = ms.aggregate(partial=lambda rows: weighed(rows).slice(0), merge=added, finish=divided,
                         columns=["v", "w"], name="weighed")  # fmt: skip
    with pytest.raises(
        InvalidSpec, match=r"need different names; got aggregate\(name=weighed, v, "
    ):
        Accumulating({"a": MEAN, "b": other}, COLUMNS)
    twice = Accumulating({"a": MEAN, "b": MEAN}, COLUMNS)
    assert list(twice.parts) == ["_rows", "_:weighed"]


def test_retraction_is_refused() -> None:
    with pytest.raises(InvalidSpec, match="'weighed' needs rows that are never retracted; got"):
        accumulator(MEAN, COLUMNS, retractable=True)
    signed = rows(2, 1).append_column("_sign", pa.array([1, -1], pa.int8()))
    with pytest.raises(InvalidInput, match="'weighed' needs a state that keeps its rows"):
        Accumulating({"a": MEAN}, COLUMNS).lifted(signed)


def test_an_unknown_column_is_refused() -> None:
    missing = ms.aggregate(partial=weighed, merge=added, finish=divided, columns="price")
    with pytest.raises(InvalidSpec, match="aggregate needs a column of its input; got 'price'"):
        accumulator(missing, COLUMNS)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"partial": 3}, "aggregate needs a function as partial; got 3"),
        ({"merge": "sum"}, "aggregate needs a function as merge; got 'sum'"),
        ({"finish": None}, "aggregate needs a function as finish; got None"),
        ({"columns": ["v", 3]}, "aggregate needs names of columns; got 3"),
        ({"columns": [" "]}, "aggregate needs names of columns; got ' '"),
        ({"partial": lambda rows: rows}, "aggregate needs a name for its state.*; got '<lambda>'"),
        ({"name": "a b"}, "aggregate needs a name for its state.*; got 'a b'"),
        ({"returns": "double, long"}, "aggregate needs one type in returns|needs"),
        ({"returns": "doubel"}, "double"),
        ({"returns": 3}, "aggregate needs one type in returns; got 3"),
        ({"state": ""}, "a schema needs columns; got ''"),
    ],
)  # fmt: skip
def test_invalid_aggregates_are_refused_while_building(given: Any, sentence: str) -> None:
    good: dict[str, Any] = {"partial": weighed, "merge": added, "finish": divided}
    with pytest.raises(InvalidSpec, match=sentence):
        ms.aggregate(**{**good, **given})


def test_the_example_of_the_docstring_gives_its_result() -> None:
    def partial(rows: pa.Table) -> pa.Table:
        return rows.rename_columns(["longest"])

    def merge(states: pa.Table, groups: np.ndarray, count: int) -> pa.Table:
        grouped = states.append_column("g", [groups]).group_by("g", use_threads=False)
        longest = grouped.aggregate([("longest", "max")])["longest_max"]
        return pa.table({"longest": longest})

    def finish(states: pa.Table) -> pa.ChunkedArray:
        return states["longest"]

    longest = ms.aggregate(partial=partial, merge=merge, finish=finish, columns=["v"])
    assert single(longest, pa.int64(), [3, None, 9, 4]) == 9
    several = table([{"k": n % 3, "v": n} for n in range(10)], pa.int64())
    made = Accumulating({"longest": longest}, pa.schema([("v", pa.int64())]))
    found = in_pieces(made, several, random.Random(1))
    assert {key: row["longest"] for key, row in found.items()} == {0: 9, 1: 7, 2: 8}


def test_it_is_serialised_with_its_functions() -> None:
    from pyspark import cloudpickle

    made = Accumulating({"mean": MEAN, "first": ms.first("v")}, COLUMNS)
    there = cloudpickle.loads(cloudpickle.dumps(made))
    some = rows(30, 2).append_column("_source", pa.array([0] * 30, pa.int32()))
    for name in ("_partition", "_sub"):
        some = some.append_column(name, pa.array([0] * 30, pa.int64()))
    assert there.answers(there.lifted(some)) == made.answers(made.lifted(some))
