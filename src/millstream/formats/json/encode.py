"""Encodes rows as compact JSON objects, with names in column order.

`decode` with the same schema returns every value: times are ISO text with microseconds and `Z`,
decimals text, binary base64, non-finite doubles the strings `"NaN"`, `"Infinity"`, `"-Infinity"`,
other doubles the shortest number that reads back the same. Whole columns become text, which is
joined once.
"""

from __future__ import annotations

import binascii
import json
from datetime import date
from functools import cache, lru_cache
from operator import add
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import InvalidInput
from millstream.formats import times
from millstream.formats.json.decode import check
from millstream.schema import Array, Decimal, Map, Scalar, Schema, Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.schema import Field, Type

_QUOTE, _BACKSLASH, _BLANK = 0x22, 0x5C, 0x20
_PIECE_ROWS = 1 << 14
FEW = 24
_STRING = Scalar("string")
_EPOCH = date(1970, 1, 1).toordinal()
_DAY = 86_400_000_000
_REPEATS = 4  # with this many rows per distinct time, each distinct time is written once
_SAMPLE = 256
_PLAIN_FROM, _PLAIN_TO = 1e-3, 1e9  # between these, neither Python nor Arrow writes an exponent


def encode(table: pa.Table) -> pa.Array:
    """Encode each row as a record value (binary, never null).

    Raises:
        InvalidSpec: a column's type has no JSON form (unsigned integers, maps whose keys
            are not strings, …).
        InvalidInput: a time is outside the years 1 to 9999, or there is no column.
    """
    fields, loose = _known(table.schema)
    same = table if table.schema == loose else table.cast(loose)
    if table.num_rows <= FEW:
        return _few(same.columns, fields)
    pieces = [
        _objects(batch.columns, fields).cast(pa.binary())
        for batch in same.to_batches(max_chunksize=_PIECE_ROWS)
    ]
    return pa.concat_arrays(pieces) if pieces else pa.array([], pa.binary())


@lru_cache(maxsize=256)
def _known(given: pa.Schema) -> tuple[tuple[Field, ...], pa.Schema]:
    """The fields of a table and their canonical Arrow types, all nullable."""
    schema = Schema.from_arrow(given)
    if not len(schema):
        raise InvalidInput("encode needs at least one column", got="a table without columns")
    check(schema)
    return schema.fields, pa.schema([pa.field(part.name, part.type) for part in schema.arrow()])


def _few(columns: Sequence[pa.ChunkedArray], fields: tuple[Field, ...]) -> pa.Array:
    """Encode row by row, which takes half the time for a few rows."""
    heads = [f"{json.dumps(field.name, ensure_ascii=False)}:" for field in fields]
    texts = [
        _texts_of_few(column, field.type)
        or as_text(column.combine_chunks(), field.type).to_pylist()
        for column, field in zip(columns, fields, strict=True)
    ]
    rows = (",".join(map(add, heads, row)) for row in zip(*texts, strict=True))
    return pa.array([f"{{{row}}}".encode() for row in rows], pa.binary())


def _objects(columns: Sequence[pa.Array], fields: tuple[Field, ...]) -> pa.Array:
    """The JSON object of each row."""
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
    """Join each list of texts into one text; null lists stay null."""
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
    """The characters of the column that JSON escapes and their escapes, backslash first."""
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
    """Whole numbers with `.0`, unless they have an exponent."""
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


def _timestamps(column: pa.Array, *, zone: str) -> pa.Array:
    """`"YYYY-MM-DDTHH:MM:SS.ffffff"` and the zone, in quotes, for each timestamp[us]."""
    if len(column.slice(0, _SAMPLE).unique()) * _REPEATS <= min(len(column), _SAMPLE):
        coded = column.dictionary_encode()
        if len(coded.dictionary) * _REPEATS <= len(column):
            return _write_timestamps(coded.dictionary, zone).take(coded.indices)
    return _write_timestamps(column, zone)


def _write_timestamps(column: pa.Array, zone: str) -> pa.Array:
    micros = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    _check_times(micros, times.LEAST, times.GREATEST)
    day, rest = np.divmod(micros, _DAY)
    seconds, part = np.divmod(rest, 1_000_000)
    hundreds, last = np.divmod(part.astype(np.uint32), np.uint32(100))
    shown, fours, twos = _tables()
    ending = f'{zone}"'.encode()
    made = np.empty(micros.size, [("open", "S1"), ("day", "V10"), ("t", "S1"), ("time", "u8"),
                                  ("point", "S1"), ("hundreds", "u4"), ("last", "u2"),
                                  ("end", f"S{len(ending)}")])  # fmt: skip
    made["open"], made["t"], made["point"], made["end"] = b'"', b"T", b".", ending
    made["day"] = _day_texts(day).view("V10").ravel()
    made["time"], made["hundreds"], made["last"] = shown[seconds], fours[hundreds], twos[last]
    return _fixed_texts(made.view(np.uint8).reshape(micros.size, made.itemsize), column)


@cache
def _tables() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Lookup tables of texts as integers: each second of a day, four digits, two digits."""
    digits = np.arange(48, 58, dtype=np.uint8)
    twos = np.stack([np.repeat(digits, 10), np.tile(digits, 10)], axis=1)
    fours = np.concatenate([np.repeat(twos, 100, axis=0), np.tile(twos, (100, 1))], axis=1)
    second = np.arange(86_400)
    shown = np.full((second.size, 8), ord(":"), np.uint8)
    for place, value in ((0, second // 3600), (3, second // 60 % 60), (6, second % 60)):
        shown[:, place : place + 2] = twos[value]
    return shown.view("u8").ravel(), fours.view("u4").ravel(), twos.view("u2").ravel()


def _dates(column: pa.Array) -> pa.Array:
    """`"YYYY-MM-DD"`, in quotes, for each date32."""
    day = column.cast(pa.int32()).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    _check_times(day, times.LEAST // _DAY, times.GREATEST // _DAY)
    made = np.full((day.size, 12), ord('"'), np.uint8)
    made[:, 1:11] = _day_texts(day)
    return _fixed_texts(made, column)


def _day_texts(day: np.ndarray) -> np.ndarray:
    """The ten characters of each day; each distinct day is formatted once."""
    if day.size and (day == day[0]).all():
        which, place = day[:1], np.zeros(day.size, np.int64)
    else:
        which, place = np.unique(day, return_inverse=True)
    texts = b"".join(date.fromordinal(int(one) + _EPOCH).isoformat().encode() for one in which)
    return np.frombuffer(texts, np.uint8).reshape(-1, 10)[place]


def _check_times(values: np.ndarray, least: int, greatest: int) -> None:
    if values.size and not (values.min() >= least and values.max() <= greatest):
        raise InvalidInput(
            "JSON needs times in the years 1 to 9999",
            got="another time",
            do="filter such rows or write the column as a number",
        )


def _fixed_texts(made: np.ndarray, column: pa.Array) -> pa.Array:
    rows, width = made.shape
    bounds = np.arange(rows + 1, dtype=np.int32) * width
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(np.ascontiguousarray(made))]
    texts = pa.Array.from_buffers(pa.string(), rows, buffers)
    if column.null_count:
        texts = pc.if_else(column.is_valid(), texts, pa.scalar(None, pa.string()))
    return texts


def _texts_of_few(column: pa.ChunkedArray, type_: Type) -> list[str] | None:
    """The JSON text of each value; None if one needs the column functions."""
    write = _WRITES.get(type_.name) if isinstance(type_, Scalar) else None
    if write is None:
        return None
    found = []
    for value in column.to_pylist():
        text = "null" if value is None else write(value)
        if text is None:
            return None
        found.append(text)
    return found


def _write_string(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _write_double(value: float) -> str | None:
    return repr(value) if value == 0 or _PLAIN_FROM <= abs(value) < _PLAIN_TO else None


_SPECIAL: dict[str, Callable[[pa.Array], pa.Array]] = {
    "string": _strings,
    "float": _reals,
    "double": _reals,
    "binary": _binaries,
    "timestamp": lambda column: _timestamps(column, zone="Z"),
    "timestamp_ntz": lambda column: _timestamps(column, zone=""),
    "date": _dates,
}
_WRITES: dict[str, Callable[..., str | None]] = {
    "byte": str,
    "short": str,
    "int": str,
    "long": str,
    "boolean": {True: "true", False: "false"}.get,
    "string": _write_string,
    "double": _write_double,
}
