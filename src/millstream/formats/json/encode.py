"""Columns to record values: one compact JSON object for each row, names in column order.

Every value is written so that `decode` with the same schema gives it back: times as ISO
text with microseconds and `Z`, decimals as text, binary as base64, a non-finite double
as one of the strings `"NaN"`, `"Infinity"`, `"-Infinity"`, other doubles as the shortest
number that reads back the same. Columns become text as wholes and are joined once.
"""

from __future__ import annotations

import binascii
import json
from functools import lru_cache
from operator import add
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import InvalidInput
from millstream.formats.json import clocks, encode_few
from millstream.formats.json.decode import check
from millstream.schema import Array, Decimal, Map, Scalar, Schema, Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.schema import Field, Type

_QUOTE, _BACKSLASH, _BLANK = 0x22, 0x5C, 0x20
_PIECE_ROWS = 1 << 14
_STRING = Scalar("string")


def encode(table: pa.Table) -> pa.Array:
    """One record value (binary, never null) for each row.

    Raises:
        InvalidSpec: a column's type has no JSON form (unsigned integers, maps whose keys
            are no strings, …).
        InvalidInput: a time lies outside the years 1 to 9999, or there is no column.
    """
    fields, loose = _known(table.schema)
    same = table if table.schema == loose else table.cast(loose)
    if table.num_rows <= encode_few.MOST:
        return _few(same.columns, fields)
    pieces = [
        _objects(batch.columns, fields).cast(pa.binary())
        for batch in same.to_batches(max_chunksize=_PIECE_ROWS)
    ]
    return pa.concat_arrays(pieces) if pieces else pa.array([], pa.binary())


@lru_cache(maxsize=256)
def _known(given: pa.Schema) -> tuple[tuple[Field, ...], pa.Schema]:
    """The fields of a table, and their canonical Arrow types; which columns may be null is the
    table's own affair."""
    schema = Schema.from_arrow(given)
    if not len(schema):
        raise InvalidInput("encode needs at least one column", got="a table without columns")
    check(schema)
    return schema.fields, pa.schema([pa.field(part.name, part.type) for part in schema.arrow()])


def _few(columns: Sequence[pa.ChunkedArray], fields: tuple[Field, ...]) -> pa.Array:
    """The same objects, row by row: for a few, calls would cost more."""
    heads = [f"{json.dumps(field.name, ensure_ascii=False)}:" for field in fields]
    texts = [
        encode_few.texts(column, field.type)
        or as_text(column.combine_chunks(), field.type).to_pylist()
        for column, field in zip(columns, fields, strict=True)
    ]
    rows = (",".join(map(add, heads, row)) for row in zip(*texts, strict=True))
    return pa.array([f"{{{row}}}".encode() for row in rows], pa.binary())


def _objects(columns: Sequence[pa.Array], fields: tuple[Field, ...]) -> pa.Array:
    """The text of an object for each row of the columns."""
    parts: list[pa.Array | str] = []
    before = "{"
    for column, field in zip(columns, fields, strict=True):
        name = json.dumps(field.name, ensure_ascii=False)
        quote = '"' if field.type == _STRING and not column.null_count else ""
        texts = _escaped(column) if quote else as_text(column, field.type)
        parts += [f"{before}{name}:{quote}", texts]
        before = f"{quote},"
    return pc.binary_join_element_wise(*parts, f"{before[:-1]}}}", "")


def as_text(column: pa.Array, type_: Type) -> pa.Array:
    """The JSON text of each value, `null` for null."""
    if isinstance(type_, Struct):
        texts = _objects(column.flatten(), type_.fields)
        texts = pc.if_else(column.is_valid(), texts, "null") if column.null_count else texts
    elif isinstance(type_, Array):
        texts = _joined(column, as_text(column.flatten(), type_.element), "[", "]")
    elif isinstance(type_, Map):
        texts = _maps(column, type_)
    elif isinstance(type_, Decimal):
        texts = _in_quotes(_decimals(column, type_))
    else:
        texts = _scalars(column, type_)
    return texts.fill_null("null") if texts.null_count else texts


def _joined(column: pa.Array, elements: pa.Array, before: str, after: str) -> pa.Array:
    """Lists of texts as one text each; null lists stay null."""
    sizes = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    bounds = np.zeros(len(column) + 1, np.int32)
    np.cumsum(sizes, out=bounds[1:])
    lists = pa.ListArray.from_arrays(pa.array(bounds), elements)
    texts = pc.binary_join_element_wise(before, pc.binary_join(lists, ","), after, "")
    if column.null_count:
        texts = pc.if_else(column.is_valid(), texts, pa.scalar(None, pa.string()))
    return texts


def _maps(column: pa.Array, type_: Map) -> pa.Array:
    entries = pa.struct([("key", column.type.key_type), ("value", column.type.item_type)])
    lists = column.cast(pa.list_(entries))
    keys, values = lists.flatten().flatten()
    pairs = pc.binary_join_element_wise(as_text(keys, type_.key), as_text(values, type_.value), ":")
    return _joined(lists, pairs, "{", "}")


def _scalars(column: pa.Array, type_: Scalar) -> pa.Array:
    if type_.name in _SPECIAL:
        return _SPECIAL[type_.name](column)
    return column.cast(pa.string())


def _in_quotes(texts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', texts, '"', "")


def _strings(column: pa.Array) -> pa.Array:
    return _in_quotes(_escaped(column))


def _escaped(column: pa.Array) -> pa.Array:
    for mark, escaped in _to_escape(column):
        column = pc.replace_substring(column, mark, escaped)
    return column


def _to_escape(column: pa.Array) -> list[tuple[str, str]]:
    """The characters of the column that JSON escapes, the backslash first."""
    _, offsets, data = column.buffers()
    if data is None or not len(column):
        return []
    bounds = np.frombuffer(offsets, np.int32, len(column) + 1, column.offset * 4)
    used = np.frombuffer(data, np.uint8, int(bounds[-1] - bounds[0]), int(bounds[0]))
    marks: list[str] = []
    if used.size:
        marks += [chr(mark) for mark in (_BACKSLASH, _QUOTE) if (used == mark).any()]
        if used.min() < _BLANK:
            marks += [chr(mark) for mark in np.unique(used[used < _BLANK])]
    return [(mark, json.dumps(mark)[1:-1]) for mark in marks]


def _reals(column: pa.Array) -> pa.Array:
    texts = column.cast(pa.string())
    values = column.fill_null(0.5).to_numpy(zero_copy_only=False)
    finite = np.isfinite(values)
    round_ = finite & (values == np.trunc(values))
    if round_.all():
        texts = _with_a_point(texts)
    elif round_.any():
        here = pa.array(round_)
        texts = pc.replace_with_mask(texts, here, _with_a_point(texts.filter(here)))
    if not finite.all():
        for name in ("NaN", "Infinity", "-Infinity"):
            here = np.isnan(values) if name == "NaN" else values == float(name)
            texts = pc.if_else(pa.array(here), f'"{name}"', texts)
    return texts


def _with_a_point(texts: pa.Array) -> pa.Array:
    """Whole numbers as JSON writes reals: those with an exponent are real as they are."""
    pointed = pc.binary_join_element_wise(texts, ".0", "")
    exponents = pc.match_substring(texts, "e")
    return pc.if_else(exponents, texts, pointed) if exponents.true_count else pointed


def _decimals(column: pa.Array, type_: Decimal) -> pa.Array:
    texts = column.cast(pa.string())
    if type_.scale <= 6:
        return texts
    tiny = pc.fill_null(pc.match_substring(texts, "E"), fill_value=False)
    if not pc.any(tiny).as_py():
        return texts
    plain = [format(value, "f") for value in column.filter(tiny).to_pylist()]
    return pc.replace_with_mask(texts, tiny, pa.array(plain, pa.string()))


def _binaries(column: pa.Array) -> pa.Array:
    texts = [
        None if value is None else binascii.b2a_base64(value, newline=False).decode()
        for value in column.to_pylist()
    ]
    return _in_quotes(pa.array(texts, pa.string()))


def _timestamps(column: pa.Array) -> pa.Array:
    return clocks.format_timestamps(column, zone="Z")


def _wall_clocks(column: pa.Array) -> pa.Array:
    return clocks.format_timestamps(column, zone="")


def _dates(column: pa.Array) -> pa.Array:
    return clocks.format_dates(column)


_SPECIAL: dict[str, Callable[[pa.Array], pa.Array]] = {
    "string": _strings,
    "float": _reals,
    "double": _reals,
    "binary": _binaries,
    "timestamp": _timestamps,
    "timestamp_ntz": _wall_clocks,
    "date": _dates,
}
