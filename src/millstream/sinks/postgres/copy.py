"""Encodes Arrow columns as text for PostgreSQL's COPY, without a Python call per value."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from millstream.schema import Array, Decimal, Map, Scalar, Schema, Struct
from millstream.sinks.texts import json_texts

if TYPE_CHECKING:
    from millstream.schema import Type

_SCALARS = {
    "boolean": "boolean", "byte": "smallint", "short": "smallint", "int": "integer",
    "long": "bigint", "float": "real", "double": "double precision", "string": "text",
    "binary": "bytea", "date": "date", "timestamp": "timestamptz", "timestamp_ntz": "timestamp",
}  # fmt: skip
_HEX = np.frombuffer("".join(f"{byte:02x}" for byte in range(256)).encode(), np.uint8)
_OPTIONS = csv.WriteOptions(include_header=False)


def kind(type_: Type) -> str:
    """The PostgreSQL column type for a type."""
    if isinstance(type_, Scalar):
        return _SCALARS[type_.name]
    if isinstance(type_, Decimal):
        return f"numeric({type_.precision},{type_.scale})"
    return "jsonb"


def copy_text(table: pa.Table) -> memoryview:
    """Rows as CSV: null is empty, an empty string is two quotes."""
    columns = [_column(table[f.name], f.type) for f in Schema.from_arrow(table.schema)]
    out = pa.BufferOutputStream()
    csv.write_csv(pa.table(columns, names=table.column_names), out, _OPTIONS)
    return memoryview(out.getvalue())


def _column(column: pa.ChunkedArray, type_: Type) -> pa.ChunkedArray | pa.Array:
    if isinstance(type_, Array | Map | Struct):
        return json_texts(column)
    if isinstance(type_, Decimal):
        return column.cast(pa.string())
    if type_.name == "binary":
        return _hex_texts(column)
    return column


def _hex_texts(column: pa.ChunkedArray) -> pa.Array:
    r"""Bytes as `\x00ff`."""
    whole = pa.concat_arrays([chunk.cast(pa.large_binary()) for chunk in column.chunks])
    _, offsets, data = whole.buffers()
    bounds = np.frombuffer(offsets, np.int64, len(whole) + 1, whole.offset * 8)
    used = np.frombuffer(data or b"", np.uint8)[bounds[0] : bounds[-1]]
    pairs = np.ascontiguousarray(_HEX.reshape(256, 2)[used])
    texts = pa.LargeStringArray.from_buffers(
        len(whole), pa.py_buffer((bounds - bounds[0]) * 2), pa.py_buffer(pairs.reshape(-1))
    )
    prefixed = pc.binary_join_element_wise("\\x", texts.cast(pa.string()), "")
    return pc.if_else(whole.is_valid(), prefixed, pa.scalar(None, pa.string()))
