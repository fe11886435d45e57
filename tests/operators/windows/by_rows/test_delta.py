"""Delta windows: what they refuse, then the oracle over random rows, cuts and ranges."""

from __future__ import annotations

import math
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.operators.windows import tables
from tests.operators.windows.by_rows import row_feeding
from tests.operators.windows.by_rows.row_feeding import (
    ANSWERS,
    COLUMNS,
    KEYS,
    batched,
    cuts,
    streams,
)
from tests.operators.windows.driving import Driver
from tests.oracles import row_windows

from millstream.errors import InvalidSpec
from millstream.event_time.batch_time import END_OF_TIME, MIN_TIME
from millstream.operators.windows.by_rows.delta_kernel import (
    delta_kernel,
    far_floats,
    far_integers,
    first_beyond,
)
from millstream.operators.windows.by_rows.spec import Delta, delta

if TYPE_CHECKING:
    from millstream.operators.windows.by_rows.cut_kernel import CutKernel

DISTANCES: dict[str, list[Any]] = {
    "i": [1, 3, 2.5, Decimal("0.1"), 40_000, 2**70],
    "l": [1, 2**62, 2**63, 1.5e18],
    "d": [0.5, 3, Decimal(2), 1e300],
    "f": [0.25, 1],
    "m": [Decimal("0.3"), 0.3, 1],
    "at": [timedelta(microseconds=3), timedelta(microseconds=1)],
}


def made(column: str, by: Any, keys: list[str]) -> CutKernel:
    return delta_kernel(Delta(column, by), keys, ANSWERS, COLUMNS)


def as_measured(column: str, by: Any) -> Any:
    """The distance as plain Python compares it with a difference of the column's values."""
    if column == "m":
        return Decimal(str(by))
    if column in ("i", "l"):
        return Fraction(by)
    return by if column == "at" else float(by)


@settings(max_examples=30, deadline=None)
@given(
    rows=streams() | streams(timed=False),
    shares=cuts(),
    measure=st.sampled_from([(name, by) for name, many in DISTANCES.items() for by in many]),
    keys=st.sampled_from(KEYS),
    ranges=st.integers(1, 3),
    slices=st.integers(1, 3),
    merge_every=st.integers(0, 2),
)
def test_every_batch_gives_what_the_oracle_gives(
    rows: list[dict[str, Any]],
    shares: list[float],
    measure: tuple[str, Any],
    keys: list[str],
    ranges: int,
    slices: int,
    merge_every: int,
) -> None:
    column, by = measure
    row_feeding.agrees_with_the_oracle(
        made(column, by, keys),
        row_windows.Moved(column, as_measured(column, by)),
        batched(rows, shares),
        keys=keys,
        ranges=ranges,
        slices=slices,
        merge_every=merge_every,
    )


@settings(max_examples=200, deadline=None)
@given(
    values=st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-4, 4), max_size=50),
    by=st.integers(1, 6) | st.integers(1, 2**65),
)
def test_the_first_integer_beyond_is_the_one_a_loop_finds(values: list[int], by: int) -> None:
    found = first_beyond(np.array(values, np.int64), far_integers(by)).tolist()
    assert found == [
        next((j for j in range(i + 1, len(values)) if abs(values[j] - v) >= by), len(values))
        for i, v in enumerate(values)
    ]


@settings(max_examples=200, deadline=None)
@given(
    values=st.lists(st.floats(allow_nan=False) | st.integers(-9, 9).map(float), max_size=50),
    by=st.sampled_from([0.1, 0.3, 1.0, 2.0**-1074, 1e308]),
)
def test_the_first_float_beyond_is_the_one_a_loop_finds(values: list[float], by: float) -> None:
    found = first_beyond(np.array(values, np.float64), far_floats(by)).tolist()
    assert found == [
        next((j for j in range(i + 1, len(values)) if abs(values[j] - v) >= by), len(values))
        for i, v in enumerate(values)
    ]


@pytest.mark.parametrize(("by", "last"), [(2**63, 0), (2**64 - 1, 2**63 - 1), (2**64, None)])
def test_distances_beyond_63_bits_are_measured(by: int, last: int | None) -> None:
    values = np.array([-(2**63), -1, 0, 2**63 - 1], np.int64)
    found = int(first_beyond(values, far_integers(by))[0])
    assert (values.tolist()[found] if found < len(values) else None) == last


@pytest.mark.parametrize(
    ("column", "by", "values", "sizes"),
    [
        ("i", 2.5, [0, 2, 3, 1, 0], [2, 2, 1]),
        ("i", Decimal("2.5"), [0, 2, 3, 1, 0], [2, 2, 1]),
        ("m", 0.15, ["0", "0.1", "0.2"], [2, 1]),
        ("m", 0.1, ["0", "0.099", "0.1"], [2, 1]),
        ("d", 1, [None, math.nan, 5.0, None, 5.5, 6.0], [5, 1]),
        ("d", 1, [math.inf, math.inf, 0.0, -math.inf], [2, 1, 1]),
    ],
)
def test_a_window_ends_before_the_row_that_is_far_enough_away(
    column: str, by: Any, values: list[Any], sizes: list[int]
) -> None:
    given_values = [Decimal(value) if column == "m" else value for value in values]
    rows = [
        dict.fromkeys(COLUMNS.names)
        | {
            column: value,
            "_time": place,
            "_source": 0,
            "_partition": 0,
            "_offset": place,
            "_sub": 0,
        }
        for place, value in enumerate(given_values)
    ]
    with Driver(made(column, by, [])) as driver:
        left = driver.step(tables.table(rows, COLUMNS), before=MIN_TIME, after=END_OF_TIME)
    assert [row["n"] for row in left.rows] == sizes


def test_a_spec_prints_as_it_is_written() -> None:
    assert str(delta("price", by=Decimal("2.50"))) == 'delta("price", by=2.50)'
    assert str(delta("ts", by="1 minute 30 seconds")) == 'delta("ts", by="1 minute 30 seconds")'
    assert delta("ts", by="90 seconds") == Delta("ts", timedelta(seconds=90))


@pytest.mark.parametrize(
    "by", [0, -1, float("nan"), float("inf"), True, None, [], timedelta(0), "0 seconds", Decimal(0)]
)
def test_a_distance_that_is_not_above_zero_is_refused(by: Any) -> None:
    with pytest.raises(InvalidSpec, match=r"the `by` of delta needs a number or a duration above"):
        delta("price", by=by)


@pytest.mark.parametrize("by", ["ten", "2000000000000 days"])
def test_a_text_that_is_not_a_duration_is_refused(by: str) -> None:
    with pytest.raises(InvalidSpec, match="the `by` of delta"):
        delta("price", by=by)


@pytest.mark.parametrize("column", ["", " ", None])
def test_a_column_without_a_name_is_refused(column: Any) -> None:
    with pytest.raises(InvalidSpec, match="delta needs the name of a column"):
        delta(column, by=1)


@pytest.mark.parametrize(
    ("column", "by", "message"),
    [
        ("nowhere", 1, "delta needs a column of its input; got 'nowhere'; choose one of"),
        ("s", 1, "delta needs a column of integers, floats or decimals"),
        ("at", 1, "delta needs a column of integers, floats or decimals"),
        ("i", timedelta(1), "delta needs a column of timestamps for a duration; got 'i'"),
        ("wide", 1, "of at most 18 digits for a number; got 'wide' of type decimal128"),
    ],
)
def test_a_column_that_cannot_be_measured_is_refused(column: str, by: Any, message: str) -> None:
    columns = pa.schema([*COLUMNS, ("wide", pa.decimal128(19, 0))])
    with pytest.raises(InvalidSpec, match=message):
        delta_kernel(Delta(column, by), ["k"], ANSWERS, columns)
