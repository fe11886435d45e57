"""Sums of float64 as double-doubles, so that results do not depend on order or batches.

A value is the unevaluated sum of two float64, `high` and `low`, where `high` is the rounded
value: about 106 bits. Addition is TwoSum with the low parts carried along; its error is at most
2⁻¹⁰⁴ of the operands' magnitudes. Infinities and NaN follow IEEE 754.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Doubles = NDArray[np.float64]


def add(
    high: Doubles, low: Doubles, other_high: Doubles, other_low: Doubles
) -> tuple[Doubles, Doubles]:
    """The sums of pairs of double-doubles."""
    with np.errstate(invalid="ignore", over="ignore"):
        plain, error = two_sum(high, other_high)
        rest, rest_error = two_sum(low, other_low)
        error += rest
        total, error = _fast_two_sum(plain, error)
        error += rest_error
        total, error = _fast_two_sum(total, error)
    finite = np.isfinite(plain) & np.isfinite(total)
    if finite.all():
        return total, error
    return np.where(finite, total, plain), np.where(finite, error, 0.0)


def sum_groups(high: Doubles, low: Doubles, starts: NDArray[np.int64]) -> tuple[Doubles, Doubles]:
    """The sum of each group of adjacent rows: neighbours are added until one is left."""
    sizes = np.diff(starts, append=len(high))
    if len(sizes) == len(high):
        return high, low
    total_high, total_low = high[starts], low[starts]
    pairs = np.flatnonzero(sizes == 2)
    left, right = starts[pairs], starts[pairs] + 1
    total_high[pairs], total_low[pairs] = add(high[left], low[left], high[right], low[right])
    more = np.flatnonzero(sizes > 2)
    if len(more):
        halved = _halved(high, low, starts[more], sizes[more])
        total_high[more], total_low[more] = sum_groups(*halved)
    return total_high, total_low


def _halved(
    high: Doubles, low: Doubles, starts: NDArray[np.int64], sizes: NDArray[np.int64]
) -> tuple[Doubles, Doubles, NDArray[np.int64]]:
    """Adds neighbours in each group; the last row of an odd group is unchanged."""
    halves = (sizes + 1) // 2
    ends = np.cumsum(halves)
    left = 2 * np.arange(ends[-1]) + np.repeat(starts - 2 * (ends - halves), halves)
    paired = np.ones(len(left), dtype=np.bool_)
    paired[ends[sizes & 1 == 1] - 1] = False
    new_high, new_low = high[left], low[left]
    first = left[paired]
    second = first + 1
    new_high[paired], new_low[paired] = add(high[first], low[first], high[second], low[second])
    return new_high, new_low, ends - halves


def two_sum(a: Doubles, b: Doubles) -> tuple[Doubles, Doubles]:
    """The rounded sums of pairs, and their exact rounding errors."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _fast_two_sum(a: Doubles, b: Doubles) -> tuple[Doubles, Doubles]:
    total = a + b
    return total, b - (total - a)
