"""How aggregates are computed: what a row gives to the state, and what the state says.

    rows -- lift --> state columns -- combined by the state layer --> finish --> one value

An accumulator is a tuple of parts and a `finish`. A part is one state column with its
`lift`; aggregates that need the same part share it. A new aggregate is a value in
`aggregates.py` and one function here, registered in `_MAKERS`: no kernel changes.

Sums of longs are kept as two halves of 32 bits, so that no order and no batch cut can
overflow on the way: only a sum that itself does not fit is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import InvalidInput, InvalidSpec
from millstream.state.columns import plain
from millstream.state.spec import StateColumn
from millstream.windows.aggregates import Count, Max, Mean, Min, Sum

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from millstream.windows.aggregates import Aggregate

Lift = Callable[[pa.Table, "NDArray[np.int64] | None"], pa.Array]
Finish = Callable[[pa.Table], pa.Array]

ROWS = "_rows"
HALF = 32
HALF_MASK = (1 << HALF) - 1
WIDEST = 38  # digits of a decimal128


@dataclass(frozen=True, slots=True)
class Part:
    """One state column, and what each row gives to it.

    `lift` takes the rows and their signs (None: all +1) and gives one value per row.
    """

    column: StateColumn
    lift: Lift


@dataclass(frozen=True, slots=True)
class Accumulator:
    """The parts an aggregate keeps, the type of its answer, and the answer from the parts."""

    parts: tuple[Part, ...]
    type: pa.DataType
    finish: Finish


def accumulator(aggregate: Aggregate, schema: pa.Schema) -> Accumulator:
    """The accumulator of an aggregate over rows of a schema.

    Raises:
        InvalidSpec: the column is not there, or has a type it cannot take.
    """
    if aggregate.column is None:
        return Accumulator((rows_part(),), pa.int64(), lambda state: plain(state[ROWS]))
    if aggregate.column not in schema.names:
        raise InvalidSpec(
            f"{_name(aggregate)} needs a column of its input",
            got=repr(aggregate.column),
            do=f"choose one of {', '.join(schema.names)}",
        )
    return _MAKERS[type(aggregate)](aggregate, schema.field(aggregate.column).type)


def rows_part() -> Part:
    """How many rows a group has: a group of none is no group."""

    def lift(rows: pa.Table, signs: NDArray[np.int64] | None) -> pa.Array:
        return pa.array(np.ones(rows.num_rows, np.int64) if signs is None else signs)

    return Part(StateColumn(ROWS, pa.int64(), "sum"), lift)


def _count(aggregate: Aggregate, _type: pa.DataType) -> Accumulator:
    part = _valid_part(str(aggregate.column))
    return Accumulator((part,), pa.int64(), lambda state: plain(state[part.column.name]))


def _sum(aggregate: Aggregate, of: pa.DataType) -> Accumulator:
    column = str(aggregate.column)
    if pa.types.is_decimal(of):
        return _decimal_sum(column, of)
    number, valid = _number(aggregate, of), _valid_part(column)

    def finish(state: pa.Table) -> pa.Array:
        return _only_where(_numpy(state, valid) > 0, number.total(state))

    return Accumulator((*number.parts, valid), number.type, finish)


def _mean(aggregate: Aggregate, of: pa.DataType) -> Accumulator:
    column = str(aggregate.column)
    if pa.types.is_decimal(of):
        return _decimal_mean(column, of)
    number, valid = _number(aggregate, of), _valid_part(column)

    def finish(state: pa.Table) -> pa.Array:
        counts = _numpy(state, valid)
        return _only_where(counts > 0, number.float(state) / np.maximum(counts, 1))

    return Accumulator((*number.parts, valid), pa.float64(), finish)


def _extreme(aggregate: Aggregate, of: pa.DataType) -> Accumulator:
    column, name = str(aggregate.column), _name(aggregate)
    if not _is_ordered(of):
        raise _wrong_type(aggregate, "a column of numbers, text, bytes, times or booleans", of)

    def lift(rows: pa.Table, _signs: NDArray[np.int64] | None) -> pa.Array:
        values = plain(rows[column])
        return pc.add(values, pa.scalar(0.0, of)) if pa.types.is_floating(of) else values

    part = Part(StateColumn(f"_{column}:{name}", of, "min" if name == "min" else "max"), lift)
    return Accumulator((part,), of, lambda state: plain(state[part.column.name]))


@dataclass(frozen=True, slots=True)
class _Number:
    """A running sum of integers or floats: its parts, and the total as such or as a double."""

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
    raise _wrong_type(aggregate, "a column of integers, floats or decimals", of)


def _floats(column: str) -> _Number:
    def lift(rows: pa.Table, signs: NDArray[np.int64] | None) -> pa.Array:
        values = plain(pc.fill_null(plain(rows[column]).cast(pa.float64()), 0.0))
        return values if signs is None else pa.array(values.to_numpy() * signs)

    part = Part(StateColumn(f"_{column}:sum", pa.float64(), "dsum"), lift)

    def total(state: pa.Table) -> NDArray[np.float64]:
        rounded = plain(state[part.column.name]).to_numpy()
        return np.asarray(rounded + 0.0)

    return _Number((part,), pa.float64(), total, total)


def _integers(column: str) -> _Number:
    def lift(rows: pa.Table, signs: NDArray[np.int64] | None) -> pa.Array:
        values = plain(pc.fill_null(plain(rows[column]).cast(pa.int64()), 0))
        return values if signs is None else pa.array(values.to_numpy() * signs)

    part = Part(StateColumn(f"_{column}:sum", pa.int64(), "sum"), lift)
    return _Number(
        (part,),
        pa.int64(),
        lambda state: _numpy(state, part),
        lambda state: _numpy(state, part).astype(np.float64),
    )


def _longs(column: str) -> _Number:
    def values(rows: pa.Table) -> NDArray[np.int64]:
        return np.asarray(pc.fill_null(plain(rows[column]), 0).to_numpy())

    def high(rows: pa.Table, signs: NDArray[np.int64] | None) -> pa.Array:
        half = values(rows) >> HALF
        return pa.array(half if signs is None else half * signs)

    def low(rows: pa.Table, signs: NDArray[np.int64] | None) -> pa.Array:
        half = values(rows) & HALF_MASK
        return pa.array(half if signs is None else half * signs)

    highs = Part(StateColumn(f"_{column}:high", pa.int64(), "sum"), high)
    lows = Part(StateColumn(f"_{column}:low", pa.int64(), "sum"), low)

    def halves(state: pa.Table) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        rest = _numpy(state, lows)
        return _numpy(state, highs) + (rest >> HALF), rest & HALF_MASK

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
    part, valid = _decimal_part(column, of), _valid_part(column)
    answer = pa.decimal128(min(of.precision + 10, WIDEST), of.scale)

    def finish(state: pa.Table) -> pa.Array:
        totals = plain(state[part.column.name])
        return _narrowed(_known(state, valid, totals), answer, "sum", column)

    return Accumulator((part, valid), answer, finish)


def _decimal_mean(column: str, of: pa.DataType) -> Accumulator:
    part, valid = _decimal_part(column, of), _valid_part(column)
    answer = pa.decimal128(min(of.precision + 4, WIDEST), min(of.scale + 4, WIDEST))

    def finish(state: pa.Table) -> pa.Array:
        totals = plain(state[part.column.name]).cast(pa.decimal256(WIDEST, of.scale))
        counts = pa.array(np.maximum(_numpy(state, valid), 1)).cast(pa.decimal256(19, 0))
        # Arrow cuts the quotient off 20 digits behind the scale, which rounds nothing up or
        # down that HALF_UP at 4 digits behind it would not.
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


def _valid_part(column: str) -> Part:
    """How many values of a column are not null."""

    def lift(rows: pa.Table, signs: NDArray[np.int64] | None) -> pa.Array:
        valid = plain(pc.is_valid(rows[column])).cast(pa.int8()).cast(pa.int64())
        return valid if signs is None else pa.array(valid.to_numpy() * signs)

    return Part(StateColumn(f"_{column}:count", pa.int64(), "sum"), lift)


def _numpy(state: pa.Table, part: Part) -> NDArray[np.int64]:
    return np.asarray(plain(state[part.column.name]).to_numpy())


def _only_where(known: NDArray[np.bool_], values: NDArray[np.generic]) -> pa.Array:
    return pa.array(values, mask=~known)


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


def _is_ordered(of: pa.DataType) -> bool:
    return not (pa.types.is_nested(of) or pa.types.is_null(of) or pa.types.is_dictionary(of))


def _name(aggregate: Aggregate) -> str:
    return type(aggregate).__name__.lower()


def _wrong_type(aggregate: Aggregate, need: str, of: pa.DataType) -> InvalidSpec:
    return InvalidSpec(
        f"{_name(aggregate)} needs {need}",
        got=f"{aggregate.column!r} of type {of}",
        do="cast it first, or name another column",
    )


def _does_not_fit(name: str, column: str, room: str, wider: str) -> InvalidInput:
    return InvalidInput(
        f"the {name} of {column!r} needs to fit into {room}",
        got="a window whose answer does not",
        do=f"cast the column to {wider} before the window",
    )


_MAKERS: dict[type, Callable[[Aggregate, pa.DataType], Accumulator]] = {
    Count: _count,
    Sum: _sum,
    Mean: _mean,
    Min: _extreme,
    Max: _extreme,
}
