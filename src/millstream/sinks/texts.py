"""Columns as text, in the form that JSON has: for databases and CSV files."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from millstream.formats.json.encode import encode
from millstream.schema import Array, Decimal, Map, Scalar, Struct, Type

_NAME = "v"
_PREFIX = len('{"v":')


def json_texts(column: pa.ChunkedArray) -> pa.Array:
    """The JSON text of each value; null for null."""
    objects = encode(pa.table({_NAME: column}))
    values = pc.binary_slice(objects, _PREFIX, -1).cast(pa.string())
    valid = column.is_valid()
    valid = valid.combine_chunks() if isinstance(valid, pa.ChunkedArray) else valid
    return pc.if_else(valid, values, pa.scalar(None, pa.string()))


def texts(column: pa.ChunkedArray, type_: Type) -> pa.Array:
    """Strings unchanged, nested values as JSON, times and decimals as in JSON without quotes."""
    if isinstance(type_, Scalar) and type_.name == "string":
        return column.combine_chunks()
    values = json_texts(column)
    if isinstance(type_, Array | Map | Struct):
        return values
    quoted = isinstance(type_, Decimal) or type_.name in ("timestamp", "timestamp_ntz", "date")
    return pc.utf8_trim(values, '"') if quoted else values
