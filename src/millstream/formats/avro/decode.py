"""Avro's two paths: a field of all records at a time, and record by record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from millstream.formats.avro import columns, exact
from millstream.formats.decoding import blocks, decode_blocks, decode_each

if TYPE_CHECKING:
    import pyarrow as pa

    from millstream.formats.avro.schema import Record
    from millstream.formats.block import Flags
    from millstream.formats.spec import Decoded
    from millstream.schema import Schema


@dataclass(frozen=True, slots=True)
class _Paths:
    node: Record

    def fast(self, block: pa.Array) -> tuple[list[pa.Array], Flags, Flags]:
        made, ok, _ = columns.read(block, self.node)
        return made, ok, np.zeros(len(block), np.bool_)

    def exact(self, raw: bytes | None) -> tuple[list[object], bool]:
        return exact.read(raw, self.node), False


def decode(values: pa.Array | pa.ChunkedArray, schema: Schema, node: Record) -> Decoded:
    """Bare data (binary or large binary) to the schema's columns; see `Format.decode`."""
    return decode_blocks(values, schema, _Paths(node))


def are_data(values: pa.Array, node: Record) -> Flags:
    """Which values are data of the schema, bare."""
    found = [np.empty(0, np.bool_)]
    for _, block in blocks(values):
        _, right, doubtful = columns.read(block, node)
        for number in np.flatnonzero(doubtful).tolist():
            right[number] = _is_datum(block[number].as_py(), node)
        found.append(right)
    return np.concatenate(found)


def _is_datum(raw: bytes | None, node: Record) -> bool:
    try:
        exact.read(raw, node)
    except ValueError:
        return False
    return True


def decode_exactly(values: pa.Array | pa.ChunkedArray, schema: Schema, node: Record) -> Decoded:
    """The meaning of `decode`, one record at a time."""
    return decode_each(values, schema, _Paths(node))
