"""Every aggregate against the oracle: any type, any cut into partial states, any merging."""

from __future__ import annotations

import math
import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.operators.aggregates.accumulating import Accumulating, in_pieces, single, table
from tests.oracles import aggregates as oracle

from millstream.errors import InvalidInput
from millstream.operators.aggregates import functions as made
from millstream.operators.aggregates.accumulators import accumulator
from millstream.state.lists import bag

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FLOATS = [0.0, -0.0, math.nan, math.inf, -math.inf, 1.5, -1e308, 1e308, 5e-324]
ANY_PLANE = ["", "a", "a\x00", "é", "€", "\uffff", "\U0001f30a", "\U0010ffff"]
LONGS = [0, 1, -1, 2**63 - 1, -(2**63), 2**53 + 1]
few_longs = st.sampled_from(LONGS) | st.integers(-(2**63), 2**63 - 1)
few_floats = st.sampled_from(FLOATS) | st.floats()
decimals = st.integers(-(10**18) + 1, 10**18 - 1).map(lambda n: Decimal(n).scaleb(-4))

NUMBERS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "int": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "byte": (pa.int8(), st.integers(-128, 127)),
    "long": (pa.int64(), few_longs),
    "double": (pa.float64(), few_floats),
    "float": (pa.float32(), st.floats(width=32)),
    "decimal": (pa.decimal128(18, 4), decimals),
    "wide decimal": (pa.decimal128(38, 4), decimals),
}
ORDERED = {
    **NUMBERS,
    "text": (pa.string(), st.sampled_from(ANY_PLANE) | st.text(max_size=3)),
    "binary": (pa.binary(), st.sampled_from([b"", b"\x00", b"\xff"]) | st.binary(max_size=2)),
    "boolean": (pa.bool_(), st.booleans()),
    "date": (pa.date32(), st.dates()),
    "timestamp": (
        pa.timestamp("us", "UTC"),
        st.integers(-(10**16), 10**16).map(lambda n: EPOCH + timedelta(microseconds=n)),
    ),
}
NESTED = {
    "struct": (
        pa.struct([("a", pa.float64()), ("b", pa.list_(pa.string()))]),
        st.builds(
            lambda a, b: {"a": a, "b": b},
            st.none() | st.sampled_from(FLOATS),
            st.none() | st.lists(st.none() | st.sampled_from(["", "x"]), max_size=2),
        ),
    ),
    "array": (pa.list_(pa.int64()), st.lists(st.none() | st.integers(0, 2), max_size=3)),
}
ANY = ORDERED | NESTED

FOR_ANY: dict[str, made.Aggregate] = {
    "count": made.count("v"),
    "first": made.first("v"),
    "last": made.last("v"),
    "collect": made.collect("v"),
    "collect limit=2": made.collect("v", limit=2),
    "count_distinct": made.count_distinct("v"),
    "frequent n=2": made.frequent("v", 2),
}
FOR_ORDERED: dict[str, made.Aggregate] = {
    **FOR_ANY,
    "min": made.min("v"),
    "max": made.max("v"),
    "largest n=1": made.largest("v", 1),
    "largest n=3": made.largest("v", 3),
    "smallest n=3": made.smallest("v", 3),
}
EXACT_QUANTILES: dict[str, made.Aggregate] = {
    f"quantile p={p}": made.quantile("v", p) for p in (0, 0.25, 0.5, 0.99, 1.0)
}


def rows_of(value: st.SearchStrategy[Any], *, signed: bool) -> st.SearchStrategy[Any]:
    """Rows of three keys, each at an origin of its own; some are later retracted."""
    some = st.fixed_dictionaries({"k": st.sampled_from([0, 0, 1, 2]), "v": st.none() | value})
    places = st.lists(
        st.tuples(st.integers(0, 1), st.integers(0, 2), st.integers(-(2**63), 2**63 - 1)
                  | st.integers(0, 20), st.integers(0, 1)), unique=True, max_size=14,
    )  # fmt: skip
    names = ("_source", "_partition", "_offset", "_sub")

    @st.composite
    def placed(draw: st.DrawFn) -> list[dict[str, Any]]:
        rows = []
        for place in draw(places):
            row = draw(some) | dict(zip(names, place, strict=True))
            rows.append(row | ({"_sign": 1} if signed else {}))
        if signed:
            taken = draw(st.lists(st.integers(0, len(rows) - 1), unique=True)) if rows else []
            rows += [rows[at] | {"_sign": -1} for at in taken]
        return rows

    return placed()


def expected(rows: list[dict[str, Any]], key: int, name: str) -> Any:
    kind, *options = name.split()
    chosen: list[oracle.Row] = [
        ((row["_source"], row["_partition"], row["_offset"], row["_sub"]), row["v"],
         row.get("_sign", 1)) for row in rows if row["k"] == key
    ]  # fmt: skip
    given = {word: float(value) if "." in value else int(value)
             for word, value in (option.split("=") for option in options)}  # fmt: skip
    return oracle.answer(kind, chosen, **given)


def compare(
    rows: list[dict[str, Any]], kind: pa.DataType, aggregates: dict[str, made.Aggregate],
    seed: int, *, retractable: bool = False, relative: float = 0.0,
) -> None:  # fmt: skip
    accumulating = Accumulating(aggregates, pa.schema([("v", kind)]), retractable=retractable)
    found = in_pieces(accumulating, table(rows, kind), random.Random(seed))
    assert set(found) == {row["k"] for row in rows}
    for key, answers in found.items():
        for name, answer in answers.items():
            wanted = expected(rows, key, name)
            assert oracle.same(answer, wanted, relative=relative), (name, key, answer, wanted)


@settings(max_examples=100)
@given(st.data(), st.integers(0, 2**32))
def test_every_type_gives_the_oracles_results_for_any_batches_and_merges(
    data: st.DataObject, seed: int
) -> None:
    word = data.draw(st.sampled_from(sorted(ANY)))
    kind, values = ANY[word]
    rows = data.draw(rows_of(values, signed=False))
    compare(rows, kind, FOR_ORDERED if word in ORDERED else FOR_ANY, seed)


@settings(max_examples=100)
@given(st.data(), st.integers(0, 2**32))
def test_retracted_rows_are_as_if_they_had_never_arrived(data: st.DataObject, seed: int) -> None:
    word = data.draw(st.sampled_from(sorted(ANY)))
    kind, values = ANY[word]
    rows = data.draw(rows_of(values, signed=True))
    compare(rows, kind, FOR_ORDERED if word in ORDERED else FOR_ANY, seed, retractable=True)


@settings(max_examples=80)
@given(st.data(), st.integers(0, 2**32), st.booleans())
def test_quantiles_lie_on_the_line_between_values(
    data: st.DataObject, seed: int, signed: bool
) -> None:
    kind, values = NUMBERS[data.draw(st.sampled_from(sorted(NUMBERS)))]
    rows = data.draw(rows_of(values, signed=signed))
    compare(rows, kind, EXACT_QUANTILES, seed, retractable=signed, relative=1e-12)


@pytest.mark.parametrize("retractable", [False, True])
def test_over_no_value_counts_are_zero_collect_is_empty_and_the_others_are_null(
    *, retractable: bool
) -> None:
    several: dict[str, made.Aggregate] = {
        **FOR_ORDERED,
        **EXACT_QUANTILES,
        "variance": made.variance("v"),
        "stddev": made.stddev("v"),
        "approx_quantile": made.approx_quantile("v", 0.5),
    }
    if not retractable:
        several["approx_distinct"] = made.approx_distinct("v")
    zero, empty = {"count", "count_distinct", "approx_distinct"}, {"collect", "collect limit=2"}
    for name, aggregate in several.items():
        found = single(aggregate, pa.float64(), [None, None, None], retractable=retractable)
        assert found == (0 if name in zero else [] if name in empty else None), name
        whole = accumulator(aggregate, pa.schema([("v", pa.float64())]), retractable=retractable)
        over_none = None if name in ("count_distinct", "approx_distinct") else found
        assert whole.empty_answers(2).equals(pa.array([over_none] * 2, whole.type)), name


def test_a_row_retracted_before_it_arrives_is_not_shown_and_cancels_out() -> None:
    place = {"_source": 0, "_partition": 0, "_offset": 1, "_sub": 0}
    back = table([{"k": 0, "v": 7, **place, "_sign": -1}], pa.int64())
    came = table([{"k": 0, "v": 7, **place, "_sign": 1}], pa.int64())
    some = {name: a for name, a in FOR_ORDERED.items() if name != "count"}
    accumulating = Accumulating(some, pa.schema([("v", pa.int64())]), retractable=True)
    nothing = {name: oracle.answer(name.split()[0], [], **_options(name)) for name in some}

    early = accumulating.lifted(back)
    assert accumulating.answers(early)[0] == nothing
    settled = accumulating.merged([early, accumulating.lifted(came)])
    assert accumulating.answers(settled)[0] == nothing
    lists = [settled[part][0].as_py() for part in accumulating.parts if part.startswith("_v")]
    assert lists == [[], []]


def _options(name: str) -> dict[str, int]:
    return {word: int(value) for word, value in (o.split("=") for o in name.split()[1:])}


def test_rows_of_equal_origin_are_ordered_by_value() -> None:
    place = {"k": 0, "_source": 0, "_partition": 0, "_offset": 1, "_sub": 0}
    rows = [{**place, "v": text} for text in ("b", "a", "b")]
    several: dict[str, made.Aggregate] = {
        "first": made.first("v"), "last": made.last("v"), "collect": made.collect("v"),
        "collect limit=2": made.collect("v", limit=2),
    }  # fmt: skip
    for seed in range(10):
        compare(rows, pa.string(), several, seed)


def test_values_that_equal_each_other_are_one() -> None:
    floats = [0.0, -0.0, math.nan, -math.nan]
    assert single(made.count_distinct("v"), pa.float64(), floats) == 2
    assert single(made.approx_distinct("v"), pa.float64(), floats) == 2
    assert str(single(made.frequent("v", 9), pa.float64(), floats)) == (
        "[{'value': 0.0, 'count': 2}, {'value': nan, 'count': 2}]"
    )
    assert str(single(made.smallest("v", 2), pa.float64(), floats)) == "[0.0, 0.0]"
    assert str(single(made.largest("v", 1), pa.float64(), [-0.0])) == "[0.0]"
    nested = single(made.frequent("v", 1), pa.list_(pa.float32()), [[-0.0], [0.0]])
    assert str(nested) == "[{'value': [0.0], 'count': 2}]"


def test_first_last_and_collect_return_unchanged_values() -> None:
    assert str(single(made.first("v"), pa.float64(), [None, -0.0, 0.0])) == "-0.0"
    assert str(single(made.last("v"), pa.float64(), [0.0, -0.0, None])) == "-0.0"
    assert str(single(made.collect("v"), pa.float64(), [0.0, None, -0.0])) == "[0.0, -0.0]"
    assert single(made.collect("v"), pa.date32(), [date(9999, 12, 31)]) == [date(9999, 12, 31)]


def test_a_quantile_of_equal_values_is_that_value_to_the_last_digit() -> None:
    shares = {f"{n}": made.quantile("v", n / 50) for n in range(51)}
    rows = table([{"k": 0, "v": 1 / 3}] * 8, pa.float64())
    accumulating = Accumulating(dict(shares), pa.schema([("v", pa.float64())]))
    assert set(accumulating.answers(accumulating.lifted(rows))[0].values()) == {1 / 3}


def test_a_quantile_between_an_infinity_and_a_number_is_infinite() -> None:
    inf = math.inf
    assert single(made.quantile("v", 0.5), pa.float64(), [-inf, 1.0]) == -inf
    assert single(made.quantile("v", 0.5), pa.float64(), [inf, inf]) == inf
    assert math.isnan(single(made.quantile("v", 0.5), pa.float64(), [-inf, inf]))
    assert math.isnan(single(made.quantile("v", 1.0), pa.float64(), [1.0, math.nan]))
    assert single(made.quantile("v", 0.0), pa.float64(), [1.0, math.nan]) == 1.0


def test_retracted_decimals_are_subtracted() -> None:
    signed = [("1.50", 1), ("-2.25", 1), ("1.50", -1), ("-8.00", -1)]
    rows = [{"k": 0, "v": Decimal(text), "_sign": sign} for text, sign in signed]
    both: dict[str, made.Aggregate] = {"sum": made.sum("v"), "mean": made.mean("v")}
    three = {**rows[0], "v": Decimal("0.25")}
    for seed in range(4):
        accumulating = Accumulating(both, pa.schema([("v", pa.decimal128(9, 2))]))
        some = table([*rows, three, three], pa.decimal128(9, 2))
        found = in_pieces(accumulating, some, random.Random(seed))
        assert found[0] == {"sum": Decimal("6.25"), "mean": Decimal("3.125000")}


def test_after_ordered_rows_are_taken_by_time_and_then_by_origin() -> None:
    columns = pa.schema([("v", pa.string())])
    several: dict[str, made.Aggregate] = {
        "first": made.first("v"),
        "last": made.last("v"),
        "all": made.collect("v"),
    }
    names = ("v", "_time", "_source", "_partition", "_offset", "_sub")
    places = [("c", 7, 0, 0, 0, 0), ("d", 7, 0, 1, 0, 0), ("a", 3, 1, 9, 9, 0),
              ("b", 5, 0, 0, 9, 0)]  # fmt: skip
    rows = pa.Table.from_pylist([dict(zip(names, place, strict=True)) for place in places])
    for retractable in (False, True):
        for name, wanted in (("first", "a"), ("last", "d"), ("all", ["a", "b", "c", "d"])):
            whole = accumulator(several[name], columns, retractable=retractable, by_time=True)
            [part] = whole.parts
            bags = part.lift(rows, None)
            united = bag(bags, np.zeros(1, np.int64), keep=part.column.keep)
            state = pa.table({part.column.name: united})
            assert whole.finish(state).to_pylist() == [wanted]
            assert part.column.name.startswith("_v:rows:time")
    without = accumulator(several["first"], columns, by_time=True)
    with pytest.raises(InvalidInput, match=r"first needs the origin .*; got rows without _t"):
        without.parts[0].lift(rows.drop_columns(["_time"]), None)
