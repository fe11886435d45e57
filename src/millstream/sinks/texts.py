"""Columns as text, the same text that JSON has: what databases and CSV files are given."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from millstream.formats.json.encode import encode
from millstream.schema import Array, Decimal, Map, Scalar, Struct, Type

_NAME = "v"
_BEFORE = len('{"v":')


def json_texts(column: pa.ChunkedArray) -> pa.Array:
    """The JSON text of each value, null for null."""
    whole = encode(pa.table({_NAME: column}))
    inside = pc.binary_slice(whole, _BEFORE, -1).cast(pa.string())
    return pc.if_else(_valid(column), inside, pa.scalar(None, pa.string()))


def texts(column: pa.ChunkedArray, type_: Type) -> pa.Array:
    """Strings as they are, nested values as JSON, times and decimals as in JSON without quotes."""
    if isinstance(type_, Scalar) and type_.name == "string":
        return column.combine_chunks()
    found = json_texts(column)
    if isinstance(type_, Array | Map | Struct):
        return found
    quoted = isinstance(type_, Decimal) or type_.name in ("timestamp", "timestamp_ntz", "date")
    return pc.utf8_trim(found, '"') if quoted else found


def _valid(column: pa.ChunkedArray) -> pa.Array:
    valid = column.is_valid()
    return valid.combine_chunks() if isinstance(valid, pa.ChunkedArray) else valid
