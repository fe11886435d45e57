"""Arrow columns as numpy arrays, without a copy where none is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from millstream.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

_DTYPES: dict[tuple[int, bool], type[np.integer[Any]]] = {
    (8, True): np.int8,
    (16, True): np.int16,
    (32, True): np.int32,
    (64, True): np.int64,
    (8, False): np.uint8,
    (16, False): np.uint16,
    (32, False): np.uint32,
}


def plain(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The column as one plain array.

    Chunks are combined, dictionaries decoded, views and extension types unwrapped.
    """
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            raise InvalidInput(
                "one piece of state needs less than 2 GB in a text or binary column",
                got=f"{column.nbytes} bytes of {column.type}",
                do="use large_string or large_binary for that column",
            )
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    kind = column.type
    if pa.types.is_dictionary(kind):
        return plain(column.dictionary_decode())
    if pa.types.is_string_view(kind):
        return column.cast(pa.large_string())
    if pa.types.is_binary_view(kind):
        return column.cast(pa.large_binary())
    return column


def is_int_like(kind: pa.DataType) -> bool:
    """Whether every value is an integer of at most 64 signed bits: numbers, dates, times."""
    return (
        (pa.types.is_integer(kind) and not pa.types.is_uint64(kind))
        or pa.types.is_boolean(kind)
        or pa.types.is_temporal(kind)
    ) and not pa.types.is_interval(kind)


def validity(array: pa.Array) -> NDArray[np.bool_] | None:
    """True where the value is not null; None if there are no nulls."""
    if array.null_count == 0:
        return None
    mask: NDArray[np.bool_] = array.is_valid().to_numpy(zero_copy_only=False)
    return mask


def int_values(array: pa.Array) -> NDArray[np.int64]:
    """The integers of an int-like column; undefined where it is null."""
    if len(array) == 0:
        return np.zeros(0, dtype=np.int64)
    kind = array.type
    if pa.types.is_boolean(kind):
        array, kind = array.cast(pa.int8()), pa.int8()
    signed = not pa.types.is_unsigned_integer(kind)
    raw = np.frombuffer(
        array.buffers()[1], _DTYPES[kind.bit_width, signed], array.offset + len(array)
    )
    return raw[array.offset :].astype(np.int64, copy=False)


def float_values(array: pa.Array) -> NDArray[np.float64]:
    """The numbers of a floating column as float64; undefined where it is null."""
    if len(array) == 0:
        return np.zeros(0, dtype=np.float64)
    if not pa.types.is_float64(array.type):
        array = array.cast(pa.float64())
    raw = np.frombuffer(array.buffers()[1], np.float64, array.offset + len(array))
    return raw[array.offset :]


def decimal_limbs(array: pa.Array) -> NDArray[np.uint64]:
    """The 128 bits of each decimal as two words (low, high); undefined where it is null."""
    if len(array) == 0:
        return np.zeros((0, 2), dtype=np.uint64)
    raw = np.frombuffer(array.buffers()[1], np.uint64, 2 * (array.offset + len(array)))
    return raw.reshape(-1, 2)[array.offset :]


def byte_spans(
    array: pa.Array,
) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
    """The bytes of a text or binary column, and each row's start and length in them."""
    kind, count = array.type, len(array)
    if pa.types.is_fixed_size_binary(kind):
        width = kind.byte_width
        data = _bytes(array.buffers()[1])
        starts = (np.arange(count, dtype=np.int64) + array.offset) * width
        return data, starts, np.full(count, width, dtype=np.int64)
    offsets = list_offsets(array)
    return _bytes(array.buffers()[2]), offsets[:-1], np.diff(offsets)


def list_offsets(array: pa.Array) -> NDArray[np.int64]:
    """Where each row of a text, binary or list column starts, and where the last one ends."""
    if len(array) == 0:
        return np.zeros(1, dtype=np.int64)
    kind = array.type
    wide = (
        pa.types.is_large_string(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_large_list(kind)
    )
    raw = np.frombuffer(
        array.buffers()[1], np.int64 if wide else np.int32, array.offset + len(array) + 1
    )
    return raw[array.offset :].astype(np.int64, copy=False)


def taken(table: pa.Table, places: NDArray[np.int64]) -> pa.Table:
    """The rows at these indices; columns of nulls are not copied."""
    at = pa.array(places)
    columns = [
        pa.nulls(len(places), column.type)
        if column.null_count == table.num_rows
        else column.take(at)
        for column in table.columns
    ]
    return pa.Table.from_arrays(columns, schema=table.schema)


def only(values: pa.Array, where: NDArray[np.bool_]) -> pa.Array:
    """The values where the mask is true, null in all other rows."""
    return values.take(pa.array(np.arange(len(values)), mask=~where))


def spans_to_rows(
    starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """All indices start, start+1, … of every span, and the span of each."""
    owners = np.repeat(np.arange(len(starts), dtype=np.int64), lengths)
    before = np.cumsum(lengths) - lengths
    rows = np.arange(len(owners), dtype=np.int64) + (starts - before)[owners]
    return rows, owners


def in_chunks(
    starts: NDArray[np.int64], lengths: NDArray[np.int64], most: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """As `spans_to_rows`, at most `most` indices at a time: the spans, then the indices.

    A longer span is in several chunks.
    """
    ends = np.cumsum(lengths)
    for low in range(0, int(ends[-1]) if len(ends) else 0, most):
        high = min(low + most, int(ends[-1]))
        first = int(np.searchsorted(ends, low, side="right"))
        last = int(np.searchsorted(ends, high, side="left")) + 1
        begins = ends[first:last] - lengths[first:last]
        skipped = np.maximum(low - begins, 0)
        counts = np.minimum(ends[first:last], high) - begins - skipped
        rows, owners = spans_to_rows(starts[first:last] + skipped, counts)
        yield owners + first, rows


def _bytes(buffer: pa.Buffer | None) -> NDArray[np.uint8]:
    if buffer is None:
        return np.zeros(0, dtype=np.uint8)
    return np.frombuffer(buffer, np.uint8)
