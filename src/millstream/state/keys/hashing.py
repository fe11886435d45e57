"""A key's 64-bit hash: the same in Spark and in numpy, and the bucket in its top bits.

The encoding is canonical, so equal keys hash equally whatever their width or spelling.
Version 1, with xxHash64 chained from Spark's seed 42:

    columns      one 64-bit word of null marks per 63 columns, then each value not null
    integers, booleans, dates, durations   as 64-bit integers (days, microseconds)
    timestamps   microseconds since the epoch, UTC
    floats       the bits of the float64, with one NaN and no negative zero
    decimals     up to 18 digits the unscaled integer, above it the shortest big-endian bytes
    text, binary the bytes (UTF-8)
    structs      as columns
    lists        the length, then each element as one column
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.errors import InvalidInput, InvalidSpec
from millstream.state.arrays.numpy_columns import (
    byte_spans,
    decimal_limbs,
    float_values,
    int_values,
    is_int_like,
    list_offsets,
    plain,
    validity,
)
from millstream.state.keys.xxhash import SPARK_SEED, hash_longs, hash_spans

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    U64 = NDArray[np.uint64]

HASH_VERSION = 1

_MARKS_PER_WORD = 63
_LONG_DIGITS = 18
_NAN_BITS = np.int64(0x7FF8000000000000)


def hash_keys(columns: Sequence[pa.Array | pa.ChunkedArray], count: int) -> U64:
    """The hash of each of `count` rows over all key columns, in their order."""
    arrays = [plain(column) for column in columns]
    wrong = [len(array) for array in arrays if len(array) != count]
    if wrong:
        raise InvalidInput(
            f"hash_keys needs {count} rows in every column",
            got=str(wrong[0]),
            do="pass columns of one table",
        )
    if count == 0:
        return np.zeros(0, dtype=np.uint64)
    hashes = _hash_row(arrays, np.array([SPARK_SEED], dtype=np.uint64))
    return hashes if len(hashes) == count else np.repeat(hashes, count)


def buckets_of(hashes: U64, count: int) -> NDArray[np.int64]:
    """The bucket of each hash: its top bits. `count` is a power of two."""
    return (
        (hashes >> np.uint64(bucket_shift(count))).astype(np.int64)
        if count > 1
        else np.zeros(len(hashes), dtype=np.int64)
    )


def bucket_shift(count: int) -> int:
    """The number of bits by which a hash is shifted right to give its bucket of `count`."""
    if count < 1 or count & (count - 1) or count > 2**31:
        raise InvalidInput(
            "the number of buckets needs to be a power of two", got=str(count), do="take 256"
        )
    return 64 - (count.bit_length() - 1)


def hash_range(buckets: tuple[int, int], of: int) -> tuple[int, int]:
    """The smallest and the largest hash of a bucket range [low, high) of `of` buckets."""
    low, high = buckets
    if not 0 <= low < high <= of:
        raise InvalidInput(
            f"a bucket range needs 0 <= low < high <= {of}",
            got=f"[{low}, {high})",
            do="take a part of the buckets fixed at the first start",
        )
    shift = bucket_shift(of)
    return low << shift, (high << shift) - 1


def _hash_row(arrays: Sequence[pa.Array], seeds: U64) -> U64:
    for first in range(0, max(len(arrays), 1), _MARKS_PER_WORD):
        part = arrays[first : first + _MARKS_PER_WORD]
        seeds = hash_longs(_null_marks(part), seeds)
        for array in part:
            seeds = _hash_present(array, seeds)
    return seeds


def _null_marks(arrays: Sequence[pa.Array]) -> NDArray[np.int64]:
    marks = np.zeros(1, dtype=np.int64)
    for bit, array in enumerate(arrays):
        present = validity(array)
        if present is not None:
            marks = marks | (~present).astype(np.int64) << np.int64(bit)
    return marks


def _hash_present(array: pa.Array, seeds: U64) -> U64:
    if array.null_count == len(array):
        return seeds
    hashed = _hash_values(array, seeds)
    present = validity(array)
    return hashed if present is None else np.where(present, hashed, seeds)


def _hash_values(array: pa.Array, seeds: U64) -> U64:
    kind = array.type
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind) or pa.types.is_date(kind):
        return hash_longs(int_values(_in_spark_unit(array)), seeds)
    if is_int_like(kind) and not pa.types.is_time(kind):
        return hash_longs(int_values(array), seeds)
    if pa.types.is_floating(kind):
        return hash_longs(_float_bits(array), seeds)
    if pa.types.is_decimal(kind):
        return _hash_decimals(array, seeds)
    if is_bytes(kind):
        return hash_spans(*byte_spans(array), seeds)
    if pa.types.is_struct(kind):
        return _hash_row([plain(field) for field in array.flatten()], seeds)
    if is_list(kind):
        return _hash_lists(array, seeds)
    raise unhashable(kind)


def is_bytes(kind: pa.DataType) -> bool:
    """Whether the type is text or binary."""
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_string_view(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_binary_view(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def is_list(kind: pa.DataType) -> bool:
    """Whether the type is a list of any kind."""
    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def unhashable(kind: pa.DataType) -> InvalidSpec:
    """The error for a type that cannot be a key."""
    return InvalidSpec(
        "a key needs a type with an order: numbers, text, binary, booleans, dates, timestamps, "
        "and structs and lists of them",
        got=str(kind),
        do="group by a part of it, or by its text",
    )


def _in_spark_unit(array: pa.Array) -> pa.Array:
    kind = array.type
    if pa.types.is_date(kind):
        return array.cast(pa.date32())
    if kind.unit == "us":
        return array
    if pa.types.is_duration(kind):
        return array.cast(pa.duration("us"), safe=kind.unit != "ns")
    return array.cast(pa.timestamp("us", kind.tz), safe=kind.unit != "ns")


def _float_bits(array: pa.Array) -> NDArray[np.int64]:
    values = float_values(array) + 0.0
    return np.where(np.isnan(values), _NAN_BITS, values.view(np.int64))


def _hash_decimals(array: pa.Array, seeds: U64) -> U64:
    kind = array.type
    if not pa.types.is_decimal128(kind):
        array = array.cast(pa.decimal128(kind.precision, kind.scale))
    limbs = decimal_limbs(array)
    if kind.precision <= _LONG_DIGITS:
        return hash_longs(np.ascontiguousarray(limbs[:, 0]).view(np.int64), seeds)
    digits = np.ascontiguousarray(np.ascontiguousarray(limbs).view(np.uint8)[:, ::-1])
    sign = np.where(digits[:, :1] >= 0x80, np.uint8(0xFF), np.uint8(0))
    needless = (digits[:, :-1] == sign) & ((digits[:, 1:] ^ sign) < 0x80)
    skipped = np.logical_and.accumulate(needless, axis=1).sum(axis=1, dtype=np.int64)
    starts = np.arange(len(digits), dtype=np.int64) * 16 + skipped
    return hash_spans(digits.reshape(-1), starts, 16 - skipped, seeds)


def _hash_lists(array: pa.Array, seeds: U64) -> U64:
    if pa.types.is_fixed_size_list(array.type):
        array = array.cast(pa.list_(array.type.value_type))
    offsets = list_offsets(array)
    starts, lengths = offsets[:-1], np.diff(offsets)
    present = validity(array)
    if present is not None:
        lengths = np.where(present, lengths, 0)
    hashes = hash_longs(lengths, seeds)
    elements = plain(array.values)
    for place in range(int(lengths.max(initial=0))):
        rows = np.flatnonzero(lengths > place)
        hashes[rows] = _hash_row([elements.take(pa.array(starts[rows] + place))], hashes[rows])
    return hashes


def spark_hash(columns: Sequence[tuple[str, pa.DataType]]) -> str:
    """A Spark SQL expression (BIGINT) with the same 64 bits as `hash_keys` of these columns."""
    named = [(_quoted(name), kind) for name, kind in columns]
    return f"xxhash64({', '.join(_spark_row(named, depth=0))})"


def _spark_row(columns: Sequence[tuple[str, pa.DataType]], *, depth: int) -> list[str]:
    parts: list[str] = []
    for first in range(0, max(len(columns), 1), _MARKS_PER_WORD):
        part = columns[first : first + _MARKS_PER_WORD]
        marks = [f"if({name} is null, {1 << bit}L, 0L)" for bit, (name, _) in enumerate(part)]
        parts.append(" + ".join(marks) if marks else "0L")
        parts += [_spark_value(name, kind, depth=depth) for name, kind in part]
    return parts


def _spark_value(name: str, kind: pa.DataType, *, depth: int) -> str:
    if pa.types.is_struct(kind):
        fields = [(f"{name}.{_quoted(field.name)}", field.type) for field in kind]
        return f"if({name} is null, null, struct({', '.join(_spark_row(fields, depth=depth))}))"
    if is_list(kind):
        item = f"x{depth}_"
        inner = ", ".join(_spark_row([(item, kind.value_type)], depth=depth + 1))
        return (
            f"if({name} is null, null, struct(cast(size({name}) as bigint), "
            f"transform({name}, {item} -> struct({inner}))))"
        )
    if pa.types.is_date(kind):
        return f"cast(unix_date({name}) as bigint)"
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind) or pa.types.is_null(kind):
        return name
    if pa.types.is_decimal(kind) or is_bytes(kind):
        return name
    if pa.types.is_floating(kind):
        return f"cast({name} as double)"
    if is_int_like(kind) and not pa.types.is_time(kind):
        return f"cast({name} as bigint)"
    raise unhashable(kind)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
