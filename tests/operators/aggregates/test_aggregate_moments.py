"""Variance and standard deviation: right to the last digits, whatever the mean and the cuts."""

from __future__ import annotations

import math
import random
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.operators.aggregates.accumulating import Accumulating, in_pieces, single, table
from tests.oracles import aggregates as oracle

from millstream.operators.aggregates import functions as made

BOTH: dict[str, made.Aggregate] = {"variance": made.variance("v"), "stddev": made.stddev("v")}
ordinary = st.floats(-1e140, 1e140).filter(lambda x: x == 0 or abs(x) > 1e-120)
near_each_other = st.builds(
    lambda middle, steps: [middle + step * math.ulp(middle) for step in steps],
    st.floats(1e-100, 1e100),
    st.lists(st.integers(-5, 5), min_size=1, max_size=12),
)
KINDS: dict[str, tuple[pa.DataType, st.SearchStrategy[list[Any]]]] = {
    "double": (pa.float64(), st.lists(ordinary | st.sampled_from([math.inf, math.nan]))),
    "near": (pa.float64(), near_each_other),
    "float": (pa.float32(), st.lists(st.floats(-(2.0**60), 2.0**60, width=32))),
    "byte": (pa.int8(), st.lists(st.integers(-128, 127))),
    "int": (pa.int32(), st.lists(st.integers(-(2**31), 2**31 - 1))),
    "long": (pa.int64(), st.lists(st.integers(-(2**63), 2**63 - 1))),
    "decimal": (
        pa.decimal128(18, 3),
        st.lists(st.integers(-(10**18) + 1, 10**18 - 1).map(lambda n: Decimal(n).scaleb(-3))),
    ),
}


def placed(values: list[Any], signs: list[int]) -> list[dict[str, Any]]:
    return [
        {"k": 0, "v": value, "_source": 0, "_partition": 0, "_offset": at, "_sub": 0, "_sign": sign}
        for at, (value, sign) in enumerate(zip(values, signs, strict=True))
    ]


def check(kind: pa.DataType, came: list[Any], taken: list[Any], seed: int) -> None:
    left = list(came)
    for value in taken:
        left.remove(value)
    rows = placed(came + taken, [1] * len(came) + [-1] * len(taken))
    accumulating = Accumulating(BOTH, pa.schema([("v", kind)]))
    found = in_pieces(accumulating, table(rows, kind), random.Random(seed))[0]
    for name, answer in found.items():
        wanted = oracle.answer(name, [((at,), value, 1) for at, value in enumerate(left)])
        assert oracle.same(answer, wanted, relative=1e-12), (name, answer, wanted)


@settings(max_examples=100)
@given(st.data(), st.integers(0, 2**32))
def test_both_are_accurate_to_twelve_digits_for_any_numbers_and_batches(
    data: st.DataObject, seed: int
) -> None:
    kind, values = KINDS[data.draw(st.sampled_from(sorted(KINDS)))]
    drawn = data.draw(values.filter(bool))
    check(kind, drawn, [], seed)


@settings(max_examples=60)
@given(st.data(), st.integers(0, 2**32))
def test_retracted_numbers_leave_no_trace(data: st.DataObject, seed: int) -> None:
    kind, values = KINDS[data.draw(st.sampled_from(["near", "byte", "int", "long", "decimal"]))]
    drawn = data.draw(values.filter(bool))
    taken = data.draw(st.lists(st.sampled_from(drawn), max_size=len(drawn)))
    taken = [v for at, v in enumerate(taken) if taken[: at + 1].count(v) <= drawn.count(v)]
    check(kind, drawn, taken, seed)


@pytest.mark.parametrize("kind", [pa.float64(), pa.int64(), pa.decimal128(18, 2)], ids=str)
def test_one_value_has_no_variance_and_equal_values_one_of_exactly_zero(kind: pa.DataType) -> None:
    third = {"double": 1 / 3, "int64": 2**62 + 3}.get(str(kind), Decimal("1234567890123456.78"))
    for aggregate in BOTH.values():
        assert single(aggregate, kind, [third]) is None
        assert single(aggregate, kind, [third] * 1001) == 0.0


def test_many_numbers_far_from_zero_keep_their_digits() -> None:
    rng = np.random.default_rng(5)
    values = 1e12 + rng.normal(0, 0.01, 100_000)
    exact = [int(v) for v in ((values - 1e12) * 2**13).tolist()]  # doubles at 1e12 are n / 2¹³
    n, total = len(exact), sum(exact)
    expected = (n * sum(v * v for v in exact) - total**2) / (n * (n - 1)) / 2**26
    found = single(made.variance("v"), pa.float64(), values.tolist())
    assert found == pytest.approx(expected, rel=1e-12)


def test_infinities_nan_and_overflow_are_visible() -> None:
    for odd in (math.inf, -math.inf, math.nan):
        assert math.isnan(single(made.variance("v"), pa.float64(), [1.0, odd, 2.0]))
    assert single(made.stddev("v"), pa.float64(), [1e200, -1e200]) == math.inf


def test_rounding_errors_of_far_larger_floats_never_make_a_variance_negative() -> None:
    accumulating = Accumulating(BOTH, pa.schema([("v", pa.float64())]))
    large, small = [2.0**100, 2.0**50], [1.0, 2.0, 3.0]
    pieces = [(large, 1), (small, 1), (large, -1)]
    states = [
        accumulating.lifted(table(placed(values, [sign] * len(values)), pa.float64()))
        for values, sign in pieces
    ]
    both = accumulating.merged(states[:2])
    assert accumulating.answers(accumulating.merged([both, states[2]]))[0] == {
        "variance": 0.0,
        "stddev": 0.0,
    }


def test_decimals_of_more_than_18_digits_count_as_doubles() -> None:
    values = [Decimal("12345678901234567890123456.25"), Decimal("3.50"), None, Decimal("-7.75")]
    found = single(made.variance("v"), pa.decimal128(38, 2), values)
    exact = oracle.answer("variance", [((0,), v and float(v), 1) for v in values])
    assert found == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize(
    "kind",
    [pa.int64(), pa.int32(), pa.float32(), pa.decimal128(9, 4), pa.decimal128(38, 4)],
    ids=str,
)
def test_the_results_are_doubles(kind: pa.DataType) -> None:
    accumulating = Accumulating(BOTH, pa.schema([("v", kind)]))
    assert {accumulator.type for accumulator in accumulating.made.values()} == {pa.float64()}


def test_both_share_their_state_with_the_sum() -> None:
    three: dict[str, made.Aggregate] = {**BOTH, "sum": made.sum("v")}
    names = Accumulating(three, pa.schema([("v", pa.float64())])).parts
    assert list(names) == ["_rows", "_v:sum", "_v:square", "_v:square_rest", "_v:count"]
    names = Accumulating(three, pa.schema([("v", pa.int64())])).parts
    assert list(names)[1:3] == ["_v:high", "_v:low"]
