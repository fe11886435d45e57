"""Variance and standard deviation from the sums of values and of squares.

Sums can be added in any order and retracted; running means cannot. The cancellation in
n * sum(x²) - sum(x)² is a problem only if the sums are rounded. Sums of integers are exact.
For floats, each square is split into its rounded value and the exact remainder, and both are
summed as double-doubles. Where cancellation is strong, all values are within a factor of two
of each other, and then these sums are exact, too. The last subtraction is done on exact
products.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.operators.aggregates.parts import (
    Accumulator,
    Part,
    is_number,
    valid_part,
    values_of,
    wrong_type,
)
from millstream.operators.aggregates.sums import (
    HALF,
    HALF_MASK,
    floats_part,
    halves_parts,
    integers_of,
)
from millstream.state.arrays.doubles import two_sum
from millstream.state.arrays.numpy_columns import decimal_limbs, plain
from millstream.state.spec import LOW_PART, StateColumn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from millstream.operators.aggregates.spec import Aggregate
    from millstream.operators.aggregates.sums import Integers

    Doubles = NDArray[np.float64]
    Terms = list[Doubles]
    Moments = tuple[tuple[Part, ...], Callable[[pa.Table], tuple[Terms, Terms]]]

_LONG_DIGITS = 18
_SPLITTER = 2.0**27 + 1
_PASSES = 4


def variance(aggregate: Aggregate, of: pa.DataType) -> Accumulator:
    """The sum of squared distances from the mean, divided by n - 1."""
    return _moment(aggregate, of, lambda variances: variances)


def stddev(aggregate: Aggregate, of: pa.DataType) -> Accumulator:
    """The square root of the variance."""
    return _moment(aggregate, of, np.sqrt)


def _moment(
    aggregate: Aggregate, of: pa.DataType, shown: Callable[[Doubles], Doubles]
) -> Accumulator:
    column = str(aggregate.column)
    if not is_number(of):
        raise wrong_type(aggregate, "a column of integers, floats or decimals", of)
    valid, scale = valid_part(column), 1.0
    if pa.types.is_signed_integer(of):
        parts, terms = _exact(column, integers_of(column), long=pa.types.is_int64(of))
    elif pa.types.is_decimal(of) and of.precision <= _LONG_DIGITS:
        parts, terms = _exact(column, _unscaled(column), long=True)
        scale = 10.0 ** (2 * of.scale)
    else:
        parts, terms = _rounded(column)

    def finish(state: pa.Table) -> pa.Array:
        counts = values_of(state, valid)
        several = np.maximum(counts, 2).astype(np.float64)
        distances = _distances(several, *terms(state))
        found = shown(distances / several / (several - 1) / scale)
        return pa.array(found, mask=counts < 2)

    return Accumulator((*parts, valid), pa.float64(), finish)


def _exact(column: str, values: Integers, *, long: bool) -> Moments:
    """The sums of integers and of their squares, in pieces of 32 bits."""
    halves = halves_parts(column, values)
    squares = [_square_part(column, values, place) for place in range(4 if long else 2)]

    def terms(state: pa.Table) -> tuple[Terms, Terms]:
        highs, lows = halves
        total = _halved(values_of(state, highs), HALF) + _halved(values_of(state, lows), 0)
        pieces = [_halved(values_of(state, part), at * HALF) for at, part in enumerate(squares)]
        return total, [term for piece in pieces for term in piece]

    return (*halves, *squares), terms


def _square_part(column: str, values: Integers, place: int) -> Part:
    """The sum of the pieces of all squares with the weight 2^(32 * place)."""

    def lift(rows: pa.Table, signs: NDArray[np.int64] | None) -> pa.Array:
        piece = _square_piece(values(rows), place)
        return pa.array(piece if signs is None else piece * signs)

    return Part(StateColumn(f"_{column}:square{place}", pa.int64(), "sum"), lift)


def _square_piece(values: NDArray[np.int64], place: int) -> NDArray[np.int64]:
    """One of four pieces below 2^34 that add up to the square, with the weight 2^(32 * place)."""
    unsigned = values.view(np.uint64)
    size = np.where(values < 0, -unsigned, unsigned)
    high, low = size >> np.uint64(HALF), size & np.uint64(HALF_MASK)
    mask, two = np.uint64(HALF_MASK), np.uint64(2)
    match place:
        case 0:
            piece = low * low & mask
        case 1:
            piece = (low * low >> np.uint64(HALF)) + two * (high * low & mask)
        case 2:
            piece = two * (high * low >> np.uint64(HALF)) + (high * high & mask)
        case _:
            piece = high * high >> np.uint64(HALF)
    return piece.astype(np.int64)


def _unscaled(column: str) -> Integers:
    """The unscaled integers of decimals of at most 18 digits."""

    def values(rows: pa.Table) -> NDArray[np.int64]:
        array = plain(rows[column])
        present = array.is_valid().to_numpy(zero_copy_only=False)
        return np.where(present, decimal_limbs(array).view(np.int64)[:, 0], 0)

    return values


def _rounded(column: str) -> Moments:
    """The sums of floats, of their squares, and of the rounding errors of the squares."""
    total = floats_part(column)

    def doubles(rows: pa.Table) -> Doubles:
        values = plain(rows[column]).cast(pa.float64())
        return np.asarray(plain(pc.fill_null(values, 0.0)).to_numpy())

    def square(rows: pa.Table, signs: NDArray[np.int64] | None) -> pa.Array:
        values = doubles(rows)
        with np.errstate(over="ignore", invalid="ignore"):
            return pa.array(values * values if signs is None else values * values * signs)

    def rest(rows: pa.Table, signs: NDArray[np.int64] | None) -> pa.Array:
        values = doubles(rows)
        with np.errstate(over="ignore", invalid="ignore"):
            lost = two_product(values, values)[1]
        return pa.array(lost if signs is None else lost * signs)

    squares = Part(StateColumn(f"_{column}:square", pa.float64(), "dsum"), square)
    rests = Part(StateColumn(f"_{column}:square_rest", pa.float64(), "dsum"), rest)

    def terms(state: pa.Table) -> tuple[Terms, Terms]:
        return _both(state, total), _both(state, squares) + _both(state, rests)

    return (total, squares, rests), terms


def _both(state: pa.Table, part: Part) -> Terms:
    name = part.column.name
    return [np.asarray(plain(state[column]).to_numpy()) for column in (name, name + LOW_PART)]


def _halved(values: NDArray[np.int64], weight: int) -> Terms:
    """Integers times 2^weight as two doubles each, exactly."""
    high = np.ldexp((values >> HALF).astype(np.float64), weight + HALF)
    return [high, np.ldexp((values & HALF_MASK).astype(np.float64), weight)]


def _distances(counts: Doubles, sums: Terms, squares: Terms) -> Doubles:
    """n * (sum of squares) - (sum)², rounded once; NaN of NaN, infinite if a square is."""
    with np.errstate(over="ignore", invalid="ignore"):
        products = [term for square in squares for term in two_product(counts, square)]
        for place, one in enumerate(sums):
            products += [-term for term in two_product(one, one)]
            for other in sums[place + 1 :]:
                products += [-2.0 * term for term in two_product(one, other)]
        found = np.maximum(exact_sum(products), 0.0)
    overflown = np.where(np.isfinite(sums[0]), np.inf, np.nan)
    return np.where(np.isfinite(sums[0]) & np.isfinite(squares[0]), found, overflown)


def two_product(one: Doubles, other: Doubles) -> tuple[Doubles, Doubles]:
    """The rounded products of pairs, and their exact rounding errors."""
    product = one * other
    one_high, one_low = _split(one)
    other_high, other_low = _split(other)
    rest = one_high * other_high - product
    rest += one_high * other_low
    rest += one_low * other_high
    return product, rest + one_low * other_low


def _split(values: Doubles) -> tuple[Doubles, Doubles]:
    """Each double as two of half its digits (Veltkamp)."""
    shifted = values * _SPLITTER
    high = shifted - (shifted - values)
    return high, values - high


def exact_sum(terms: Sequence[Doubles]) -> Doubles:
    """The sums of many terms, as if added in four times the precision of a double.

    Each pass replaces the terms by the rounding errors of the running sums (Ogita, Rump and
    Oishi's SumK).
    """
    left = list(terms)
    for _ in range(_PASSES - 1):
        for place in range(1, len(left)):
            left[place], left[place - 1] = two_sum(left[place], left[place - 1])
    return reduce(np.add, left)
