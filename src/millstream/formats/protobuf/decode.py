"""Protobuf's two paths: a field of all messages at a time, and message by message."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.formats.decoding import decode_blocks, decode_each
from millstream.formats.protobuf import columns, exact
from millstream.formats.protobuf.schema import parse_message

if TYPE_CHECKING:
    import pyarrow as pa

    from millstream.formats.block import Flags
    from millstream.formats.spec import Decoded
    from millstream.schema import Schema


@dataclass(frozen=True, slots=True)
class _Paths:
    files: bytes
    message: str

    def fast(self, block: pa.Array) -> tuple[list[pa.Array], Flags, Flags]:
        return columns.read(block, parse_message(self.files, self.message))

    def exact(self, raw: bytes | None) -> tuple[list[object], bool]:
        return exact.reader(self.files, self.message)(raw)


def decode(
    values: pa.Array | pa.ChunkedArray, schema: Schema, files: bytes, message: str
) -> Decoded:
    """Bare messages (binary or large binary) to the schema's columns; see `Format.decode`."""
    return decode_blocks(values, schema, _Paths(files, message))


def decode_exactly(
    values: pa.Array | pa.ChunkedArray, schema: Schema, files: bytes, message: str
) -> Decoded:
    """The meaning of `decode`, one message at a time."""
    return decode_each(values, schema, _Paths(files, message))
