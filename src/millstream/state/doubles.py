"""Sums of float64 as double-doubles, so that order and batch cuts do not show.

A value is the unevaluated sum of two float64, `high` and `low`, with `high` the value
rounded: about 106 bits. Adding is TwoSum with the low parts carried along; one addition
errs by at most 2⁻¹⁰⁴ of the operands' magnitudes. Infinities and NaN go as in IEEE 754.
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
    while (largest := int(sizes.max(initial=1))) > 1:
        high, low, sizes = _halve(high, low, sizes, all_pairs=largest == 2 == sizes.min())
    return high, low


def _halve(
    high: Doubles, low: Doubles, sizes: NDArray[np.int64], *, all_pairs: bool
) -> tuple[Doubles, Doubles, NDArray[np.int64]]:
    if all_pairs:
        return *add(high[::2], low[::2], high[1::2], low[1::2]), sizes // 2
    halves = (sizes + 1) // 2
    ends = np.cumsum(sizes)
    place = np.arange(len(high), dtype=np.int64) - np.repeat(ends - sizes, sizes)
    left = np.flatnonzero(place & 1 == 0)
    alone = np.zeros(len(left), dtype=np.bool_)
    alone[np.cumsum(halves)[sizes & 1 == 1] - 1] = True
    first, second = left[~alone], left[~alone] + 1
    new_high, new_low = high[left], low[left]
    new_high[~alone], new_low[~alone] = add(high[first], low[first], high[second], low[second])
    return new_high, new_low, halves


def two_sum(a: Doubles, b: Doubles) -> tuple[Doubles, Doubles]:
    """The rounded sums of pairs, and exactly what rounding took from them."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _fast_two_sum(a: Doubles, b: Doubles) -> tuple[Doubles, Doubles]:
    total = a + b
    return total, b - (total - a)
