"""Parquet files: checks their schema, locates their rows, and reads the rows of a piece."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from millstream.formats.spec import Decoded
from millstream.schema import Schema, arrow_type
from millstream.sources.files.parquet_columns import converted, fits

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.schema import Field

_STRETCH = 1 << 16
_UNSHOWN = "a time outside the years 1 to 9999, or text that is not UTF-8"


class Unreadable(ValueError):
    """The file is not Parquet, or does not have the schema; the message is the reason."""


def count(path: Path, schema: Schema) -> tuple[int, tuple[int, ...]]:
    """The number of rows, and the number of the first row of each row group.

    Raises:
        Unreadable: the whole file cannot be read.
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
    places = kinds.get_all_field_indices(field.name)
    if len(places) > 1:
        raise Unreadable(f"{field.name}: needs one such column; the file has {len(places)}")
    if not places:
        if not field.nullable:
            raise Unreadable(f"{field.name}: needs {field.type.ddl()}; the file has no such column")
        return
    found = kinds.field(places[0]).type
    if not fits(found, field.type):
        raise Unreadable(f"{field.name}: needs {field.type.ddl()}; the file has {found}")


def read(path: Path, group: int, skip: int, take: int, schema: Schema) -> Decoded:
    """Read some rows of a row group; a row that does not fit the schema is bad, with a reason."""
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
    """Some rows of a row group; memory holds no more than these and one chunk."""
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
    if field.name not in rows.column_names:
        return pa.nulls(count, arrow_type(field.type))
    column = rows[field.name].combine_chunks()
    made, wrong = converted(column, field.type)
    for place in np.flatnonzero(wrong).tolist():
        bad.setdefault(
            place, f"{field.name}: needs {field.type.ddl()}; got {_shown(column, place)}"
        )
    if not field.nullable and made.null_count:
        for place in np.flatnonzero(made.is_null().to_numpy(zero_copy_only=False)).tolist():
            bad.setdefault(place, f"{field.name}: needs {field.type.ddl()}; got null")
    return made


def _shown(column: pa.Array, place: int) -> str:
    try:
        text = str(column[place])
    except (OverflowError, ValueError):
        return _UNSHOWN
    return text if len(text) <= 40 else f"{text[:39]}…"


def _said(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__


def schema_of(path: Path) -> Schema:
    """The columns of a file.

    Raises:
        Unreadable: it is not Parquet.
    """
    try:
        return Schema.from_arrow(pq.read_schema(path))
    except (pa.ArrowException, OSError) as error:
        raise Unreadable(f"not Parquet: {_said(error)}") from None


def as_json(path: Path, group: int, row: int) -> bytes | None:
    """One row with all columns of the file as JSON; None if it cannot be read."""
    from millstream.formats.json.encode import encode

    try:
        with pq.ParquetFile(path) as file:
            rows = _rows(file, group, row, 1, file.schema_arrow.names)
        value: bytes = encode(rows)[0].as_py()
    except (pa.ArrowException, OSError, ValueError):
        return None
    return value
