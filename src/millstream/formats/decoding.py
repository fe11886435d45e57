"""What decoders share: blocks of a handy size in, rows put together in input order out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.errors import InvalidInput
from millstream.formats.spec import Decoded

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from millstream.schema import Schema

_BLOCK_BYTES = 1 << 21
_BLOCK_ROWS = 1 << 14
FEW = 24
NULL_VALUE = "value is null"


@dataclass(slots=True)
class Piece:
    """Good rows that were read together: where they stand in the input, and their columns."""

    rows: npt.NDArray[np.int64]
    columns: list[pa.Array]


@dataclass(slots=True)
class Results:
    """What a decoder has made so far; every record ends up in a piece or among the bad."""

    schema: Schema
    pieces: list[Piece] = field(default_factory=list)
    bad: dict[int, str] = field(default_factory=dict)
    extra: int = 0

    def decoded(self, count: int) -> Decoded:
        """All of it, for an input of so many records."""
        kind = self.schema.arrow()
        made = [pa.RecordBatch.from_arrays(piece.columns, schema=kind) for piece in self.pieces]
        none = np.empty(0, np.int64)
        good = np.concatenate([none, *(piece.rows for piece in self.pieces)])
        bad = np.array(sorted(self.bad), np.int64)
        assert good.size + bad.size == count
        reasons = [self.bad[number] for number in bad.tolist()]
        return Decoded(pa.Table.from_batches(made, kind), good, bad, reasons, self.extra)


class Paths(Protocol):
    """The two ways a format reads records; the fast one only ever accepts."""

    def fast(
        self, block: pa.Array
    ) -> tuple[list[pa.Array], npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Columns, which rows are surely right, and which carry fields outside the schema."""

    def exact(self, raw: bytes | None) -> tuple[list[object], bool]:
        """A row's values, and whether it carried more.

        Raises:
            ValueError: the record is bad; `str(error)` is the reason.
        """


def blocks(values: pa.Array | pa.ChunkedArray) -> Iterator[tuple[int, pa.Array]]:
    """Pieces of about two megabytes, so that a block stays in the processor's cache.

    Each comes with the number of its first record.
    """
    base = 0
    for chunk in values.chunks if isinstance(values, pa.ChunkedArray) else [values]:
        if not (pa.types.is_binary(chunk.type) or pa.types.is_large_binary(chunk.type)):
            raise InvalidInput("decode needs a binary array", got=f"Arrow type {chunk.type}")
        for block in _cut(chunk):
            yield base, block
            base += len(block)


def _cut(values: pa.Array) -> Iterator[pa.Array]:
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


def slice_binary(
    data: pa.Buffer, start: npt.NDArray[np.int64], end: npt.NDArray[np.int64], kind: pa.DataType
) -> pa.Array:
    """The bytes between ascending, disjoint bounds, as an array of that binary type."""
    if not start.size:
        return pa.array([], kind)
    bounds = np.empty(2 * start.size, np.int64 if pa.types.is_large_binary(kind) else np.int32)
    bounds[0::2], bounds[1::2] = start, end
    every = pa.Array.from_buffers(kind, bounds.size - 1, [None, pa.py_buffer(bounds), data])
    return every.take(pa.array(np.arange(0, bounds.size - 1, 2)))


def decode_blocks(values: pa.Array | pa.ChunkedArray, schema: Schema, paths: Paths) -> Decoded:
    """Blocks by the fast path; what it does not take, and small blocks, exactly."""
    gathered = Results(schema)
    for base, block in blocks(values):
        unread = np.ones(len(block), np.bool_)
        pieces: list[Piece] = []
        if len(block) > FEW:
            made, ok, extra = paths.fast(block)
            gathered.extra += int((extra & ok).sum())
            if not ok.all():
                made = [column.filter(pa.array(ok)) for column in made]
            pieces.append(Piece(np.flatnonzero(ok) + base, made))
            unread = ~ok
        if unread.any():
            left = np.flatnonzero(unread)
            records = block.take(pa.array(left)).to_pylist()
            pieces += _exactly(zip((left + base).tolist(), records, strict=True), gathered, paths)
        gathered.pieces.extend(merge_pieces(pieces))
    return gathered.decoded(len(values))


def decode_each(values: pa.Array | pa.ChunkedArray, schema: Schema, paths: Paths) -> Decoded:
    """The meaning of `two_paths`, one record at a time."""
    gathered = Results(schema)
    gathered.pieces += _exactly(enumerate(values.to_pylist()), gathered, paths)
    return gathered.decoded(len(values))


def _exactly(
    records: Iterable[tuple[int, bytes | None]], gathered: Results, paths: Paths
) -> list[Piece]:
    rows: list[int] = []
    values: list[list[object]] = []
    for number, raw in records:
        try:
            row, extra = paths.exact(raw)
        except ValueError as error:
            gathered.bad[number] = str(error)
            continue
        rows.append(number)
        values.append(row)
        gathered.extra += extra
    if not rows:
        return []
    kinds = gathered.schema.arrow().types
    made = [
        pa.array(column, kind)
        for column, kind in zip(zip(*values, strict=True), kinds, strict=True)
    ]
    return [Piece(np.array(rows, np.int64), made)]


def merge_pieces(pieces: Sequence[Piece]) -> list[Piece]:
    """One piece with the rows of all, in input order."""
    if len(pieces) <= 1:
        return list(pieces)
    pieces = [piece for piece in pieces if piece.rows.size] or pieces[:1]
    rows = np.concatenate([piece.rows for piece in pieces])
    order = np.argsort(rows, kind="stable")
    parts = zip(*(piece.columns for piece in pieces), strict=True)
    taken = pa.array(order)
    return [Piece(rows[order], [pa.concat_arrays(part).take(taken) for part in parts])]
