"""Record values to columns: at full speed where records look alike, exactly everywhere.

A block's first record is read exactly; its shape is then tried on all others (`shapes`),
and the slots of those that match are read in whole columns (`columns`). What does not
match teaches the next shape, and what is left (odd, wrong, or unlike any other) is read
one record at a time (`exact`), which also gives every reason. The fast path only ever
accepts; it never refuses a row.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.errors import InvalidSpec
from millstream.formats.block import Block, Flags
from millstream.formats.decoding import Piece, Results, blocks, merge_pieces
from millstream.formats.json import columns, exact, shapes
from millstream.formats.json.syntax import InvalidJson
from millstream.schema import Array, Map, Scalar, Struct

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.formats.spec import Decoded
    from millstream.schema import Schema, Type

_FEW = 24
_MOST_SHAPES = 32
_MOST_MISSES = 8


@lru_cache(maxsize=256)
def check(schema: Schema) -> None:
    """Refuse a schema that JSON cannot carry: a map needs string keys.

    Raises:
        InvalidSpec: the sentence names the column.
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


def decode(values: pa.Array | pa.ChunkedArray, schema: Schema) -> Decoded:
    """Record values (binary or large binary) to the schema's columns; see `Format.decode`."""
    if len(values) <= _FEW and pa.types.is_binary(values.type):
        return decode_exactly(values, schema)
    check(schema)
    work = _Work(schema)
    for base, block in blocks(values):
        work.block(block, base)
    return work.gathered.decoded(len(values))


def decode_exactly(values: pa.Array | pa.ChunkedArray, schema: Schema) -> Decoded:
    """The meaning of `decode`, one record at a time, without any shape."""
    check(schema)
    work = _Work(schema)
    work.exactly(list(enumerate(values.to_pylist())))
    return work.gathered.decoded(len(values))


@dataclass(slots=True)
class _Work:
    """One call of `decode`: the shapes learned so far, and what was read."""

    schema: Schema
    records: exact.Records = field(init=False)
    gathered: Results = field(init=False)
    known: list[shapes.Shape] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.records = exact.Records(self.schema)
        self.gathered = Results(self.schema)

    def block(self, values: pa.Array, base: int) -> None:
        """Read one block whose first record is number `base` of the input."""
        pieces: list[Piece] = []
        unread = np.ones(len(values), np.bool_)
        if len(values) > _FEW:
            for piece in self._by_shape(values):
                unread[piece.rows] = False
                pieces.append(Piece(piece.rows + base, piece.columns))
        if unread.any():
            left = np.flatnonzero(unread)
            records = (values if unread.all() else values.take(pa.array(left))).to_pylist()
            pieces.extend(self._exact(list(zip((left + base).tolist(), records, strict=True))))
        self.gathered.pieces.extend(merge_pieces(pieces))

    def exactly(self, records: list[tuple[int, bytes | None]]) -> None:
        self.gathered.pieces.extend(self._exact(records))

    def _by_shape(self, values: pa.Array) -> Iterator[Piece]:
        """The rows that have one of the shapes, known or learned here, and are surely right."""
        block = Block(values)
        waiting = np.ones(block.rows, np.bool_)
        if values.null_count:
            waiting = values.is_valid().to_numpy(zero_copy_only=False).copy()
        for shape in self._candidates(block, waiting):
            found = shapes.match(block, shape, None if waiting.all() else np.flatnonzero(waiting))
            waiting[found.rows] = False
            if not found.rows.size:
                continue
            made, ok = columns.read(block, shape, found, self.schema.fields)
            rows = found.rows
            if not ok.all():
                mask = pa.array(ok)
                made, rows = [column.filter(mask) for column in made], rows[ok]
            self.gathered.extra += rows.size if shape.extra else 0
            yield Piece(rows, made)

    def _candidates(self, block: Block, waiting: Flags) -> Iterator[shapes.Shape]:
        """Shapes worth trying while rows are waiting; a row that teaches none stops waiting."""
        for shape in list(self.known):
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
        if len(self.known) >= _MOST_SHAPES:
            return None
        try:
            self.records.read(text)
        except (InvalidJson, exact.BadValue):
            return None
        shape = shapes.learn(text, self.schema.fields)
        if shape is not None:
            self.known.append(shape)
        return shape

    def _exact(self, records: list[tuple[int, bytes | None]]) -> Iterator[Piece]:
        rows: list[int] = []
        values: list[list[object]] = []
        for number, raw in records:
            try:
                row, extra = self.records.read(raw)
            except (InvalidJson, exact.BadValue) as error:
                self.gathered.bad[number] = str(error)
                continue
            rows.append(number)
            values.append(row)
            self.gathered.extra += extra
        if rows:
            kinds = self.schema.arrow().types
            made = [
                pa.array(column, kind)
                for column, kind in zip(zip(*values, strict=True), kinds, strict=True)
            ]
            yield Piece(np.array(rows, np.int64), made)
