"""Writes, merges and cuts files of rows: Parquet, JSON lines, CSV."""

from __future__ import annotations

import os
from typing import IO, TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from millstream.formats.csv.encode import encode as csv_rows
from millstream.formats.json.encode import encode as json_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

SUFFIX = {"parquet": ".parquet", "json": ".json", "csv": ".csv"}
_LINES = {"json": json_rows, "csv": csv_rows}
_COPY = 1 << 20


def write(path: Path, format: str, tables: Iterable[pa.Table]) -> dict[str, Any] | None:
    """Write tables of one schema to a new file and sync it.

    Returns the file's facts for the manifest; None if there are no rows.
    """
    rows = (table for table in tables if table.num_rows)
    first = next(rows, None)
    if first is None:
        return None
    with path.open("xb") as file:
        write_one = _parquet if format == "parquet" else _lines
        count, head = write_one(file, format, first, rows)
        file.flush()
        os.fsync(file.fileno())
        size = file.tell()
    return {"rows": count, "bytes": size, "head": head, "columns": first.schema.to_string()}


def _parquet(
    file: IO[bytes], format: str, first: pa.Table, rest: Iterable[pa.Table]
) -> tuple[int, int]:
    count = first.num_rows
    with pq.ParquetWriter(file, first.schema, compression="zstd") as writer:
        writer.write_table(first)
        for table in rest:
            writer.write_table(table)
            count += table.num_rows
    return count, 0


def _lines(
    file: IO[bytes], format: str, first: pa.Table, rest: Iterable[pa.Table]
) -> tuple[int, int]:
    """Write one line per row; CSV starts with a header."""
    header = b""
    if format == "csv":
        names = pa.table({f"c{n}": [name] for n, name in enumerate(first.column_names)})
        header = _with_newlines(csv_rows(names))
    file.write(header)
    count = 0
    for table in (first, *rest):
        file.write(_with_newlines(_LINES[format](table)))
        count += table.num_rows
    return count, len(header)


def _with_newlines(values: pa.Array) -> bytes:
    """The values, each followed by a newline."""
    kind = pa.large_binary()
    lines = pc.binary_join_element_wise(
        values.cast(kind), pa.scalar(b"\n", kind), pa.scalar(b"", kind)
    )
    _, offsets, data = lines.buffers()
    bounds = memoryview(offsets).cast("q")
    return bytes(memoryview(data)[bounds[lines.offset] : bounds[lines.offset + len(lines)]])


def merge(path: Path, format: str, parts: Sequence[tuple[Path, int]]) -> int:
    """Concatenate files to a new file, sync it and return its size.

    `parts` are paths and the lengths of their headers.
    """
    with path.open("xb") as file:
        if format == "parquet":
            _merge_parquet(file, [part for part, _ in parts])
        else:
            for place, (part, head) in enumerate(parts):
                _copy(part, head if place else 0, file)
        file.flush()
        os.fsync(file.fileno())
        return file.tell()


def cut(path: Path, format: str, source: Path, rows: int, size: int) -> int:
    """Copy the first rows of a file to a new file, sync it and return its size.

    `size` is the length of these rows in formats with one line per row.
    """
    with path.open("xb") as file:
        if format == "parquet":
            _cut_parquet(file, source, rows)
        else:
            with source.open("rb") as whole:
                while size and (block := whole.read(min(_COPY, size))):
                    size -= file.write(block)
        file.flush()
        os.fsync(file.fileno())
        return file.tell()


def _cut_parquet(file: IO[bytes], source: Path, rows: int) -> None:
    with (
        pq.ParquetFile(source) as whole,
        pq.ParquetWriter(file, whole.schema_arrow, compression="zstd") as writer,
    ):
        for batch in whole.iter_batches():
            writer.write_batch(batch.slice(0, rows))
            rows -= min(rows, batch.num_rows)
            if not rows:
                return


def _merge_parquet(file: IO[bytes], parts: Sequence[Path]) -> None:
    writer = None
    for part in parts:
        with pq.ParquetFile(part) as source:
            for batch in source.iter_batches():
                writer = writer or pq.ParquetWriter(file, batch.schema, compression="zstd")
                writer.write_batch(batch)
    assert writer is not None
    writer.close()


def _copy(part: Path, skip: int, file: IO[bytes]) -> None:
    with part.open("rb") as source:
        source.seek(skip)
        while block := source.read(_COPY):
            file.write(block)
