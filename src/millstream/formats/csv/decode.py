"""CSV's two paths: a cell of all records at a time, and record by record."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from millstream.formats.csv import columns
from millstream.formats.csv.exact import read
from millstream.formats.decoding import decode_blocks, decode_each

if TYPE_CHECKING:
    import pyarrow as pa

    from millstream.formats.block import Flags
    from millstream.formats.spec import Decoded
    from millstream.schema import Schema

Header = tuple[str, ...] | None


def decode(values: pa.Array | pa.ChunkedArray, schema: Schema, header: Header = None) -> Decoded:
    """Record values (binary or large binary) to the schema's columns; see `Format.decode`."""
    return decode_blocks(values, schema, _Paths(schema, header))


def decode_exactly(
    values: pa.Array | pa.ChunkedArray, schema: Schema, header: Header = None
) -> Decoded:
    """The meaning of `decode`, one record at a time."""
    return decode_each(values, schema, _Paths(schema, header))


class _Paths:
    """In which cell each field stands, and how many cells a row has."""

    def __init__(self, schema: Schema, header: Header) -> None:
        self._fields = schema.fields
        names = schema.names if header is None else header
        self._width = len(names)
        self._places = tuple(names.index(name) if name in names else None for name in schema.names)
        self._more = bool(set(names) - set(schema.names))

    def fast(self, block: pa.Array) -> tuple[list[pa.Array], Flags, Flags]:
        rows = columns.Rows(block, self._width)
        ok = rows.fit.copy()
        made: list[pa.Array] = []
        for field, place in zip(self._fields, self._places, strict=True):
            column, right = columns.read(rows, field, place)
            ok[rows.rows] &= right
            made.append(rows.spread(column))
        for place in set(range(self._width)) - set(self._places):
            ok[rows.rows] &= rows.cells(place).ok
        return made, ok, np.full(len(block), self._more)

    def exact(self, raw: bytes | None) -> tuple[list[object], bool]:
        return read(raw, self._fields, self._places, self._width), self._more
