"""Parquet files: whether they fit a schema, where their rows lie, and the rows of a piece."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from millstream.errors import InvalidSpec
from millstream.formats.json import times
from millstream.formats.spec import Decoded
from millstream.schema import Decimal, Scalar, Schema, arrow_type

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.schema import Field, Type

_WHOLE = ("byte", "short", "int", "long")
_STRETCH = 1 << 16
_OUTSIDE = "a time outside the years 1 to 9999"


class Unreadable(ValueError):
    """The file is not Parquet, or not of the schema; the message is the reason."""


def count(path: Path, schema: Schema) -> tuple[int, tuple[int, ...]]:
    """How many rows there are, and the number of each row group's first.

    Raises:
        Unreadable: the file as a whole cannot be read.
    """
    try:
        with pq.ParquetFile(path) as file:
            kinds, meta = file.schema_arrow, file.metadata
            sizes = [meta.row_group(group).num_rows for group in range(meta.num_row_groups)]
    except (pa.ArrowException, OSError, ValueError) as error:
        raise Unreadable(f"not Parquet: {_said(error)}") from None
    for field in schema:
        _need(field, kinds)
    return sum(sizes), tuple(int(first) for first in np.cumsum([0, *sizes])[:-1])


def _need(field: Field, kinds: pa.Schema) -> None:
    place = kinds.get_field_index(field.name)
    if place < 0:
        if not field.nullable:
            raise Unreadable(f"{field.name}: needs {field.type.ddl()}; the file has no such column")
        return
    found = kinds.field(place).type
    if not _fits(found, field.type):
        raise Unreadable(f"{field.name}: needs {field.type.ddl()}; the file has {found}")


def _fits(found: pa.DataType, wanted: Type) -> bool:
    """Whether values of the one type are values of the other, or can be told not to be."""
    try:
        held = Schema.from_arrow(pa.schema([("x", found)])).fields[0].type
    except InvalidSpec:
        return False
    if isinstance(held, Decimal) and isinstance(wanted, Decimal):
        return True
    if isinstance(held, Scalar) and isinstance(wanted, Scalar):
        if held.name in _WHOLE and wanted.name in _WHOLE:
            return True
        wider = {"float": ("double",), "timestamp_ntz": ("timestamp",), "byte": ("double", "float"),
                 "short": ("double", "float"), "int": ("double",)}  # fmt: skip
        return held.name == wanted.name or wanted.name in wider.get(held.name, ())
    return held.ddl() == wanted.ddl()


def read(path: Path, group: int, skip: int, take: int, schema: Schema) -> Decoded:
    """Some rows of a row group, each a row of the schema or a bad one with its reason."""
    names = set(schema.names)
    try:
        with pq.ParquetFile(path) as file:
            there = file.schema_arrow.names
            wanted = [name for name in there if name in names]
            rows = _rows(file, group, skip, take, wanted)
    except (pa.ArrowException, OSError, ValueError) as error:
        return _lost(take, f"not Parquet: {_said(error)}", schema)
    bad: dict[int, str] = {}
    columns = [_column(rows, field, bad, take) for field in schema]
    good = np.delete(np.arange(take, dtype=np.int64), sorted(bad))
    if bad:
        columns = [column.take(pa.array(good)) for column in columns]
    table = pa.Table.from_arrays(columns, schema=schema.arrow())
    places = np.array(sorted(bad), np.int64)
    extra = good.size if set(there) - names else 0
    return Decoded(table, good, places, [bad[place] for place in places.tolist()], int(extra))


def _rows(file: pq.ParquetFile, group: int, skip: int, take: int, names: list[str]) -> pa.Table:
    """Some rows of a row group, of which no more than these and one stretch are held."""
    kept: list[pa.RecordBatch] = []
    first = 0
    if names:
        stretches = file.iter_batches(_STRETCH, row_groups=[group], columns=names,
                                      use_threads=False)  # fmt: skip
        for batch in stretches:
            low, high = max(skip - first, 0), min(skip + take - first, batch.num_rows)
            if low < high:
                kept.append(batch.slice(low, high - low))
            first += batch.num_rows
            if first >= skip + take:
                break
    kinds = pa.schema([file.schema_arrow.field(name) for name in names])
    return pa.Table.from_batches(kept, kinds)


def _lost(count: int, reason: str, schema: Schema) -> Decoded:
    every = np.arange(count, dtype=np.int64)
    return Decoded(schema.arrow().empty_table(), every[:0], every, [reason] * count, 0)


def _column(rows: pa.Table, field: Field, bad: dict[int, str], count: int) -> pa.Array:
    kind = arrow_type(field.type)
    if field.name not in rows.column_names:
        return pa.nulls(count, kind)
    column = rows[field.name].combine_chunks()
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    made, wrong = _cast(column, _zoned(column.type, kind), 0)
    for place in wrong:
        bad.setdefault(
            place, f"{field.name}: needs {field.type.ddl()}; got {_shown(column, place)}"
        )
    made = made.cast(kind) if made.type != kind else made
    _refuse_odd_times(made, field, bad)
    if not field.nullable and made.null_count:
        for place in np.flatnonzero(made.is_null().to_numpy(zero_copy_only=False)).tolist():
            bad.setdefault(place, f"{field.name}: needs {field.type.ddl()}; got null")
    return made


def _zoned(found: pa.DataType, kind: pa.DataType) -> pa.DataType:
    """What to cast to first: a time without a zone is UTC, as everywhere."""
    if pa.types.is_timestamp(found) and found.tz is None and kind.tz is not None:
        return pa.timestamp("us")
    return kind


def _cast(column: pa.Array, kind: pa.DataType, base: int) -> tuple[pa.Array, list[int]]:
    """The column in another type, null where a value does not fit; and where that is."""
    if column.type == kind:
        return column, []
    try:
        return column.cast(kind, safe=True), []
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        if len(column) == 1:
            return pa.nulls(1, kind), [base]
    half = len(column) // 2
    left, wrong = _cast(column.slice(0, half), kind, base)
    right, more = _cast(column.slice(half), kind, base + half)
    return pa.concat_arrays([left, right]), wrong + more


def _refuse_odd_times(column: pa.Array, field: Field, bad: dict[int, str]) -> None:
    if isinstance(field.type, Scalar) and field.type.name in ("timestamp", "timestamp_ntz"):
        micros = pc.fill_null(column.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
        odd = (micros < times.LEAST) | (micros > times.GREATEST)
        for place in np.flatnonzero(odd).tolist():
            bad.setdefault(place, f"{field.name}: needs {field.type.ddl()}; got {_OUTSIDE}")


def _shown(column: pa.Array, place: int) -> str:
    text = str(column[place])
    return text if len(text) <= 40 else f"{text[:39]}…"


def _said(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__


def schema_of(path: Path) -> Schema:
    """The columns of a file.

    Raises:
        Unreadable: it is no Parquet.
    """
    try:
        return Schema.from_arrow(pq.read_schema(path))
    except (pa.ArrowException, OSError) as error:
        raise Unreadable(f"not Parquet: {_said(error)}") from None


def as_json(path: Path, group: int, row: int) -> bytes | None:
    """One row with all the file's columns as JSON; None where it cannot be read."""
    from millstream.formats.json.encode import encode

    try:
        with pq.ParquetFile(path) as file:
            rows = _rows(file, group, row, 1, file.schema_arrow.names)
        value: bytes = encode(rows)[0].as_py()
    except (pa.ArrowException, OSError, ValueError):
        return None
    return value
