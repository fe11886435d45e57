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

from millstream.errors import InvalidInput, InvalidSpec
from millstream.formats.json import columns, exact, shapes
from millstream.formats.json.block import Block, Flags, Places
from millstream.formats.json.syntax import NotJson
from millstream.formats.spec import Decoded
from millstream.schema import Array, Map, Scalar, Struct

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.schema import Schema, Type

_BLOCK_BYTES = 1 << 21
_BLOCK_ROWS = 1 << 14
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
    check(schema)
    work = _Work(schema)
    chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
    base = 0
    for chunk in chunks:
        if not (pa.types.is_binary(chunk.type) or pa.types.is_large_binary(chunk.type)):
            raise InvalidInput("decode needs a binary array", got=f"Arrow type {chunk.type}")
        for block in _cut(chunk):
            work.block(block, base)
            base += len(block)
    return work.finish(base)


def decode_exactly(values: pa.Array | pa.ChunkedArray, schema: Schema) -> Decoded:
    """The meaning of `decode`, one record at a time, without any shape."""
    check(schema)
    work = _Work(schema)
    work.exactly(list(enumerate(values.to_pylist())))
    return work.finish(len(values))


def _cut(values: pa.Array) -> Iterator[pa.Array]:
    """Pieces of about two megabytes, so that a block stays in the processor's cache."""
    if len(values) == 0:
        return
    width = np.int64 if pa.types.is_large_binary(values.type) else np.int32
    offsets = np.frombuffer(
        values.buffers()[1], width, len(values) + 1, values.offset * width().itemsize
    )
    at = 0
    while at < len(values):
        until = width(min(int(offsets[at]) + _BLOCK_BYTES, np.iinfo(width).max))
        after = int(np.searchsorted(offsets, until, "right")) - 1
        size = min(max(after - at, 1), _BLOCK_ROWS, len(values) - at)
        yield values.slice(at, size)
        at += size


@dataclass(slots=True)
class _Piece:
    """Good rows that were read together: where they stand in the input, and their columns."""

    rows: Places
    columns: list[pa.Array]


@dataclass(slots=True)
class _Work:
    """One call of `decode`: the shapes learned so far, and what was read."""

    schema: Schema
    records: exact.Records = field(init=False)
    known: list[shapes.Shape] = field(default_factory=list)
    batches: list[_Piece] = field(default_factory=list)
    bad: list[int] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    extra: int = 0

    def __post_init__(self) -> None:
        self.records = exact.Records(self.schema)

    def block(self, values: pa.Array, base: int) -> None:
        """Read one block whose first record is number `base` of the input."""
        pieces: list[_Piece] = []
        unread = np.ones(len(values), np.bool_)
        if len(values) > _FEW:
            for piece in self._by_shape(values):
                unread[piece.rows] = False
                pieces.append(_Piece(piece.rows + base, piece.columns))
        if unread.any():
            left = np.flatnonzero(unread)
            records = values.take(pa.array(left)).to_pylist()
            pieces.extend(self._exact(list(zip((left + base).tolist(), records, strict=True))))
        self.batches.extend(_in_order(pieces))

    def exactly(self, records: list[tuple[int, bytes | None]]) -> None:
        self.batches.extend(self._exact(records))

    def finish(self, count: int) -> Decoded:
        kind = self.schema.arrow()
        made = [pa.RecordBatch.from_arrays(piece.columns, schema=kind) for piece in self.batches]
        none = np.empty(0, np.int64)
        good = np.concatenate([none, *(piece.rows for piece in self.batches)])
        bad = np.array(self.bad, np.int64)
        assert good.size + bad.size == count
        return Decoded(pa.Table.from_batches(made, kind), good, bad, self.reasons, self.extra)

    def _by_shape(self, values: pa.Array) -> Iterator[_Piece]:
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
            self.extra += rows.size if shape.extra else 0
            yield _Piece(rows, made)

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
        except (NotJson, exact.Refused):
            return None
        shape = shapes.learn(text, self.schema.fields)
        if shape is not None:
            self.known.append(shape)
        return shape

    def _exact(self, records: list[tuple[int, bytes | None]]) -> Iterator[_Piece]:
        rows: list[int] = []
        values: list[list[object]] = []
        for number, raw in records:
            try:
                row, extra = self.records.read(raw)
            except (NotJson, exact.Refused) as error:
                self.bad.append(number)
                self.reasons.append(str(error))
                continue
            rows.append(number)
            values.append(row)
            self.extra += extra
        if rows:
            kinds = self.schema.arrow().types
            made = [
                pa.array(column, kind)
                for column, kind in zip(zip(*values, strict=True), kinds, strict=True)
            ]
            yield _Piece(np.array(rows, np.int64), made)


def _in_order(pieces: list[_Piece]) -> list[_Piece]:
    """One piece with the rows of all, in input order."""
    if len(pieces) <= 1:
        return pieces
    pieces = [piece for piece in pieces if piece.rows.size] or pieces[:1]
    rows = np.concatenate([piece.rows for piece in pieces])
    order = np.argsort(rows, kind="stable")
    parts = zip(*(piece.columns for piece in pieces), strict=True)
    taken = pa.array(order)
    return [_Piece(rows[order], [pa.concat_arrays(part).take(taken) for part in parts])]
