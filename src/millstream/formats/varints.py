"""Encodes columns as the bytes of Avro and Protobuf, a whole column at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Sequence

Words = npt.NDArray[np.uint64]
_EMPTY = pa.scalar(b"", pa.binary())
_SEVEN, _MORE = np.uint8(0x7F), np.uint8(0x80)


def encode_varints(values: Words) -> pa.Array:
    """Encode numbers as varints: seven bits per byte, lowest first."""
    size = np.ones(values.size, np.int64)
    largest = int(values.max(initial=0))
    for bits in range(7, max(7, largest.bit_length()), 7):
        size += values >= np.uint64(1 << bits)
    most = max(1, -(-largest.bit_length() // 7))
    groups = np.empty((values.size, most), np.uint8)
    for place in range(most):
        seven = (values >> np.uint64(7 * place)).astype(np.uint8)
        groups[:, place] = np.where(size > place + 1, seven | _MORE, seven & _SEVEN)
    if most > 1 and size.size and int(size.min()) < most:
        groups = groups[np.arange(most) < size[:, None]]
    return split_bytes(groups.ravel(), size)


def encode_zigzags(values: npt.NDArray[np.int64]) -> pa.Array:
    """Encode signed numbers as zigzag varints."""
    doubled = values.view(np.uint64) << np.uint64(1)
    return encode_varints(doubled ^ (values >> 63).view(np.uint64))


def encode_fixed(values: npt.NDArray[np.generic]) -> pa.Array:
    """Encode numbers as little-endian bytes of fixed size."""
    data = np.ascontiguousarray(values).view(np.uint8)
    return split_bytes(data, np.full(len(values), values.dtype.itemsize))


def split_bytes(data: npt.NDArray[np.uint8], sizes: npt.NDArray[np.int64]) -> pa.Array:
    """Split an array of bytes into values of these sizes."""
    bounds = np.zeros(sizes.size + 1, np.int32)
    np.cumsum(sizes, out=bounds[1:])
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(pa.binary(), sizes.size, buffers)


def byte_lengths(column: pa.Array) -> npt.NDArray[np.int64]:
    """The size of each value in bytes."""
    sizes: npt.NDArray[np.int64] = pc.binary_length(column).to_numpy(zero_copy_only=False)
    return sizes.astype(np.int64)


def join_columns(parts: Sequence[pa.Array | pa.Scalar]) -> pa.Array:
    """Concatenate the values of several columns, row by row; null where one is null."""
    return pc.binary_join_element_wise(*parts, _EMPTY)


def choose(flags: npt.NDArray[np.bool_], one: pa.Array, other: pa.Array | bytes) -> pa.Array:
    """Take `one` where a flag is true, else `other`."""
    if isinstance(other, bytes):
        other = pa.scalar(other, pa.binary())
    return pc.if_else(pa.array(flags), one, other)


def join_lists(lists: pa.Array, elements: pa.Array) -> pa.Array:
    """Concatenate the bytes of the elements of each list; empty for null."""
    count = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    bounds = np.zeros(len(lists) + 1, np.int64)
    np.cumsum(count, out=bounds[1:])
    ends = np.zeros(len(elements) + 1, np.int64)
    np.cumsum(byte_lengths(elements), out=ends[1:])
    data = np.frombuffer(pc.binary_join(
        pa.ListArray.from_arrays(pa.array([0, len(elements)], pa.int32()), elements), _EMPTY
    )[0].as_py(), np.uint8)  # fmt: skip
    return split_bytes(data, np.diff(ends[bounds]))
