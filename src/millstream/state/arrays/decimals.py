"""Exact sums of decimal128 in numpy: 128-bit integers as four quarters of 32 bits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.errors import InvalidInput
from millstream.state.arrays.numpy_columns import decimal_limbs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Mask = NDArray[np.bool_] | None

_LOW_32 = np.int64(0xFFFFFFFF)


def decimal_total(
    array: pa.Array, present: Mask, empty: Mask, starts: NDArray[np.int64], name: str
) -> pa.Array:
    """Each group's sum, null where `empty`; a sum that exceeds the type's digits is an error."""
    limbs = decimal_limbs(array)
    if present is not None:
        limbs = np.where(present[:, None], limbs, np.uint64(0))
    words = limbs.view(np.int64)
    parts = (words[:, 0] & _LOW_32, words[:, 0] >> 32 & _LOW_32, words[:, 1] & _LOW_32)
    carry = np.zeros(len(starts), dtype=np.int64)
    quarters = []
    for part in parts:
        carry = carry + np.add.reduceat(part, starts)
        quarters.append(carry & _LOW_32)
        carry = carry >> 32
    top = carry + np.add.reduceat(words[:, 1] >> 32, starts)
    sums = np.empty((len(starts), 2), dtype=np.int64)
    sums[:, 0] = quarters[1] << 32 | quarters[0]
    sums[:, 1] = top << 32 | quarters[2]
    if (top >> 31 != top >> 63).any() or _too_large(sums, array.type.precision).any():
        raise overflow(name, array.type, do="give it more digits, at most 38")
    return pa.Array.from_buffers(
        array.type, len(starts), [_null_bits(empty), pa.py_buffer(sums.tobytes())]
    )


def overflow(name: str, kind: pa.DataType, *, do: str) -> InvalidInput:
    """The error for a sum that its type cannot hold."""
    return InvalidInput(f"the sum {name!r} needs to fit {kind}", got="a larger one", do=do)


def _too_large(sums: NDArray[np.int64], precision: int) -> NDArray[np.bool_]:
    most = 10**precision - 1
    return _above(sums, most) | ~_above(sums, -most - 1)


def _above(sums: NDArray[np.int64], bound: int) -> NDArray[np.bool_]:
    high, low = np.int64(bound >> 64), np.uint64(bound & 2**64 - 1)
    lows = np.ascontiguousarray(sums[:, 0]).view(np.uint64)
    above: NDArray[np.bool_] = (sums[:, 1] > high) | ((sums[:, 1] == high) & (lows > low))
    return above


def _null_bits(empty: Mask) -> pa.Buffer | None:
    return None if empty is None else pa.array(~empty).buffers()[1]
