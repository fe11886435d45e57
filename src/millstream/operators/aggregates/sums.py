"""Counts, sums and means.

Sums of longs are kept as two halves of 32 bits, so that partial sums never overflow in any
order: only a final sum that does not fit is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import InvalidInput
from millstream.operators.aggregates.parts import (
    ROWS,
    Accumulator,
    Part,
    only_where,
    rows_part,
    valid_part,
    values_of,
    wrong_type,
)
from millstream.state.arrays.numpy_columns import plain
from millstream.state.spec import StateColumn

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from millstream.operators.aggregates.spec import Aggregate

Integers = Callable[[pa.Table], "NDArray[np.int64]"]

HALF = 32
HALF_MASK = (1 << HALF) - 1
WIDEST = 38  # digits of a decimal128


def count_rows() -> Accumulator:
    """The number of rows."""
    return Accumulator((rows_part(),), pa.int64(), lambda state: plain(state[ROWS]), 0)


def count(aggregate: Aggregate, _of: pa.DataType) -> Accumulator:
    """The number of values that are not null."""
    part = valid_part(str(aggregate.column))
    return Accumulator((part,), pa.int64(), lambda state: plain(state[part.column.name]), 0)


def total(aggregate: Aggregate, of: pa.DataType) -> Accumulator:
    """The sum; null for no values."""
    column = str(aggregate.column)
    if pa.types.is_decimal(of):
        return _decimal_sum(column, of)
    number, valid = _number(aggregate, of), valid_part(column)

    def finish(state: pa.Table) -> pa.Array:
        return only_where(values_of(state, valid) > 0, number.total(state))

    return Accumulator((*number.parts, valid), number.type, finish)


def mean(aggregate: Aggregate, of: pa.DataType) -> Accumulator:
    """The sum divided by the count; null for no values."""
    column = str(aggregate.column)
    if pa.types.is_decimal(of):
        return _decimal_mean(column, of)
    number, valid = _number(aggregate, of), valid_part(column)

    def finish(state: pa.Table) -> pa.Array:
        counts = values_of(state, valid)
        return only_where(counts > 0, number.float(state) / np.maximum(counts, 1))

    return Accumulator((*number.parts, valid), pa.float64(), finish)


@dataclass(frozen=True, slots=True)
class _Number:
    """A sum of integers or floats: its parts, and the total in its own type or as a double."""

    parts: tuple[Part, ...]
    type: pa.DataType
    total: Callable[[pa.Table], NDArray[np.int64] | NDArray[np.float64]]
    float: Callable[[pa.Table], NDArray[np.float64]]


def _number(aggregate: Aggregate, of: pa.DataType) -> _Number:
    column = str(aggregate.column)
    if pa.types.is_floating(of):
        return _floats(column)
    if pa.types.is_int64(of):
        return _longs(column)
    if pa.types.is_signed_integer(of):
        return _integers(column)
    raise wrong_type(aggregate, "a column of integers, floats or decimals", of)


def floats_part(column: str) -> Part:
    """The sum of a column of floats."""

    def lift(rows: pa.Table, signs: NDArray[np.int64] | None) -> pa.Array:
        values = plain(pc.fill_null(plain(rows[column]).cast(pa.float64()), 0.0))
        return values if signs is None else pa.array(values.to_numpy() * signs)

    return Part(StateColumn(f"_{column}:sum", pa.float64(), "dsum"), lift)


def _floats(column: str) -> _Number:
    part = floats_part(column)

    def total(state: pa.Table) -> NDArray[np.float64]:
        rounded = plain(state[part.column.name]).to_numpy()
        return np.asarray(rounded + 0.0)

    return _Number((part,), pa.float64(), total, total)


def _integers(column: str) -> _Number:
    values = integers_of(column)

    def lift(rows: pa.Table, signs: NDArray[np.int64] | None) -> pa.Array:
        return pa.array(values(rows) if signs is None else values(rows) * signs)

    part = Part(StateColumn(f"_{column}:sum", pa.int64(), "sum"), lift)
    return _Number(
        (part,),
        pa.int64(),
        lambda state: values_of(state, part),
        lambda state: values_of(state, part).astype(np.float64),
    )


def halves_parts(column: str, values: Integers) -> tuple[Part, Part]:
    """The sum of 64-bit integers as the sums of their upper and lower 32 bits."""

    def high(rows: pa.Table, signs: NDArray[np.int64] | None) -> pa.Array:
        half = values(rows) >> HALF
        return pa.array(half if signs is None else half * signs)

    def low(rows: pa.Table, signs: NDArray[np.int64] | None) -> pa.Array:
        half = values(rows) & HALF_MASK
        return pa.array(half if signs is None else half * signs)

    return (
        Part(StateColumn(f"_{column}:high", pa.int64(), "sum"), high),
        Part(StateColumn(f"_{column}:low", pa.int64(), "sum"), low),
    )


def integers_of(column: str) -> Integers:
    """A function that reads the integers of a column: as int64, 0 for null."""

    def values(rows: pa.Table) -> NDArray[np.int64]:
        return np.asarray(pc.fill_null(plain(rows[column]).cast(pa.int64()), 0).to_numpy())

    return values


def _longs(column: str) -> _Number:
    highs, lows = halves_parts(column, integers_of(column))

    def halves(state: pa.Table) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        rest = values_of(state, lows)
        return values_of(state, highs) + (rest >> HALF), rest & HALF_MASK

    def total(state: pa.Table) -> NDArray[np.int64]:
        upper, lower = halves(state)
        if np.any((upper >= 1 << 31) | (upper < -(1 << 31))):
            raise _does_not_fit("sum", column, "64 bits", "decimal(38, 0)")
        return (upper << HALF) | lower

    def as_float(state: pa.Table) -> NDArray[np.float64]:
        upper, lower = halves(state)
        return upper.astype(np.float64) * (1 << HALF) + lower

    return _Number((highs, lows), pa.int64(), total, as_float)


def _decimal_sum(column: str, of: pa.DataType) -> Accumulator:
    part, valid = _decimal_part(column, of), valid_part(column)
    answer = pa.decimal128(min(of.precision + 10, WIDEST), of.scale)

    def finish(state: pa.Table) -> pa.Array:
        totals = plain(state[part.column.name])
        return _narrowed(_known(state, valid, totals), answer, "sum", column)

    return Accumulator((part, valid), answer, finish)


def _decimal_mean(column: str, of: pa.DataType) -> Accumulator:
    part, valid = _decimal_part(column, of), valid_part(column)
    answer = pa.decimal128(min(of.precision + 4, WIDEST), min(of.scale + 4, WIDEST))

    def finish(state: pa.Table) -> pa.Array:
        totals = plain(state[part.column.name]).cast(pa.decimal256(WIDEST, of.scale))
        counts = pa.array(np.maximum(values_of(state, valid), 1)).cast(pa.decimal256(19, 0))
        # Arrow truncates the quotient 20 digits after the scale, which does not change the
        # result of HALF_UP rounding at 4 digits after it.
        quotients = pc.round(pc.divide(totals, counts), answer.scale, "half_towards_infinity")
        return _narrowed(_known(state, valid, quotients), answer, "mean", column)

    return Accumulator((part, valid), answer, finish)


def _decimal_part(column: str, of: pa.DataType) -> Part:
    wide = pa.decimal128(WIDEST, of.scale)

    def lift(rows: pa.Table, signs: NDArray[np.int64] | None) -> pa.Array:
        values = pc.fill_null(plain(rows[column]).cast(wide), pa.scalar(0).cast(wide))
        if signs is None:
            return values
        return pc.if_else(pa.array(signs < 0), pc.negate(values), values)

    return Part(StateColumn(f"_{column}:sum", wide, "sum"), lift)


def _known(state: pa.Table, valid: Part, values: pa.Array) -> pa.Array:
    known = pc.greater(plain(state[valid.column.name]), 0)
    return pc.if_else(known, values, pa.scalar(None, values.type))


def _narrowed(values: pa.Array, answer: pa.DataType, name: str, column: str) -> pa.Array:
    try:
        return values.cast(answer)
    except pa.ArrowInvalid as reason:
        narrower = "a decimal of fewer digits, or to double"
        raise _does_not_fit(name, column, f"decimal{_digits(answer)}", narrower) from reason


def _digits(of: pa.DataType) -> str:
    return f"({of.precision}, {of.scale})"


def _does_not_fit(name: str, column: str, room: str, wider: str) -> InvalidInput:
    return InvalidInput(
        f"the {name} of {column!r} needs to fit into {room}",
        got="a window whose answer does not",
        do=f"cast the column to {wider} before the window",
    )
