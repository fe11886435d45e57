"""Cursors: a position in each record of a block, advanced for all records at once.

In a binary format, the start of a value is known only after the previous value has been read. A
cursor holds this position for every record, so that one field of all records is read in a few
column operations. It refuses nothing: a record that is truncated, or not certainly valid, is `lost`
and read again by the format's exact path.
"""

from __future__ import annotations

from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.formats.block import Block, Flags, Ints

Words = npt.NDArray[np.uint64]
_MORE = np.uint64(0x8080808080808080)
_FEW, _STEPS_FOR_FEW = 16, 2048
_GROUPS = [
    (np.uint64(0x007F007F007F007F), np.uint64(0x7F007F007F007F00), np.uint64(1)),
    (np.uint64(0x00003FFF00003FFF), np.uint64(0x3FFF00003FFF0000), np.uint64(2)),
    (np.uint64(0x000000000FFFFFFF), np.uint64(0x0FFFFFFF00000000), np.uint64(4)),
]
_ONE, _SEVEN, _EIGHT = np.uint64(1), np.uint64(7), np.uint64(8)


class Cursor:
    """The position in each record, and which records are lost."""

    def __init__(self, block: Block, start: Ints, end: Ints) -> None:
        self._block = block
        self._steps = [_STEPS_FOR_FEW]
        self.at: Ints = start.copy()
        self.end: Ints = end
        self.lost: Flags = np.zeros(start.size, np.bool_)
        self.doubtful: Flags = np.zeros(start.size, np.bool_)

    @classmethod
    def over(cls, values: pa.Array) -> Self:
        """A cursor at the start of each value; nulls are lost."""
        block = Block(values)
        made = cls(block, block.start, block.end)
        if values.null_count:
            made.lose(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False)))
        return made

    def inside(self, start: Ints, end: Ints) -> Self:
        """A cursor at the start of each of these spans: nested records."""
        made = type(self)(self._block, start, end)
        made._steps = self._steps
        return made

    def worth(self, rows: Ints) -> bool:
        """Whether a step for these records is worth its cost.

        A step costs as much for one record as for hundreds, so a block has a limited number of
        steps for few records. Records that need more are cheaper on the exact path.
        """
        if rows.size > _FEW:
            return True
        self._steps[0] -= 1
        return self._steps[0] >= 0

    def lose(self, rows: Ints, *, doubt: bool = False) -> None:
        """Leave these records to the exact path: they are invalid, or in `doubt`."""
        if doubt:
            self.doubtful[rows[~self.lost[rows]]] = True
        self.lost[rows] = True
        self.at[rows] = self.end[rows]

    def left(self, rows: Ints) -> Ints:
        """The remaining bytes of each of the records."""
        return np.asarray(self.end[rows] - self.at[rows])

    def varints(self, rows: Ints) -> Words:
        """The next varint of each of the records; 0 for lost records."""
        at = self.at[rows]
        word = self._block.word(at)
        stop = ~word & _MORE
        size = (np.bitwise_count((stop & -stop) - _ONE) >> 3).astype(np.int64) + 1
        if (size == 1).all():
            value = word & np.uint64(0x7F)
        else:
            value = _joined(word, np.minimum(size, 8))
            if (size > 8).any():
                size = self._long(at, size, value)
        over = (at + size > self.end[rows]) | (size > 10)
        self.at[rows] = at + size
        if over.any():
            self.lose(rows[over])
            value[over] = 0
        return value

    def _long(self, at: Ints, size: Ints, value: Words) -> Ints:
        """Add the ninth and tenth byte of the longest numbers to `value`."""
        which = np.flatnonzero(size > 8)
        more = self._block.word(at[which] + 8)
        ninth, tenth = more & np.uint64(0xFF), (more >> _EIGHT) & np.uint64(0xFF)
        value[which] |= (ninth & np.uint64(0x7F)) << np.uint64(56)
        two = ninth >= 0x80
        value[which] |= np.where(two, tenth << np.uint64(63), np.uint64(0))
        size = size.copy()
        size[which] = np.where(two, np.where(tenth <= 1, 10, 11), 9)
        return size

    def words(self, rows: Ints, size: int) -> Words:
        """The next `size` (1 to 8) bytes of each of the records as a little-endian word."""
        at = self.at[rows]
        word = self._block.word(at)
        if size < 8:
            word = word & np.uint64((1 << 8 * size) - 1)
        over = at + size > self.end[rows]
        self.at[rows] = at + size
        if over.any():
            self.lose(rows[over])
        return word

    def spans(self, rows: Ints, size: Ints) -> tuple[Ints, Ints]:
        """The bounds of the next `size` bytes of each of the records; empty for lost records."""
        at = self.at[rows]
        over = (size < 0) | (size > self.end[rows] - at)
        if over.any():
            self.lose(rows[over])
            size = np.where(over, 0, size)
            at = np.where(over, self.end[rows], at)
        self.at[rows] = at + size
        return at, at + size

    def numbers_in(self, start: Ints, end: Ints) -> tuple[Ints, Ints]:
        """The starts of the varints in these spans, and the span of each.

        An unterminated varint has a start as well.
        """
        size = end - start
        owners = np.repeat(np.arange(size.size), size)
        at = np.arange(owners.size) + np.repeat(start - (np.cumsum(size) - size), size)
        last = self._block.bytes[at] < 0x80
        begins = np.ones(owners.size, np.bool_)
        begins[1:] = last[:-1] | (owners[1:] != owners[:-1])
        return owners[begins], at[begins]

    def binaries(self, rows: Ints, size: Ints) -> pa.Array:
        """The next `size` bytes of each of the records as binary."""
        return self.bytes_of(*self.spans(rows, size))

    def texts(self, rows: Ints, size: Ints) -> pa.Array:
        """The next `size` bytes of each of the records as text; invalid UTF-8 loses the record."""
        return self.texts_of(rows, *self.spans(rows, size))

    def bytes_of(self, start: Ints, end: Ints) -> pa.Array:
        """The bytes between ascending, disjoint bounds."""
        return self._block.slices(start, end, pa.binary())

    def texts_of(self, rows: Ints, start: Ints, end: Ints) -> pa.Array:
        """As `bytes_of`, as text; invalid UTF-8 loses the record."""
        made = self.bytes_of(start, end)
        if self._block.ascii:
            return made.view(pa.string())
        try:
            return made.cast(pa.string())
        except pa.ArrowInvalid:
            wrong = np.array([not _is_text(value) for value in made.to_pylist()], np.bool_)
            self.lose(rows[wrong])
            return self._block.slices(start, np.where(wrong, start, end), pa.string())

    def finished(self) -> Flags:
        """Which records were read completely and are not lost."""
        return np.asarray((self.at == self.end) & ~self.lost)


def _joined(word: Words, size: Ints) -> Words:
    """The numbers in the first `size` (1 to 8) bytes of words, seven bits per byte."""
    drop = ((8 - size) << 3).astype(np.uint64)
    made = ((word << drop) >> drop) & ~_MORE
    for low, high, shift in _GROUPS:
        made = (made & low) | ((made & high) >> shift)
    return made


def zigzag(value: Words) -> Ints:
    """Decode zigzag numbers, whose lowest bit is the sign."""
    return (value >> _ONE).astype(np.int64) ^ -(value & _ONE).astype(np.int64)


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
