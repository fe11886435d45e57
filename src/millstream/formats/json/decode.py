"""Decodes JSON records to columns: by shape where records are alike, exactly everywhere else.

The first record of a block is read by the exact path. Its shape is then tried on all others
(`shapes`), and the slots of those that match are read as columns (`columns`). The first record that
does not match gives the next shape. The remaining records (unusual, bad, or unlike all others) are
read one at a time (`exact`), which also gives the reasons.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from millstream.errors import InvalidSpec
from millstream.formats import decoding
from millstream.formats.block import Block
from millstream.formats.decoding import BadRecord, Piece
from millstream.formats.json import columns, exact, shapes
from millstream.schema import Array, Map, Scalar, Struct

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from millstream.formats.block import Flags
    from millstream.formats.spec import Decoded
    from millstream.schema import Schema, Type

_MOST_SHAPES = 32
_MOST_MISSES = 8


def decode(values: pa.Array | pa.ChunkedArray, schema: Schema) -> Decoded:
    """Decode record values (binary or large binary) to columns; see `Format.decode`."""
    check(schema)
    return decoding.decode(values, schema, _Paths(schema))


def decode_exactly(values: pa.Array | pa.ChunkedArray, schema: Schema) -> Decoded:
    """As `decode`, by the exact path alone."""
    check(schema)
    return decoding.decode(values, schema, _Paths(schema), exactly=True)


@lru_cache(maxsize=256)
def check(schema: Schema) -> None:
    """Refuse maps whose keys are not strings, which JSON cannot hold.

    Raises:
        InvalidSpec: the message names the column.
    """
    for part in schema:
        _check_type(part.type, part.name)


def _check_type(type_: Type, path: str) -> None:
    if isinstance(type_, Map):
        if type_.key != Scalar("string"):
            raise InvalidSpec(
                "a map in JSON needs string keys",
                got=f"{path} {type_.ddl()}",
                do=f"declare it as map<string,{type_.value.ddl()}>",
            )
        _check_type(type_.value, path)
    elif isinstance(type_, Array):
        _check_type(type_.element, path)
    elif isinstance(type_, Struct):
        for part in type_.fields:
            _check_type(part.type, f"{path}.{part.name}")


class _Paths:
    """The two paths of one call to `decode`, with the shapes learned so far."""

    def __init__(self, schema: Schema) -> None:
        self._fields = schema.fields
        self._records = exact.Records(schema)
        self._known: list[shapes.Shape] = []

    def exact(self, raw: bytes | None) -> tuple[list[object], bool]:
        return self._records.read(raw)

    def fast(self, values: pa.Array) -> Iterator[Piece]:
        """The rows that match one of the shapes, known or learned here."""
        block = Block(values)
        waiting = np.ones(block.rows, np.bool_)
        if values.null_count:
            waiting = values.is_valid().to_numpy(zero_copy_only=False).copy()
        for shape in self._candidates(block, waiting):
            found = shapes.match(block, shape, None if waiting.all() else np.flatnonzero(waiting))
            waiting[found.rows] = False
            if found.rows.size:
                made, ok = columns.read(block, shape, found, self._fields)
                piece = Piece.where(ok, made, ok if shape.extra else None)
                yield Piece(found.rows[piece.rows], piece.columns, piece.extra)

    def _candidates(self, block: Block, waiting: Flags) -> Iterator[shapes.Shape]:
        """Shapes to try while rows are unmatched; a row without a shape takes the exact path."""
        for shape in list(self._known):
            if not waiting.any():
                return
            yield shape
        misses = 0
        while misses < _MOST_MISSES and waiting.any():
            row = int(np.argmax(waiting))
            learned = self._learn(block.text(row))
            if learned is None:
                misses += 1
                waiting[row] = False
            else:
                yield learned

    def _learn(self, text: bytes) -> shapes.Shape | None:
        if len(self._known) >= _MOST_SHAPES:
            return None
        try:
            self._records.read(text)
        except BadRecord:
            return None
        shape = shapes.learn(text, self._fields)
        if shape is not None:
            self._known.append(shape)
        return shape
