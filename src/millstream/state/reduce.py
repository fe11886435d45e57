"""One value per group of adjacent rows: sum, min, max, first, last."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.state.arrays.decimals import decimal_total, overflow
from millstream.state.arrays.doubles import sum_groups
from millstream.state.arrays.numpy_columns import (
    float_values,
    int_values,
    is_int_like,
    validity,
)
from millstream.state.keys.equality import floats_of, ranks, sortable_floats

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Starts = NDArray[np.int64]

_INT64 = np.iinfo(np.int64)
_LOW_32 = np.int64(0xFFFFFFFF)


def first(array: pa.Array, starts: Starts) -> pa.Array:
    """Each group's first value, null or not."""
    return array.take(pa.array(starts))


def last(array: pa.Array, starts: Starts) -> pa.Array:
    """Each group's last value, null or not."""
    return array.take(pa.array(np.append(starts[1:], len(array)) - 1))


def total(array: pa.Array, starts: Starts, name: str) -> pa.Array:
    """Each group's exact sum; null where every value is null."""
    present = validity(array)
    empty = _empty_groups(present, starts)
    if pa.types.is_decimal(array.type):
        return decimal_total(array, present, empty, starts, name)
    values = int_values(array)
    if present is not None:
        values = np.where(present, values, 0)
    size = int(np.diff(starts, append=len(values)).max())
    if size * max(int(values.max()), -int(values.min())) <= _INT64.max:
        # Running sums may wrap; their differences, which fit, are exact nevertheless.
        upto = np.cumsum(values)[np.append(starts[1:], len(values)) - 1]
        return pa.array(np.diff(upto, prepend=np.int64(0)), mask=empty)
    low = np.add.reduceat(values & _LOW_32, starts)
    high = np.add.reduceat(values >> 32, starts) + (low >> 32)
    if ((high < -(2**31)) | (high >= 2**31)).any():
        raise overflow(name, array.type, do="sum a decimal(38, 0) instead")
    return pa.array((high << 32) | (low & _LOW_32), mask=empty)


def double_total(high: pa.Array, low: pa.Array, starts: Starts) -> tuple[pa.Array, pa.Array]:
    """Each group's sum as a double-double; null where every value is null."""
    present = validity(high)
    empty = _empty_groups(present, starts)
    highs, lows = float_values(high), float_values(low)
    if present is not None:
        highs, lows = np.where(present, highs, 0.0), np.where(present, lows, 0.0)
    sums = sum_groups(highs, lows, starts)
    return pa.array(sums[0], mask=empty), pa.array(sums[1], mask=empty)


def extreme(array: pa.Array, starts: Starts, *, largest: bool) -> pa.Array:
    """Each group's smallest or largest value; null where every value is null."""
    kind = array.type
    present = validity(array)
    empty = _empty_groups(present, starts)
    if is_int_like(kind):
        found = _extreme_int(int_values(array), present, starts, largest=largest)
        return _int_array(found, kind, empty)
    if pa.types.is_floating(kind):
        ranked = sortable_floats(float_values(array))
        found = _extreme_int(ranked, present, starts, largest=largest)
        return pa.array(floats_of(found), mask=empty).cast(kind)
    ranked = ranks(array)
    representative = np.zeros(int(ranked.max()) + 1, dtype=np.int64)
    representative[ranked] = np.arange(len(ranked))
    found = _extreme_int(ranked, present, starts, largest=largest)
    if empty is not None:
        found = np.where(empty, 0, found)
    return array.take(pa.array(representative[found], mask=empty))


def _extreme_int(
    values: NDArray[np.int64],
    present: NDArray[np.bool_] | None,
    starts: Starts,
    *,
    largest: bool,
) -> NDArray[np.int64]:
    reduce, nothing = (np.maximum, _INT64.min) if largest else (np.minimum, _INT64.max)
    if present is not None:
        values = np.where(present, values, nothing)
    found: NDArray[np.int64] = reduce.reduceat(values, starts)
    return found


def _int_array(
    values: NDArray[np.int64], kind: pa.DataType, empty: NDArray[np.bool_] | None
) -> pa.Array:
    if empty is not None:
        values = np.where(empty, 0, values)
    if pa.types.is_boolean(kind):
        return pa.array(values.astype(np.bool_), mask=empty)
    if pa.types.is_integer(kind):
        return pa.array(values, mask=empty).cast(kind)
    width = pa.int64() if kind.bit_width == 64 else pa.int32()
    return pa.array(values, mask=empty).cast(width).view(kind)


def _empty_groups(present: NDArray[np.bool_] | None, starts: Starts) -> NDArray[np.bool_] | None:
    """True for groups without a value; None when all have one."""
    if present is None:
        return None
    empty = ~np.logical_or.reduceat(present, starts)
    return empty if empty.any() else None
