"""A block of record values as one byte array for numpy.

Rows are contiguous, and 8 (or 32) bytes at any position are one load, so that text is compared and
converted a whole column at a time. Padding of 32 bytes at either end keeps every load inside the
array.
"""

from __future__ import annotations

import threading
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]
_SPARE = 32
_MAX_KEPT = 1 << 23
_QUOTE, _COLON, _BACKSLASH, _BLANK = 0x22, 0x3A, 0x5C, 0x20


class Scratch(threading.local):
    """Large arrays that the blocks of one thread reuse.

    Allocating new pages costs more than all comparisons on them. A thread keeps a few arrays of
    at most 8 MiB each.
    """

    def __init__(self) -> None:
        self._kept: dict[str, npt.NDArray[np.uint8]] = {}

    def bytes(self, name: str, size: int) -> npt.NDArray[np.uint8]:
        """The array of that name, uninitialized."""
        if size > _MAX_KEPT:
            return np.empty(size, np.uint8)
        kept = self._kept.get(name)
        if kept is None or kept.size < size:
            kept = self._kept[name] = np.empty(size, np.uint8)
        return kept[:size]

    def flags(self, name: str, size: int) -> Flags:
        return self.bytes(name, size).view(np.bool_)


_SCRATCH = Scratch()


class Block:
    """The bytes of some rows; `start` and `end` are the bounds of each row in `bytes`.

    Only the newest block of a thread may be used: they share scratch arrays.
    """

    def __init__(self, values: pa.Array) -> None:
        """`values` is binary or large binary; the bytes of null rows are not read."""
        self.rows = len(values)
        offsets = offsets_of(values)
        first, last = int(offsets[0]), int(offsets[-1])
        self.bytes = _SCRATCH.bytes("rows", last - first + 2 * _SPARE)
        self.bytes[:_SPARE] = self.bytes[-_SPARE:] = 0
        if last > first:
            self.bytes[_SPARE:-_SPARE] = np.frombuffer(
                values.buffers()[2], np.uint8, last - first, first
            )
        bounds = offsets.astype(np.int64) + (_SPARE - first)
        self.start: Ints = bounds[:-1]
        self.end: Ints = bounds[1:]
        self._words = self._loads("<u8", 8)
        self._wide = self._loads("V32", 32)

    def word(self, at: Ints) -> Words:
        """The 8 bytes at each position as a little-endian word."""
        return self._words[at]

    def wide(self, at: Ints) -> tuple[Words, Words, Words, Words]:
        """The 32 bytes at each position as four words."""
        four = self._wide[at].view("<u8").reshape(-1, 4)
        return four[:, 0], four[:, 1], four[:, 2], four[:, 3]

    def text(self, row: int) -> bytes:
        return self.bytes[self.start[row] : self.end[row]].tobytes()

    def slices(self, start: Ints, end: Ints, kind: pa.DataType) -> pa.Array:
        """The bytes between ascending, disjoint bounds as a binary or string array."""
        return slice_binary(pa.py_buffer(self.bytes), start, end, kind)

    @cached_property
    def ascii(self) -> bool:
        return bool(self.bytes.max() < 0x80)

    @cached_property
    def escapes(self) -> Ints:
        """Positions of backslashes."""
        found = self._equal(_BACKSLASH, "marks")
        return np.flatnonzero(found) if found.any() else np.empty(0, np.int64)

    @cached_property
    def controls(self) -> Ints:
        """Positions of control characters, which a JSON string never contains."""
        inner = self.bytes[_SPARE:-_SPARE]
        if inner.size == 0 or inner.min() >= _BLANK:
            return np.empty(0, np.int64)
        return np.flatnonzero(inner < _BLANK) + _SPARE

    @cached_property
    def high(self) -> Ints:
        """Positions of bytes beyond ASCII."""
        return np.empty(0, np.int64) if self.ascii else np.flatnonzero(self.bytes >= 0x80)

    @cached_property
    def quoting(self) -> Flags:
        """Which bytes are quotes."""
        return self._equal(_QUOTE, "quotes")

    @cached_property
    def names(self) -> Ints:
        """Positions of quotes before a colon: mostly the ends of names."""
        marks = self._equal(_COLON, "marks")
        np.logical_and(self.quoting[:-1], marks[1:], out=marks[:-1])
        return np.flatnonzero(marks[:-1])

    @cached_property
    def quotes(self) -> Ints:
        """Positions of quotes that begin or end a string (in a row that is JSON)."""
        quotes = np.flatnonzero(self.quoting)
        if not self.escapes.size:
            return quotes
        return quotes[~self._escaped(quotes)]

    def _escaped(self, quotes: Ints) -> Flags:
        """Which quotes are escaped: they follow an odd number of backslashes."""
        escapes = self.escapes
        begins = np.empty(escapes.size, np.bool_)
        begins[0] = True
        begins[1:] = escapes[1:] != escapes[:-1] + 1
        index = np.arange(escapes.size)
        run = index - np.maximum.accumulate(np.where(begins, index, 0)) + 1
        odd = np.zeros(self.bytes.size, np.bool_)
        odd[escapes] = (run & 1).astype(np.bool_)
        return odd[quotes - 1]

    @cached_property
    def quote_counts(self) -> tuple[Ints, Ints]:
        """For each row, the index of its first quote in `quotes`, and how many it has."""
        first = np.searchsorted(self.quotes, self.start)
        return first, np.searchsorted(self.quotes, self.end) - first

    def quotes_of(self, rows: Ints, count: int) -> Ints:
        """A matrix with the `count` quotes of each of the rows."""
        found: Ints = self.quotes[self.quote_counts[0][rows][:, None] + np.arange(count)]
        return found

    def by_row(self, marks: Ints, count: int) -> Ints | None:
        """A matrix of the marks, if each row has exactly `count` of them."""
        if marks.size != self.rows * count:
            return None
        table = marks.reshape(self.rows, count)
        if count and not ((table[:, 0] >= self.start) & (table[:, -1] < self.end)).all():
            return None
        return table

    def rows_with(self, count: int) -> Ints:
        return np.flatnonzero(self.quote_counts[1] == count)

    def _equal(self, byte: int, name: str) -> Flags:
        return np.equal(self.bytes, byte, out=_SCRATCH.flags(name, self.bytes.size))

    def _loads(self, kind: str, size: int) -> np.ndarray:
        count = self.bytes.size - size + 1
        return np.ndarray((count,), kind, buffer=self.bytes.data, strides=(1,))


def contains_any(marks: Ints, start: Ints, end: Ints) -> Flags:
    """Whether each span contains one of the (ascending) marks."""
    return np.asarray(np.searchsorted(marks, start) < np.searchsorted(marks, end))


def offsets_of(values: pa.Array) -> npt.NDArray[np.signedinteger]:
    """Where each value begins and the last one ends, in the array's data."""
    width = np.int64 if pa.types.is_large_binary(values.type) else np.int32
    start = values.offset * width().itemsize
    return np.frombuffer(values.buffers()[1], width, len(values) + 1, start)


def slice_binary(data: pa.Buffer, start: Ints, end: Ints, kind: pa.DataType) -> pa.Array:
    """The bytes between ascending, disjoint bounds as an array of a binary or string type."""
    if not start.size:
        return pa.array([], kind)
    width = np.int64 if pa.types.is_large_binary(kind) else np.int32
    bounds = np.empty(2 * start.size, width)
    bounds[0::2], bounds[1::2] = start, end
    every = pa.Array.from_buffers(kind, bounds.size - 1, [None, pa.py_buffer(bounds), data])
    return every.take(pa.array(np.arange(0, bounds.size - 1, 2, dtype=width)))
