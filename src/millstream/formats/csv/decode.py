"""Decodes CSV records to columns: one cell of all records at a time, or record by record.

The fast path accepts only rows that are certainly valid: with the right number of cells, quotes
that enclose whole cells and are not doubled inside, and values in common forms. All other rows take
the exact path.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.formats import decoding
from millstream.formats.block import Block, Flags, Ints, contains_any
from millstream.formats.csv.exact import read
from millstream.formats.decoding import Piece
from millstream.formats.json.columns import Span, Values, read_bare, read_quoted
from millstream.formats.json.instants import parse_millis, parse_timestamps
from millstream.schema import Scalar, arrow_type

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.formats.spec import Decoded
    from millstream.schema import Field, Schema, Type

Header = tuple[str, ...] | None
_COMMA, _QUOTE, _LF, _CR = 0x2C, 0x22, 0x0A, 0x0D
_MARK = np.uint64(0xBFBBEF)
_THREE = np.uint64(0xFFFFFF)
_IN_QUOTES = ("string", "binary", "date", "timestamp_ntz")


def decode(values: pa.Array | pa.ChunkedArray, schema: Schema, header: Header = None) -> Decoded:
    """Decode record values (binary or large binary) to columns; see `Format.decode`."""
    return decoding.decode(values, schema, _Paths(schema, header))


def decode_exactly(
    values: pa.Array | pa.ChunkedArray, schema: Schema, header: Header = None
) -> Decoded:
    """As `decode`, by the exact path alone."""
    return decoding.decode(values, schema, _Paths(schema, header), exactly=True)


class _Paths:
    """Which cell holds each field, and how many cells a row has."""

    def __init__(self, schema: Schema, header: Header) -> None:
        self._fields = schema.fields
        names = schema.names if header is None else header
        self._width = len(names)
        self._cells = tuple(names.index(name) if name in names else None for name in schema.names)
        self._more = bool(set(names) - set(schema.names))

    def fast(self, block: pa.Array) -> Iterator[Piece]:
        rows = _Rows(block, self._width)
        ok = rows.fit.copy()
        columns: list[pa.Array] = []
        for field, number in zip(self._fields, self._cells, strict=True):
            column, right = _read(rows, field, number)
            ok[rows.rows] &= right
            columns.append(rows.spread(column))
        for number in set(range(self._width)) - set(self._cells):
            ok[rows.rows] &= rows.cells(number).ok
        yield Piece.where(ok, columns, np.full(len(block), self._more))

    def exact(self, raw: bytes | None) -> tuple[list[object], bool]:
        return read(raw, self._fields, self._cells, self._width), self._more


@dataclass(frozen=True, slots=True)
class _Cells:
    """One cell of several rows: its bounds without quotes, and whether it had quotes."""

    start: Ints
    end: Ints
    quoted: Flags
    ok: Flags


class _Rows:
    """The rows of a block that have the right number of cells."""

    def __init__(self, values: pa.Array, width: int) -> None:
        self.block = Block(values)
        self._width = width
        self._end = self._ends()
        separators = self._separators()
        first = np.searchsorted(separators, self.block.start)
        count = np.searchsorted(separators, self._end) - first
        self.fit: Flags = (count == width - 1) & self._valid_rows(values)
        self.rows: Ints = np.flatnonzero(self.fit)
        between = first[self.rows][:, None] + np.arange(width - 1)
        self._between: Ints = separators[between]

    def _ends(self) -> Ints:
        """The ends of rows, excluding a final line break."""
        block = self.block
        filled = block.end > block.start
        feed = filled & (block.bytes[block.end - 1] == _LF)
        back = feed & (block.end - 1 > block.start) & (block.bytes[block.end - 2] == _CR)
        return np.asarray(block.end - feed - back)

    def _separators(self) -> Ints:
        """Commas outside of quotes."""
        self._quotes = np.flatnonzero(self.block.quoting)
        return self._outside(np.flatnonzero(self.block.bytes == _COMMA))

    def _outside(self, marks: Ints) -> Ints:
        """The positions outside of quotes."""
        if not self._quotes.size or not marks.size:
            return marks
        row = np.searchsorted(self.block.start, marks, "right") - 1
        before = np.searchsorted(self._quotes, self.block.start)
        inside = (np.searchsorted(self._quotes, marks) - before[row]) & 1
        return np.asarray(marks[inside == 0])

    def _valid_rows(self, values: pa.Array) -> Flags:
        """Rows of UTF-8 without a byte order mark or a line break outside of quotes."""
        block = self.block
        valid = np.ones(block.rows, np.bool_)
        if values.null_count:
            valid &= values.is_valid().to_numpy(zero_copy_only=False)
        breaks = block.controls
        if breaks.size:
            marks = block.bytes[breaks]
            breaks = self._outside(breaks[(marks == _LF) | (marks == _CR)])
            valid &= ~contains_any(breaks, block.start, self._end)
        if not block.ascii:
            valid &= (block.word(block.start) & _THREE) != _MARK
            try:
                block.slices(block.start, block.end, pa.binary()).cast(pa.string())
            except pa.ArrowInvalid:
                valid &= ~contains_any(block.high, block.start, block.end)
        return valid

    def spread(self, column: pa.Array) -> pa.Array:
        """A column for the whole block, with nulls for records that are not in `rows`."""
        if self.fit.all():
            return column
        return column.take(pa.array(np.cumsum(self.fit) - 1, mask=~self.fit))

    def cells(self, number: int) -> _Cells:
        """The cell with this index in each row."""
        block, rows = self.block, self.rows
        start = block.start[rows] if number == 0 else self._between[:, number - 1] + 1
        end = self._end[rows] if number == self._width - 1 else self._between[:, number]
        ok = np.ones(rows.size, np.bool_)
        if not self._quotes.size:
            return _Cells(start, end, np.zeros(rows.size, np.bool_), ok)
        count = np.searchsorted(self._quotes, end) - np.searchsorted(self._quotes, start)
        around = (count == 2) & (block.bytes[start] == _QUOTE) & (block.bytes[end - 1] == _QUOTE)
        return _Cells(start + around, end - around, around, (count == 0) | around)


def _read(rows: _Rows, field: Field, number: int | None) -> tuple[pa.Array, Flags]:
    """A field's column, and which of its values are certainly valid."""
    count = rows.rows.size
    if number is None:
        return pa.nulls(count, arrow_type(field.type)), np.full(count, field.nullable)
    cells = rows.cells(number)
    null = (cells.start == cells.end) & ~cells.quoted
    span = Span(rows.block, cells.start, np.where(cells.ok, cells.end, cells.start))
    column, right = _column(field.type, span, null)
    return column, cells.ok & np.where(null, field.nullable, right)


def _column(type_: Type, span: Span, null: Flags) -> tuple[pa.Array, Flags]:
    if type_ == Scalar("string"):
        texts = span.block.slices(span.start, span.end, pa.string())
        return _with_nulls(texts, null), np.ones(len(span), np.bool_)
    if isinstance(type_, Scalar) and type_.name in _IN_QUOTES:
        made, ok = read_quoted(type_, span)
        return _with_nulls(made, null), ok
    values = _instants(span) if type_ == Scalar("timestamp") else read_bare(type_, span)
    assert values is not None
    if null.any():
        values.valid = ~null
    return values.array(type_), values.ok


def _instants(span: Span) -> Values:
    """Times as ISO text or integer milliseconds."""
    value, ok = parse_timestamps(span.block, span.start, span.end, zoned=True)
    if not ok.all():
        number, whole = parse_millis(span.block, span.start, span.end)
        value, ok = np.where(ok, value, number), ok | whole
    return Values(value, ok)


def _with_nulls(column: pa.Array, null: Flags) -> pa.Array:
    if not null.any():
        return column
    mask = pa.py_buffer(np.packbits(~null, bitorder="little"))
    return pa.Array.from_buffers(column.type, len(column), [mask, *column.buffers()[1:]],
                                 offset=column.offset)  # fmt: skip
