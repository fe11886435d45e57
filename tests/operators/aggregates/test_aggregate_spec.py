"""Aggregates as values: what they say of themselves, and what they refuse while building."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

import millstream as ms
from millstream.errors import InvalidSpec
from millstream.operators.aggregates import functions as made
from millstream.operators.aggregates.accumulators import accumulator
from millstream.operators.aggregates.spec import KINDS

ALL: dict[str, made.Aggregate] = {
    "count()": ms.count(),
    "count(v)": ms.count("v"),
    "sum(v)": ms.sum("v"),
    "mean(v)": ms.mean("v"),
    "variance(v)": ms.variance("v"),
    "stddev(v)": ms.stddev("v"),
    "min(v)": ms.min("v"),
    "max(v)": ms.max("v"),
    "first(v)": ms.first("v"),
    "last(v)": ms.last("v"),
    "collect(v)": ms.collect("v"),
    "collect(v, limit=5)": ms.collect("v", limit=5),
    "count_distinct(v)": ms.count_distinct("v"),
    "quantile(v, p=0.99)": ms.quantile("v", 0.99),
    "approx_distinct(v)": ms.approx_distinct("v"),
    "approx_distinct(v, error=0.05)": ms.approx_distinct("v", error=0.05),
    "approx_quantile(v, p=0.5)": ms.approx_quantile("v", 0.5),
    "approx_quantile(v, p=1, error=0.1)": ms.approx_quantile("v", 1, error=0.1),
    "frequent(v, n=3)": ms.frequent("v", 3),
    "largest(v, n=3)": ms.largest("v", 3),
    "smallest(v, n=3)": ms.smallest("v", 3),
}
OWN = ms.aggregate(
    partial=lambda rows: rows,
    merge=lambda states, _groups, _count: states,
    finish=lambda states: states["a"],
    columns=["a", "b"],
    name="own",
)


def test_every_aggregate_prints_as_it_is_written() -> None:
    assert [str(aggregate) for aggregate in ALL.values()] == list(ALL)
    assert {aggregate.kind for aggregate in ALL.values()} == set(KINDS)


def test_every_aggregate_is_restored_from_a_checkpoint() -> None:
    for aggregate in ALL.values():
        kept = json.loads(json.dumps(made.to_json(aggregate)))
        assert made.from_json(kept) == aggregate
    assert made.to_json(ms.quantile("v", 0.5)) == {"kind": "quantile", "column": "v", "p": 0.5}


@pytest.mark.parametrize("kept", [{"kind": "median", "column": "v"}, made.to_json(OWN), {}])
def test_what_cannot_be_restored_is_refused(kept: dict[str, Any]) -> None:
    with pytest.raises(InvalidSpec, match="needs a built-in aggregate of this version; got"):
        made.from_json(kept)


def test_an_aggregate_names_the_columns_it_reads() -> None:
    assert ms.count().columns == ()
    assert ms.quantile("v", 0.5).columns == ("v",)
    assert OWN.columns == ("a", "b")
    assert OWN.column is None
    assert isinstance(OWN, made.Aggregate)


def kinds_where(word: str) -> set[str]:
    return {aggregate.kind for aggregate in [*ALL.values(), OWN] if getattr(aggregate, word)}


def test_an_aggregate_declares_what_it_keeps_and_can_retract() -> None:
    everything = {*KINDS, "aggregate"}
    forgetful = {"min", "max", "first", "last", "collect", "largest", "smallest"}
    never = {"approx_distinct", "aggregate"}
    assert kinds_where("can_retract") == everything - never
    assert kinds_where("supports_retraction") == everything - never - forgetful
    assert kinds_where("keeps_rows") == {"collect", "count_distinct", "quantile", "frequent"}
    assert kinds_where("in_order") == {"first", "last", "collect"}
    numbers = {"sum", "mean", "variance", "stddev", "quantile", "approx_quantile"}
    assert kinds_where("of_numbers") == numbers
    for aggregate in ALL.values():
        if aggregate.of_numbers:
            with pytest.raises(InvalidSpec, match="needs a column of integers, floats or decimals"):
                accumulator(aggregate, pa.schema([("v", pa.string())]))


def test_what_an_aggregate_declares_is_true_of_its_state() -> None:
    columns = pa.schema([("v", pa.float64())])
    for aggregate in ALL.values():
        ordinary = accumulator(aggregate, columns).parts
        whole = any(part.column.combine == "bag" and part.column.keep is None for part in ordinary
                    if not part.column.name.startswith("_v:buckets"))  # fmt: skip
        limited = any(part.column.keep is not None for part in ordinary)
        assert aggregate.keeps_rows == (whole or (limited and aggregate.kind == "collect"))
        if not aggregate.can_retract:
            continue
        names = [part.column.name for part in ordinary]
        asked = [p.column.name for p in accumulator(aggregate, columns, retractable=True).parts]
        if aggregate.supports_retraction:
            assert asked == names
        elif str(aggregate) != "collect(v)":
            assert asked != names


def test_an_aggregate_without_retraction_is_refused_where_rows_are_retracted() -> None:
    with pytest.raises(InvalidSpec, match="approx_distinct needs rows that are never retracted"):
        accumulator(ms.approx_distinct("v"), pa.schema([("v", pa.int64())]), retractable=True)


@pytest.mark.parametrize(
    "make",
    [ms.sum, ms.variance, ms.stddev, ms.first, ms.last, ms.collect, ms.count_distinct,
     lambda c: ms.quantile(c, 0.5), ms.approx_distinct, lambda c: ms.approx_quantile(c, 0.5),
     lambda c: ms.frequent(c, 1), lambda c: ms.largest(c, 1), lambda c: ms.smallest(c, 1)],
)  # fmt: skip
@pytest.mark.parametrize("column", ["", " ", None, 3])
def test_an_aggregate_needs_a_column(make: Any, column: Any) -> None:
    with pytest.raises(InvalidSpec, match=r'needs the name of a column; got .*; write \w+\("price'):
        make(column)


@pytest.mark.parametrize("n", [0, -1, 2.0, True, None, "3", 2**31])
def test_a_number_of_values_is_an_integer_above_zero(n: Any) -> None:
    for make in (ms.frequent, ms.largest, ms.smallest):
        with pytest.raises(InvalidSpec, match=rf"{make.__name__} needs n of 1 or more; got"):
            make("v", n)
    if n is not None:
        with pytest.raises(InvalidSpec, match="collect needs a limit of 1 or more; got"):
            ms.collect("v", limit=n)


@pytest.mark.parametrize("p", [-0.01, 1.01, float("nan"), True, "0.5", None, 99])
def test_p_is_between_zero_and_one(p: Any) -> None:
    for make in (ms.quantile, ms.approx_quantile):
        with pytest.raises(InvalidSpec, match=rf"{make.__name__} needs a p from 0 to 1; got"):
            make("v", p)


@pytest.mark.parametrize("error", [0.0, -0.1, 0.6, 1, "1%", None, float("nan")])
def test_an_error_is_within_the_supported_range(error: Any) -> None:
    with pytest.raises(InvalidSpec, match=r"approx_quantile needs an error from 0.0001 to 0.5; go"):
        ms.approx_quantile("v", 0.5, error=error)
    with pytest.raises(InvalidSpec, match=r"approx_distinct needs an error from 0.005 to 0.1; got"):
        ms.approx_distinct("v", error=error)


WRONG = [
    (ms.variance, pa.string(), "integers, floats or decimals"),
    (ms.stddev, pa.bool_(), "integers, floats or decimals"),
    (lambda c: ms.quantile(c, 0.5), pa.timestamp("us"), "integers, floats or decimals"),
    (lambda c: ms.approx_quantile(c, 0.5), pa.date32(), "integers, floats or decimals"),
    (lambda c: ms.largest(c, 2), pa.list_(pa.int64()), "numbers, text, bytes, times or booleans"),
    (lambda c: ms.smallest(c, 2), pa.struct([("a", pa.int8())]), "numbers, text, bytes, times or"),
    (ms.first, pa.map_(pa.string(), pa.int64()), "without maps"),
    (ms.collect, pa.list_(pa.map_(pa.string(), pa.int64())), "without maps"),
    (
        ms.count_distinct,
        pa.struct([("a", pa.int8()), ("m", pa.map_(pa.int8(), pa.int8()))]),
        "without maps",
    ),
    (lambda c: ms.frequent(c, 2), pa.null(), "without maps"),
    (ms.approx_distinct, pa.map_(pa.string(), pa.int64()), "without maps"),
]


@pytest.mark.parametrize("retractable", [False, True])
@pytest.mark.parametrize(("make", "kind", "need"), WRONG)
def test_an_unsupported_type_is_refused(
    make: Any, kind: pa.DataType, need: str, *, retractable: bool
) -> None:
    if not make("v").can_retract and retractable:
        need, got = "rows that are never", ""
    else:
        need, got = f"a column.* {need}", ".*; got 'v' of type"
    with pytest.raises(InvalidSpec, match=rf"{make('v').kind} needs {need}{got}"):
        accumulator(make("v"), pa.schema([("v", kind)]), retractable=retractable)


def test_min_and_max_of_nested_values_are_refused_also_where_rows_are_retracted() -> None:
    for make in (ms.min, ms.max):
        with pytest.raises(InvalidSpec, match="needs a column of numbers, text"):
            accumulator(make("v"), pa.schema([("v", pa.list_(pa.int8()))]), retractable=True)


def test_an_unknown_column_is_refused_by_every_aggregate() -> None:
    for aggregate in ALL.values():
        if aggregate.column is not None:
            with pytest.raises(InvalidSpec, match=r"needs a column of its input; got 'v'; choose"):
                accumulator(aggregate, pa.schema([("price", pa.int64())]))


def test_aggregates_of_one_column_share_their_values() -> None:
    from tests.operators.aggregates.accumulating import Accumulating

    several: dict[str, made.Aggregate] = {
        "a": ms.count_distinct("v"), "b": ms.quantile("v", 0.1), "c": ms.quantile("v", 0.9),
        "d": ms.frequent("v", 2), "e": ms.largest("v", 3), "f": ms.smallest("v", 3),
        "g": ms.first("v"), "h": ms.collect("v", limit=1), "i": ms.approx_quantile("v", 0.5),
        "j": ms.approx_quantile("v", 0.9), "k": ms.approx_distinct("v"), "l": ms.last("v"),
    }  # fmt: skip
    shared = Accumulating(several, pa.schema([("v", pa.int64())]))
    assert list(shared.parts) == [
        "_rows", "_v:bag", "_v:bag:-3", "_v:bag:3", "_v:rows:1", "_v:buckets:0.01", "_v:hll12",
        "_v:rows:-1",
    ]  # fmt: skip
    forgetful = {name: several[name] for name in "aefghl"} | {"m": ms.min("v")}
    kept = Accumulating(forgetful, pa.schema([("v", pa.int64())]), retractable=True)
    assert list(kept.parts) == ["_rows", "_v:bag", "_v:rows"]
