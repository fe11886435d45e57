"""A block of record values as one byte array that numpy can look into.

Rows lie one after the other; eight (or 32) bytes anywhere are one load, so that text is
compared and converted a whole column at a time. 32 spare bytes stand at either end, so
that a load at the edge of a row stays inside.
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
_MOST_KEPT = 1 << 23
_QUOTE, _COLON, _BACKSLASH, _BLANK = 0x22, 0x3A, 0x5C, 0x20


class Scratch(threading.local):
    """Large arrays that the blocks of one thread use one after the other.

    Asking the system for fresh pages costs more than all comparisons over them. What is
    kept is bounded: a few arrays of at most 8 MiB a thread.
    """

    def __init__(self) -> None:
        self._kept: dict[str, npt.NDArray[np.uint8]] = {}

    def bytes(self, name: str, size: int) -> npt.NDArray[np.uint8]:
        """The array of that name, of that size, holding anything."""
        if size > _MOST_KEPT:
            return np.empty(size, np.uint8)
        kept = self._kept.get(name)
        if kept is None or kept.size < size:
            kept = self._kept[name] = np.empty(size, np.uint8)
        return kept[:size]

    def flags(self, name: str, size: int) -> Flags:
        return self.bytes(name, size).view(np.bool_)


_SCRATCH = Scratch()


class Block:
    """Some rows' bytes; `start` and `end` are the bounds of each row within them.

    Only the newest block of a thread may be used: they share their scratch.
    """

    def __init__(self, values: pa.Array) -> None:
        """`values` is binary or large binary; what null rows hold is not looked at."""
        width = np.int64 if pa.types.is_large_binary(values.type) else np.int32
        _, offsets, data = values.buffers()
        self.rows = len(values)
        bounds = np.frombuffer(offsets, width, self.rows + 1, values.offset * width().itemsize)
        first, last = int(bounds[0]), int(bounds[-1])
        self.bytes = _SCRATCH.bytes("rows", last - first + 2 * _SPARE)
        self.bytes[:_SPARE] = self.bytes[-_SPARE:] = 0
        if last > first:
            self.bytes[_SPARE:-_SPARE] = np.frombuffer(data, np.uint8, last - first, first)
        bounds = bounds.astype(np.int64) + (_SPARE - first)
        self.start: Ints = bounds[:-1]
        self.end: Ints = bounds[1:]
        self._words = self._loads("<u8", 8)
        self._wide = self._loads("V32", 32)

    def word(self, at: Ints) -> Words:
        """The 8 bytes from each place on, the first one lowest."""
        return self._words[at]

    def wide(self, at: Ints) -> tuple[Words, Words, Words, Words]:
        """The 32 bytes from each place on, as four words."""
        four = self._wide[at].view("<u8").reshape(-1, 4)
        return four[:, 0], four[:, 1], four[:, 2], four[:, 3]

    def text(self, row: int) -> bytes:
        return self.bytes[self.start[row] : self.end[row]].tobytes()

    @cached_property
    def ascii(self) -> bool:
        return bool(self.bytes.max() < 0x80)

    @cached_property
    def escapes(self) -> Ints:
        """Where backslashes stand."""
        found = self._equal(_BACKSLASH, "marks")
        return np.flatnonzero(found) if found.any() else np.empty(0, np.int64)

    @cached_property
    def controls(self) -> Ints:
        """Where characters below the blank stand: never inside a JSON string."""
        inner = self.bytes[_SPARE:-_SPARE]
        if inner.size == 0 or inner.min() >= _BLANK:
            return np.empty(0, np.int64)
        return np.flatnonzero(inner < _BLANK) + _SPARE

    @cached_property
    def high(self) -> Ints:
        """Where bytes beyond ASCII stand."""
        return np.empty(0, np.int64) if self.ascii else np.flatnonzero(self.bytes >= 0x80)

    @cached_property
    def quoting(self) -> Flags:
        """Which bytes are quotes."""
        return self._equal(_QUOTE, "quotes")

    @cached_property
    def names(self) -> Ints:
        """Where a quote stands before a colon: at the end of a name, mostly."""
        marks = self._equal(_COLON, "marks")
        np.logical_and(self.quoting[:-1], marks[1:], out=marks[:-1])
        return np.flatnonzero(marks[:-1])

    @cached_property
    def quotes(self) -> Ints:
        """Where quotes stand that begin or end a string (in a row that is JSON)."""
        quotes = np.flatnonzero(self.quoting)
        if not self.escapes.size:
            return quotes
        return quotes[~self._escaped(quotes)]

    def _escaped(self, quotes: Ints) -> Flags:
        """A quote after an odd run of backslashes is a character, not a bound."""
        escapes = self.escapes
        begins = np.empty(escapes.size, np.bool_)
        begins[0] = True
        begins[1:] = escapes[1:] != escapes[:-1] + 1
        places = np.arange(escapes.size)
        run = places - np.maximum.accumulate(np.where(begins, places, 0)) + 1
        odd = np.zeros(self.bytes.size, np.bool_)
        odd[escapes] = (run & 1).astype(np.bool_)
        return odd[quotes - 1]

    @cached_property
    def quote_counts(self) -> tuple[Ints, Ints]:
        """For each row, where its quotes begin in `quotes`, and how many they are."""
        first = np.searchsorted(self.quotes, self.start)
        return first, np.searchsorted(self.quotes, self.end) - first

    def quotes_of(self, rows: Ints, count: int) -> Ints:
        """A matrix: the `count` quotes of each of the rows."""
        found: Ints = self.quotes[self.quote_counts[0][rows][:, None] + np.arange(count)]
        return found

    def by_row(self, marks: Ints, count: int) -> Ints | None:
        """A matrix of the marks, if each row holds exactly `count` of them."""
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


def holds(marks: Ints, start: Ints, end: Ints) -> Flags:
    """For each span, whether one of the (ascending) marks lies in it."""
    return np.asarray(np.searchsorted(marks, start) < np.searchsorted(marks, end))
