"""Blocks of CSV records to columns, a cell of all rows at a time.

Only what is surely right is taken: rows with the right number of cells, whose quotes
stand around whole cells and are not doubled inside, and whose cells are in the usual
forms. All others are left to the exact path.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.formats.block import Block, Flags, Ints, holds
from millstream.formats.json.columns import Span, Values, read_bare, read_quoted
from millstream.formats.json.numbers import slices
from millstream.schema import Scalar, arrow_type

if TYPE_CHECKING:
    from millstream.schema import Field, Type

_COMMA, _QUOTE, _LF, _CR = 0x2C, 0x22, 0x0A, 0x0D
_MARK = np.uint64(0xBFBBEF)
_THREE = np.uint64(0xFFFFFF)
_IN_QUOTES = ("string", "binary", "date", "timestamp_ntz")


@dataclass(frozen=True, slots=True)
class Cells:
    """One cell in some rows: its bounds without quotes, and whether it had quotes."""

    start: Ints
    end: Ints
    quoted: Flags
    ok: Flags


class Rows:
    """The rows of a block that have the right number of cells."""

    def __init__(self, values: pa.Array, width: int) -> None:
        self.block = Block(values)
        self._width = width
        self._end = self._ends()
        separators = self._separators()
        first = np.searchsorted(separators, self.block.start)
        count = np.searchsorted(separators, self._end) - first
        self.fit: Flags = (count == width - 1) & self._sound(values)
        self.rows: Ints = np.flatnonzero(self.fit)
        places = first[self.rows][:, None] + np.arange(width - 1)
        self._between: Ints = separators[places]

    def _ends(self) -> Ints:
        """Where rows end without the one line break they may end with."""
        block = self.block
        filled = block.end > block.start
        feed = filled & (block.bytes[block.end - 1] == _LF)
        back = feed & (block.end - 1 > block.start) & (block.bytes[block.end - 2] == _CR)
        ends: Ints = block.end - feed - back
        return ends

    def _separators(self) -> Ints:
        """Commas outside of quotes."""
        self._quotes = np.flatnonzero(self.block.quoting)
        return self._outside(np.flatnonzero(self.block.bytes == _COMMA))

    def _outside(self, marks: Ints) -> Ints:
        """Those of the places that lie outside of quotes."""
        if not self._quotes.size or not marks.size:
            return marks
        row = np.searchsorted(self.block.start, marks, "right") - 1
        before = np.searchsorted(self._quotes, self.block.start)
        inside = (np.searchsorted(self._quotes, marks) - before[row]) & 1
        outside: Ints = marks[inside == 0]
        return outside

    def _sound(self, values: pa.Array) -> Flags:
        """Which rows are there, are UTF-8 without a mark, and hold no line break out of quotes."""
        block = self.block
        sound = np.ones(block.rows, np.bool_)
        if values.null_count:
            sound &= values.is_valid().to_numpy(zero_copy_only=False)
        breaks = block.controls
        if breaks.size:
            marks = block.bytes[breaks]
            breaks = self._outside(breaks[(marks == _LF) | (marks == _CR)])
            sound &= ~holds(breaks, block.start, self._end)
        if not block.ascii:
            sound &= (block.word(block.start) & _THREE) != _MARK
            try:
                slices(block, block.start, block.end, pa.binary()).cast(pa.string())
            except pa.ArrowInvalid:
                sound &= ~holds(block.high, block.start, block.end)
        return sound

    def spread(self, column: pa.Array) -> pa.Array:
        """A column over the rows as one over the block, with nulls for the other records."""
        if self.fit.all():
            return column
        return column.take(pa.array(np.cumsum(self.fit) - 1, mask=~self.fit))

    def cells(self, place: int) -> Cells:
        """The cells number `place` of the rows."""
        block, rows = self.block, self.rows
        start = block.start[rows] if place == 0 else self._between[:, place - 1] + 1
        end = self._end[rows] if place == self._width - 1 else self._between[:, place]
        ok = np.ones(rows.size, np.bool_)
        if not self._quotes.size:
            return Cells(start, end, np.zeros(rows.size, np.bool_), ok)
        count = np.searchsorted(self._quotes, end) - np.searchsorted(self._quotes, start)
        around = (count == 2) & (block.bytes[start] == _QUOTE) & (block.bytes[end - 1] == _QUOTE)
        return Cells(start + around, end - around, around, (count == 0) | around)


def read(rows: Rows, field: Field, place: int | None) -> tuple[pa.Array, Flags]:
    """A field's column over the rows, and which of them are surely right."""
    count = rows.rows.size
    if place is None:
        return pa.nulls(count, arrow_type(field.type)), np.full(count, field.nullable)
    cells = rows.cells(place)
    null = (cells.start == cells.end) & ~cells.quoted
    span = Span(rows.block, cells.start, np.where(cells.ok, cells.end, cells.start))
    column, right = _column(field.type, span, null)
    return column, cells.ok & np.where(null, field.nullable, right)


def _column(type_: Type, span: Span, null: Flags) -> tuple[pa.Array, Flags]:
    if type_ == Scalar("string"):
        texts = slices(span.block, span.start, span.end, pa.string())
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
    """Times as ISO text or as whole milliseconds."""
    from millstream.formats.json import instants

    value, ok = instants.parse_timestamps(span.block, span.start, span.end, zoned=True)
    if not ok.all():
        number, whole = instants.parse_millis(span.block, span.start, span.end)
        value, ok = np.where(ok, value, number), ok | whole
    return Values(value, ok)


def _with_nulls(column: pa.Array, null: Flags) -> pa.Array:
    if not null.any():
        return column
    mask = pa.py_buffer(np.packbits(~null, bitorder="little"))
    return pa.Array.from_buffers(column.type, len(column), [mask, *column.buffers()[1:]],
                                 offset=column.offset)  # fmt: skip
