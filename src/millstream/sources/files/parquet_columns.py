"""Converts columns of Parquet files to a schema's types, if that loses nothing.

`fits` checks the types of columns, `converted` their values. Integers, signed or not, are converted
by value to integers, to doubles and floats (up to 2^53 and 2^24, the exact range) and to decimals;
decimals to decimals; shorter floats to longer ones; times of any unit; dates to wall-clock times,
as in Spark; dictionaries, large and fixed-size types to their values; columns of type null to any
type. Structs are matched by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from millstream.formats import times
from millstream.schema import Array, Decimal, Map, Scalar, Struct, arrow_type

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.formats.block import Flags
    from millstream.schema import Field, Type

_WHOLE = ("byte", "short", "int", "long")
_EXACT = {"float": 2**24, "double": 2**53}
_MICROS = {"s": 1_000_000, "ms": 1_000, "us": 1}
_DAY = 86_400_000_000
_WIDEST = pa.decimal128(20, 0)  # holds every 64-bit integer


def fits(found: pa.DataType, wanted: Type) -> bool:
    """Whether values of one type are values of the other, or can be checked one by one."""
    kind = _plain_type(found)
    if kinds.is_null(kind):
        return True
    if isinstance(wanted, Array):
        return _is_list(kind) and fits(kind.value_type, wanted.element)
    if isinstance(wanted, Map):
        if not kinds.is_map(kind):
            return False
        return fits(kind.key_type, wanted.key) and fits(kind.item_type, wanted.value)
    if isinstance(wanted, Struct):
        return kinds.is_struct(kind) and all(_part_fits(kind, part) for part in wanted.fields)
    if isinstance(wanted, Decimal):
        return bool(kinds.is_decimal(kind) or kinds.is_integer(kind))
    return _TAKEN[wanted.name](kind)


def _part_fits(kind: pa.StructType, part: Field) -> bool:
    place = kind.get_field_index(part.name)
    if place < 0:
        return part.nullable and part.name not in [field.name for field in kind]
    return fits(kind.field(place).type, part.type)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    while True:
        if isinstance(kind, pa.BaseExtensionType):
            kind = kind.storage_type
        elif kinds.is_dictionary(kind):
            kind = kind.value_type
        else:
            return kind


def _is_list(kind: pa.DataType) -> bool:
    return bool(
        kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind)
        or kinds.is_list_view(kind) or kinds.is_large_list_view(kind)
    )  # fmt: skip


def _is_text(kind: pa.DataType) -> bool:
    return bool(kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        kinds.is_binary(kind) or kinds.is_large_binary(kind) or kinds.is_binary_view(kind)
        or kinds.is_fixed_size_binary(kind)
    )  # fmt: skip


def _is_wall_clock(kind: pa.DataType) -> bool:
    return bool(kinds.is_date(kind) or (kinds.is_timestamp(kind) and kind.tz is None))


def _is_short_float(kind: pa.DataType) -> bool:
    return bool(kinds.is_integer(kind) or kinds.is_float16(kind) or kinds.is_float32(kind))


_TAKEN: dict[str, Callable[[pa.DataType], bool]] = {
    "boolean": kinds.is_boolean,
    **dict.fromkeys(_WHOLE, kinds.is_integer),
    "float": _is_short_float,
    "double": lambda kind: _is_short_float(kind) or bool(kinds.is_float64(kind)),
    "string": _is_text,
    "binary": _is_bytes,
    "date": kinds.is_date,
    "timestamp": kinds.is_timestamp,
    "timestamp_ntz": _is_wall_clock,
}


def converted(column: pa.Array, wanted: Type) -> tuple[pa.Array, Flags]:
    """The column in the Arrow form of a type, and which values do not fit.

    The entries for those are arbitrary.
    """
    column = _plain(column)
    kind = arrow_type(wanted)
    if kinds.is_null(column.type):
        return pa.nulls(len(column), kind), np.zeros(len(column), np.bool_)
    if isinstance(wanted, Array):
        return _lists(column, wanted)
    if isinstance(wanted, Map):
        return _maps(column, wanted)
    if isinstance(wanted, Struct):
        return _structs(column, wanted)
    if isinstance(wanted, Decimal):
        return _decimals(column, wanted)
    return _scalars(column, wanted)


def _plain(column: pa.Array) -> pa.Array:
    """The column without dictionaries and extension types."""
    while True:
        if isinstance(column.type, pa.BaseExtensionType):
            column = column.storage
        elif kinds.is_dictionary(column.type):
            column = column.dictionary_decode()
        else:
            return column


def _nulls(column: pa.Array) -> Flags:
    return np.asarray(column.is_null().to_numpy(zero_copy_only=False))


def _mask(column: pa.Array) -> pa.Array | None:
    return column.is_null() if column.null_count else None


def _bounds(lists: pa.Array) -> tuple[pa.Array, np.ndarray]:
    """The bounds of each list's elements, and the list of each element."""
    count = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    bounds = np.zeros(len(lists) + 1, np.int32)
    np.cumsum(count, out=bounds[1:])
    return pa.array(bounds), np.repeat(np.arange(len(lists)), count)


def _owning(owners: np.ndarray, wrong: Flags, count: int) -> Flags:
    lost = np.zeros(count, np.bool_)
    lost[owners[wrong]] = True
    return lost


def _lists(column: pa.Array, wanted: Array) -> tuple[pa.Array, Flags]:
    column = column.cast(pa.list_(column.type.value_type))
    bounds, owners = _bounds(column)
    values, wrong = converted(column.flatten(), wanted.element)
    made = pa.ListArray.from_arrays(bounds, values, type=arrow_type(wanted), mask=_mask(column))
    return made, _owning(owners, wrong, len(column))


def _maps(column: pa.Array, wanted: Map) -> tuple[pa.Array, Flags]:
    pair = pa.struct([("key", column.type.key_type), ("value", column.type.item_type)])
    lists = column.cast(pa.list_(pair))
    bounds, owners = _bounds(lists)
    keys, values = lists.flatten().flatten()
    names, odd = converted(keys, wanted.key)
    items, wrong = converted(values, wanted.value)
    made = pa.MapArray.from_arrays(
        bounds, names, items, type=arrow_type(wanted), mask=_mask(lists)
    )  # fmt: skip
    return made, _owning(owners, odd | wrong, len(column))


def _structs(column: pa.Array, wanted: Struct) -> tuple[pa.Array, Flags]:
    inside = column.flatten()
    wrong = np.zeros(len(column), np.bool_)
    made = []
    for part in wanted.fields:
        place = column.type.get_field_index(part.name)
        given = pa.nulls(len(column)) if place < 0 else inside[place]
        values, lost = converted(given, part.type)
        if not part.nullable:
            lost = lost | (_nulls(values) & ~_nulls(column))
        made.append(values)
        wrong |= lost
    fields = list(arrow_type(wanted))
    return pa.StructArray.from_arrays(made, fields=fields, mask=_mask(column)), wrong


def _scalars(column: pa.Array, wanted: Scalar) -> tuple[pa.Array, Flags]:
    kind = arrow_type(wanted)
    if wanted.name in _WHOLE or wanted.name in _EXACT:
        return _numbers(column, wanted.name)
    if wanted.name in ("timestamp", "timestamp_ntz"):
        return _instants(column, kind)
    if wanted.name == "date":
        made = column.cast(kind)
        days = _integers(made.cast(pa.int32()))
        return made, _outside(days, times.LEAST // _DAY, times.GREATEST // _DAY)
    if wanted.name == "string":
        column = column.cast(pa.binary())
    return by_halves(column, kind)


def _integers(column: pa.Array) -> np.ndarray:
    return np.asarray(pc.fill_null(column, 0).to_numpy(zero_copy_only=False))


def _outside(values: np.ndarray, least: int, greatest: int) -> Flags:
    return np.asarray((values < least) | (values > greatest))


def _filled(column: pa.Array, values: np.ndarray, kind: pa.DataType) -> pa.Array:
    """The values, with the nulls of a column."""
    return pa.array(values, kind, mask=_nulls(column) if column.null_count else None)


def _numbers(column: pa.Array, name: str) -> tuple[pa.Array, Flags]:
    kind = arrow_type(Scalar(name))
    if column.type == kind or not kinds.is_integer(column.type):
        return column.cast(kind), np.zeros(len(column), np.bool_)
    values, target = _integers(column), kind.to_pandas_dtype()
    if name in _EXACT:
        wrong = _outside(values, -_EXACT[name], _EXACT[name])
    else:
        wrong = _outside(values, int(np.iinfo(target).min), int(np.iinfo(target).max))
    return _filled(column, np.where(wrong, 0, values).astype(target), kind), wrong


def _instants(column: pa.Array, kind: pa.DataType) -> tuple[pa.Array, Flags]:
    """Times in microseconds; times without a zone are UTC, a date is its midnight."""
    if kinds.is_date(column.type):
        values, unit = _integers(column.cast(pa.date32()).cast(pa.int32())).astype(np.int64), _DAY
    else:
        values = _integers(column.cast(pa.int64()))
        unit = _MICROS.get(column.type.unit, 0)
    if unit:
        wrong = _outside(values, -(-times.LEAST // unit), times.GREATEST // unit)
        micros = np.where(wrong, 0, values) * unit
    else:
        micros, finer = np.divmod(values, 1000)
        wrong = (finer != 0) | _outside(micros, times.LEAST, times.GREATEST)
    if column.type == kind:
        return column, wrong
    return _filled(column, np.where(wrong, 0, micros), pa.int64()).cast(kind), wrong


def _decimals(column: pa.Array, wanted: Decimal) -> tuple[pa.Array, Flags]:
    kind = arrow_type(wanted)
    if not kinds.is_integer(column.type):
        return by_halves(column, kind)
    values = _integers(column)
    most = 10 ** (wanted.precision - wanted.scale) - 1
    wrong = _outside(values, -most, most)
    fitting = _filled(column, np.where(wrong, 0, values).astype(values.dtype), column.type)
    return fitting.cast(_WIDEST).cast(kind), wrong


def by_halves(column: pa.Array, kind: pa.DataType) -> tuple[pa.Array, Flags]:
    """Cast the values that can be cast; the others are found by bisection."""
    if column.type == kind:
        return column, np.zeros(len(column), np.bool_)
    try:
        return column.cast(kind, safe=True), np.zeros(len(column), np.bool_)
    except pa.ArrowInvalid:
        if len(column) == 1:
            return pa.nulls(1, kind), np.ones(1, np.bool_)
    half = len(column) // 2
    left, wrong = by_halves(column.slice(0, half), kind)
    right, more = by_halves(column.slice(half), kind)
    return pa.concat_arrays([left, right]), np.concatenate([wrong, more])
