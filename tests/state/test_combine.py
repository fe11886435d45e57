"""Rows of one key become one: every operation, every type, every order, under collisions."""

from __future__ import annotations

import math
import random
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.errors import InvalidInput, InvalidSpec
from millstream.state.combine import combine, group_sorted, sort_rows
from millstream.state.keys.hashing import hash_keys
from millstream.state.spec import Combine, StateColumn, StateSpec

INT = pa.schema([("k", pa.int64())])
NAN = float("nan")


def spec_of(combine: Combine, kind: pa.DataType) -> StateSpec:
    return StateSpec(INT, (StateColumn("v", kind, combine),))


def state_rows(
    keys: list[Any],
    *,
    kind: pa.DataType | None = None,
    orders: list[int] | None = None,
    **more: Any,
) -> pa.Table:
    """Rows with a true hash of one key column."""
    column = pa.array(keys, kind or pa.int64())
    return pa.table(
        {
            "_order": pa.array(orders or [0] * len(keys), pa.int64()),
            "_hash": hash_keys([column], len(keys)),
            "k": column,
            **more,
        }
    )


def reduced(combine_by: Combine, kind: pa.DataType, groups: list[list[Any]]) -> list[Any]:
    """Each group's result, its rows mixed among those of the others."""
    rows = [
        (key, place, value) for key, group in enumerate(groups) for place, value in enumerate(group)
    ]
    rows.sort(key=lambda row: (row[1], row[0]))
    table = state_rows([row[0] for row in rows], v=pa.array([row[2] for row in rows], kind))
    result = combine(table, spec_of(combine_by, kind))
    found = dict(zip(result["k"].to_pylist(), result["v"].to_pylist(), strict=True))
    return [found[key] for key in range(len(groups))]


ORDERED: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int8(), [-128, 0, 127]),
    (pa.int64(), [-(2**63), -1, 2**63 - 1]),
    (pa.uint32(), [0, 5, 2**32 - 1]),
    (pa.uint64(), [0, 2**63, 2**64 - 1]),
    (pa.bool_(), [False, True]),
    (pa.float64(), [-math.inf, -1.5, 0.0, 1e300, math.inf]),
    (pa.float32(), [-1.5, 0.25]),
    (pa.string(), ["", "a", "ab", "b", "é", "😀"]),
    (pa.binary(), [b"", b"\x00", b"\x7f", b"\xff"]),
    (pa.decimal128(38, 2), [Decimal("-9999999999999999999.99"), Decimal("0.01"), Decimal("1E20")]),
    (pa.date32(), [date(1900, 1, 1), date(2026, 1, 1)]),
    (pa.timestamp("us"), [datetime(1900, 1, 1), datetime(2026, 1, 1)]),
    (pa.timestamp("ms"), [datetime(1900, 1, 1), datetime(2026, 1, 1)]),
    (pa.duration("us"), [timedelta(-1), timedelta(0), timedelta(1)]),
    (
        pa.struct([("a", pa.int64()), ("b", pa.string())]),
        [{"a": 1, "b": None}, {"a": 1, "b": "x"}, {"a": 2, "b": "a"}],
    ),
    (pa.list_(pa.int64()), [[], [1], [1, None], [1, 2], [2]]),
]


@pytest.mark.parametrize(("kind", "ascending"), ORDERED, ids=lambda value: str(value)[:30])
def test_min_and_max_follow_the_order_of_the_type(kind: pa.DataType, ascending: list[Any]) -> None:
    rng = random.Random(3)
    groups: list[list[Any]] = [[None, None]]
    least: list[Any] = [None]
    greatest: list[Any] = [None]
    for _ in range(30):
        places = [rng.randrange(len(ascending)) for _ in range(rng.randint(1, 5))]
        group = [ascending[place] for place in places] + [None] * rng.randrange(2)
        rng.shuffle(group)
        groups.append(group)
        least.append(ascending[min(places)])
        greatest.append(ascending[max(places)])
    assert reduced("min", kind, groups) == least
    assert reduced("max", kind, groups) == greatest


def test_nan_is_the_largest_float_and_zero_keeps_its_sign_in_any_order() -> None:
    groups = [[1.0, NAN, math.inf], [NAN, NAN], [0.0, -0.0], [-0.0, 0.0]]
    assert str(reduced("max", pa.float64(), groups)) == "[nan, nan, 0.0, 0.0]"
    assert str(reduced("min", pa.float64(), groups)) == "[1.0, nan, -0.0, -0.0]"


def test_first_and_last_take_nulls_as_values_and_the_order_of_rows() -> None:
    groups: list[list[Any]] = [[None, "b", "a"], ["c", None], ["d"]]
    assert reduced("first", pa.string(), groups) == [None, "c", "d"]
    assert reduced("last", pa.string(), groups) == ["a", None, "d"]


@given(
    st.lists(
        st.lists(st.one_of(st.none(), st.integers(-(2**61), 2**61 - 1)), min_size=1), min_size=1
    )
)
def test_an_integer_sum_is_exact_or_an_error(groups: list[list[int | None]]) -> None:
    expected = [
        sum(value for value in group if value is not None)
        if any(v is not None for v in group)
        else None
        for group in groups
    ]
    if all(value is None or -(2**63) <= value < 2**63 for value in expected):
        assert reduced("sum", pa.int64(), groups) == expected
    else:
        with pytest.raises(InvalidInput, match="the sum 'v' needs to fit int64"):
            reduced("sum", pa.int64(), groups)


def test_a_partial_sum_that_exceeds_its_type_is_no_error() -> None:
    assert reduced("sum", pa.int64(), [[2**63 - 1, 5, -5]]) == [2**63 - 1]
    assert reduced("sum", pa.int64(), [[-(2**63), -1, 1]]) == [-(2**63)]
    for group in ([2**63 - 1, 1], [-(2**63), -1]):
        with pytest.raises(
            InvalidInput, match=r"; got a larger one; sum a decimal\(38, 0\) instead"
        ):
            reduced("sum", pa.int64(), [group])


@given(
    st.lists(
        st.lists(
            st.one_of(st.none(), st.integers(1 - 10**37, 10**37 - 1)), min_size=1, max_size=25
        ),
        min_size=1,
    )
)
def test_a_decimal_sum_is_exact_or_an_error(groups: list[list[int | None]]) -> None:
    kind = pa.decimal128(38, 5)
    held = [[None if v is None else Decimal(f"{v}E-5") for v in group] for group in groups]
    sums = [
        sum(v for v in group if v is not None) if any(v is not None for v in group) else None
        for group in groups
    ]
    if all(value is None or abs(value) < 10**38 for value in sums):
        expected = [None if value is None else Decimal(f"{value}E-5") for value in sums]
        assert reduced("sum", kind, held) == expected
    else:
        with pytest.raises(InvalidInput, match="fit decimal128"):
            reduced("sum", kind, held)


def test_a_decimal_sum_beyond_128_bits_does_not_come_back_small() -> None:
    with pytest.raises(InvalidInput, match="fit decimal128"):
        reduced("sum", pa.decimal128(38, 0), [[Decimal(10**38 - 1)] * 4])


def test_a_decimal_sum_beyond_the_digits_of_its_type_is_an_error() -> None:
    assert reduced("sum", pa.decimal128(3, 0), [[Decimal(998), Decimal(1)]]) == [Decimal(999)]
    for group in ([Decimal(999), Decimal(1)], [Decimal(-999), Decimal(-1)]):
        with pytest.raises(InvalidInput, match=r"'v' needs to fit decimal128\(3, 0\)"):
            reduced("sum", pa.decimal128(3, 0), [group])


def double_sum(parts: list[list[float]]) -> Fraction:
    """The sum of all values, each part combined first, then the results."""
    spec = spec_of("dsum", pa.float64())
    done = [
        combine(state_rows([1] * len(part), v=pa.array(part, pa.float64())), spec) for part in parts
    ]
    total = combine(pa.concat_tables(done), spec)
    high, low = total["v"][0].as_py(), total["v__lo"][0].as_py()
    assert high == high + low
    return Fraction(high) + Fraction(low)


@settings(max_examples=60)
@given(
    values=st.lists(st.floats(-1e150, 1e150, allow_subnormal=False), min_size=1, max_size=60),
    cuts=st.lists(st.integers(0, 60), max_size=4),
    seed=st.integers(0, 2**32),
)
def test_a_double_sum_does_not_depend_on_order_or_batches(
    values: list[float], cuts: list[int], seed: int
) -> None:
    shuffled = values[:]
    random.Random(seed).shuffle(shuffled)
    edges = sorted({0, len(values), *(cut for cut in cuts if cut < len(values))})
    parts = [shuffled[a:b] for a, b in pairwise(edges)]
    exact = sum(map(Fraction, values), Fraction(0))
    allowed = sum(abs(Fraction(value)) for value in values) / 10**30
    assert abs(double_sum([values]) - exact) <= allowed
    assert abs(double_sum(parts) - exact) <= allowed


def test_a_double_sum_takes_infinities_and_nan_as_ieee_does() -> None:
    groups: list[list[Any]] = [
        [1.0, math.inf, 5.0],
        [math.inf, -math.inf],
        [NAN, 1.0],
        [None, -math.inf, None],
        [None],
    ]
    assert str(reduced("dsum", pa.float64(), groups)) == "[inf, nan, nan, -inf, None]"
    spec = spec_of("dsum", pa.float64())
    once = combine(state_rows([1, 1], v=[math.inf, 1.0]), spec)
    again = combine(pa.concat_tables([once, once]), spec)
    assert (again["v"].to_pylist(), again["v__lo"].to_pylist()) == ([math.inf], [0.0])


def test_a_tombstone_deletes_older_rows_and_stays_before_newer_ones() -> None:
    table = state_rows(
        [1, 2, 3, 1, 2, 1, 2],
        v=[10, 20, 30, 0, 0, 1, 0],
        _gone=[False, False, False, True, True, False, True],
    )
    rows = combine(table, spec_of("sum", pa.int64()))
    seen: dict[int, list[tuple[bool, int | None]]] = {}
    for row in rows.to_pylist():
        seen.setdefault(row["k"], []).append((row["_gone"], row["v"]))
    assert seen == {1: [(True, None), (False, 1)], 2: [(True, None)], 3: [(False, 30)]}
    assert combine(rows, spec_of("sum", pa.int64())).equals(rows)


def test_a_single_tombstone_keeps_no_deleted_values() -> None:
    kind = pa.list_(pa.string())
    table = state_rows(
        [1, 2, 3], v=pa.array([["a"], ["b"], None], kind), _gone=[False, True, False]
    )
    rows = combine(table, spec_of("last", kind)).sort_by("k").to_pylist()
    assert [(row["k"], row["_gone"], row["v"]) for row in rows] == [
        (1, False, ["a"]), (2, True, None), (3, False, None)
    ]  # fmt: skip


KEY_TYPES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int64(), [0, 1, -1, None, 2**62]),
    (pa.string(), ["", "a", "b", None, "😀"]),
    (pa.float64(), [0.0, 1.5, NAN, None, -math.inf]),
    (pa.decimal128(20, 2), [Decimal("1.50"), Decimal("0.00"), None, Decimal("-7.25")]),
    (
        pa.struct([("a", pa.int64()), ("b", pa.float64())]),
        [{"a": 1, "b": None}, {"a": None, "b": NAN}, {"a": 1, "b": 2.0}, None],
    ),
    (pa.list_(pa.string()), [[], ["a"], ["a", None], [None, "a"], None]),
]


@pytest.mark.parametrize("bits", [0, 1, 2, 64])
@pytest.mark.parametrize(("kind", "keys"), KEY_TYPES, ids=lambda value: str(value)[:20])
def test_keys_that_share_a_hash_are_kept_separate(
    kind: pa.DataType, keys: list[Any], bits: int
) -> None:
    rng = random.Random(bits)
    count = 400
    drawn = [rng.randrange(len(keys)) for _ in range(count)]
    orders = [rng.randrange(3) for _ in range(count)]
    table = state_rows([keys[d] for d in drawn], kind=kind, orders=orders, v=list(range(count)))
    weak = table["_hash"].to_numpy() >> np.uint64(64 - bits) if bits else np.zeros(count, np.uint64)
    table = table.set_column(1, "_hash", pa.array(weak.astype(np.uint64)))
    spec = StateSpec(
        pa.schema([("k", kind)]),
        (StateColumn("v", pa.int64(), "sum"), StateColumn("w", pa.int64(), "last")),
    )
    result = combine(table.append_column("w", table["v"]), spec)
    expected: dict[tuple[int, str], list[int]] = {}
    for place, (order, draw) in enumerate(zip(orders, drawn, strict=True)):
        expected.setdefault((order, repr(keys[draw])), []).append(place)
    got = {(row["_order"], repr(row["k"])): (row["v"], row["w"]) for row in result.to_pylist()}
    assert got == {key: (sum(places), places[-1]) for key, places in expected.items()}
    assert len(result) == len(got)
    ordered = sort_rows(table, ["k"])
    assert len(group_sorted(ordered, ["k"])) == len(got)
    pairs = list(zip(ordered["_order"].to_pylist(), ordered["_hash"].to_pylist(), strict=True))
    assert pairs == sorted(pairs)


@settings(max_examples=50)
@given(
    st.lists(
        st.tuples(st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**64 - 1), st.integers(0, 2)),
        max_size=80,
    ),
    st.integers(0, 3),
)
def test_rows_are_sorted_stably_by_order_hash_and_key(
    rows: list[tuple[int, int, int]], repeats: int
) -> None:
    rows = rows * (repeats + 1)
    table = pa.table(
        {
            "_order": pa.array([row[0] for row in rows], pa.int64()),
            "_hash": pa.array([row[1] for row in rows], pa.uint64()),
            "k": pa.array([row[2] for row in rows], pa.int64()),
            "place": list(range(len(rows))),
        }
    )
    got = [tuple(row.values()) for row in sort_rows(table, ["k"]).to_pylist()]
    assert got == sorted((*row, place) for place, row in enumerate(rows))


def test_rows_in_many_orders_and_close_hashes_are_sorted() -> None:
    rng = np.random.default_rng(5)
    orders = rng.integers(0, 3000, 20_000)
    hashes = rng.integers(0, 2**12, 20_000).astype(np.uint64)
    table = pa.table({"_order": orders, "_hash": hashes, "k": hashes.astype(np.int64)})
    got = sort_rows(table, ["k"])
    expected = sorted(zip(orders.tolist(), hashes.tolist(), strict=True))
    assert list(zip(got["_order"].to_pylist(), got["_hash"].to_pylist(), strict=True)) == expected


def test_a_key_of_negative_zero_or_an_odd_nan_leaves_as_the_canonical_one() -> None:
    odd = float(np.array([-1], dtype=np.int64).view(np.float64)[0])
    table = state_rows([-0.0, 0.0, odd, NAN], kind=pa.float64(), v=[1, 2, 3, 4])
    spec = StateSpec(pa.schema([("k", pa.float64())]), (StateColumn("v", pa.int64(), "sum"),))
    result = combine(table, spec)
    assert sorted(zip(map(str, result["k"].to_pylist()), result["v"].to_pylist(), strict=True)) == [
        ("0.0", 3),
        ("nan", 7),
    ]
    bits = result["k"].to_numpy().view(np.int64).tolist()
    assert sorted(bits) == [0, 0x7FF8000000000000]


def test_no_rows_and_no_keys_combine() -> None:
    spec = StateSpec(pa.schema([]), (StateColumn("n", pa.int64(), "sum"),))
    table = pa.table({"_order": [0, 0, 1], "_hash": hash_keys([], 3), "n": [1, 2, 4]})
    assert combine(table, spec).select(["_order", "n"]).to_pylist() == [
        {"_order": 0, "n": 3},
        {"_order": 1, "n": 4},
    ]
    assert combine(table.slice(0, 0), spec).schema == spec.schema


def test_rows_that_do_not_fit_the_spec_are_refused() -> None:
    spec = spec_of("sum", pa.int64())
    with pytest.raises(InvalidInput, match="add or leave out w, v"):
        combine(state_rows([1], w=[1]), spec)
    with pytest.raises(InvalidInput, match="state rows need the types of their spec; got"):
        combine(state_rows([1], v=["x"]), spec)


def test_an_invalid_spec_is_refused() -> None:
    with pytest.raises(InvalidSpec, match="a sum in state needs int64 or decimal128; got double"):
        StateColumn("v", pa.float64(), "sum")
    with pytest.raises(InvalidSpec, match="a dsum in state needs float64; got int64"):
        StateColumn("v", pa.int64(), "dsum")
    with pytest.raises(InvalidSpec, match=r"one of sum, .* bag, peaks, user; got 'avg'"):
        StateColumn("v", pa.int64(), "avg")  # type: ignore[arg-type]
    with pytest.raises(InvalidSpec, match="every column name once; got k"):
        StateSpec(INT, (StateColumn("k", pa.int64(), "sum"),))
