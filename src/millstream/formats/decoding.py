"""Shared by all decoders: records in, good rows and bad records in input order out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, Self

import numpy as np
import pyarrow as pa

from millstream.errors import InvalidInput
from millstream.formats.block import offsets_of
from millstream.formats.spec import Decoded

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from millstream.formats.block import Flags, Ints
    from millstream.schema import Schema

_BLOCK_BYTES = 1 << 21
_BLOCK_ROWS = 1 << 14
NULL_VALUE = "value is null"
FEW = 24
"""Up to this many records, the exact path is faster than columns."""


class BadRecord(ValueError):
    """The bytes are not a record of the format; the message is the reason."""


class BadValue(BadRecord):
    """A value does not fit the schema; `path` is built from the inside out."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path = ""

    def inside(self, step: str) -> Self:
        """Prepend a step to the path."""
        self.path = step + (self.path if self.path[:1] in ("", "[") else f".{self.path}")
        return self

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Piece:
    """Good rows that were read together; `rows` are the indexes of their records.

    `extra` counts the rows with fields outside the schema.
    """

    rows: Ints
    columns: list[pa.Array]
    extra: int = 0

    @classmethod
    def where(cls, ok: Flags, columns: list[pa.Array], extra: Flags | None = None) -> Self:
        """The rows of a block's columns where `ok` is set."""
        if not ok.all():
            columns = [column.filter(pa.array(ok)) for column in columns]
        return cls(np.flatnonzero(ok), columns, 0 if extra is None else int((extra & ok).sum()))


class Paths(Protocol):
    """The two decoding paths of a format."""

    def fast(self, block: pa.Array) -> Iterable[Piece]:
        """Return the rows of a block that are certainly valid; refuse none."""

    def exact(self, raw: bytes | None) -> tuple[list[object], bool]:
        """Return a row's values, and whether the record has fields outside the schema.

        Raises:
            BadRecord: `str(error)` is the reason.
        """


def decode(
    values: pa.Array | pa.ChunkedArray, schema: Schema, paths: Paths, *, exactly: bool = False
) -> Decoded:
    """Run the fast path on blocks, and the exact path on every record it does not accept.

    `exactly` skips the fast path; the result is the same.
    """
    bad: dict[int, str] = {}
    if exactly or len(values) <= FEW:
        _check_binary(values.type)
        every = np.arange(len(values))
        pieces = _read_each(values.to_pylist(), every, schema, paths, bad)
        return _decoded(pieces, bad, schema, len(values))
    pieces = []
    for base, block in blocks(values):
        found: list[Piece] = []
        unread = np.ones(len(block), np.bool_)
        for piece in paths.fast(block) if len(block) > FEW else ():
            unread[piece.rows] = False
            found.append(replace(piece, rows=piece.rows + base))
        if unread.any():
            left = np.flatnonzero(unread)
            records = block if unread.all() else block.take(pa.array(left))
            found += _read_each(records.to_pylist(), left + base, schema, paths, bad)
        pieces += _merge(found)
    return _decoded(pieces, bad, schema, len(values))


def blocks(values: pa.Array | pa.ChunkedArray) -> Iterator[tuple[int, pa.Array]]:
    """Blocks of about two megabytes, which fit into the processor's cache.

    Each comes with the index of its first record.
    """
    _check_binary(values.type)
    base = 0
    for chunk in values.chunks if isinstance(values, pa.ChunkedArray) else [values]:
        for block in _cut(chunk):
            yield base, block
            base += len(block)


def _check_binary(kind: pa.DataType) -> None:
    if not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
        raise InvalidInput("decode needs a binary array", got=f"Arrow type {kind}")


def _cut(values: pa.Array) -> Iterator[pa.Array]:
    if len(values) == 0:
        return
    offsets = offsets_of(values)
    limit = np.iinfo(offsets.dtype).max
    at = 0
    while at < len(values):
        # the type of the offsets: another type would convert all of them for every block
        until = offsets.dtype.type(min(int(offsets[at]) + _BLOCK_BYTES, limit))
        after = int(np.searchsorted(offsets, until, "right")) - 1
        size = min(max(after - at, 1), _BLOCK_ROWS, len(values) - at)
        yield values.slice(at, size)
        at += size


def _read_each(
    records: Iterable[bytes | None], numbers: Ints, schema: Schema, paths: Paths,
    bad: dict[int, str],
) -> list[Piece]:  # fmt: skip
    """Read records one by one; the reasons of bad ones are added to `bad`."""
    rows: list[int] = []
    values: list[list[object]] = []
    extra = 0
    for number, raw in zip(numbers.tolist(), records, strict=True):
        try:
            row, more = paths.exact(raw)
        except ValueError as error:  # mostly BadRecord; a parser may raise others
            bad[number] = str(error)
            continue
        rows.append(number)
        values.append(row)
        extra += more
    if not rows:
        return []
    columns = zip(zip(*values, strict=True), schema.arrow().types, strict=True)
    return [Piece(np.array(rows, np.int64), [pa.array(c, kind) for c, kind in columns], extra)]


def _merge(pieces: list[Piece]) -> list[Piece]:
    """Combine pieces into one, with the rows in input order."""
    pieces = [piece for piece in pieces if piece.rows.size]
    if len(pieces) <= 1:
        return pieces
    rows = np.concatenate([piece.rows for piece in pieces])
    order = np.argsort(rows, kind="stable")
    taken = pa.array(order)
    parts = zip(*(piece.columns for piece in pieces), strict=True)
    columns = [pa.concat_arrays(part).take(taken) for part in parts]
    return [Piece(rows[order], columns, sum(piece.extra for piece in pieces))]


def _decoded(pieces: Sequence[Piece], bad: dict[int, str], schema: Schema, count: int) -> Decoded:
    arrow = schema.arrow()
    batches = [pa.RecordBatch.from_arrays(piece.columns, schema=arrow) for piece in pieces]
    good = np.concatenate([np.empty(0, np.int64), *(piece.rows for piece in pieces)])
    places = np.array(sorted(bad), np.int64)
    assert good.size + places.size == count
    reasons = [bad[number] for number in places.tolist()]
    table = pa.Table.from_batches(batches, arrow)
    return Decoded(table, good, places, reasons, sum(piece.extra for piece in pieces))
