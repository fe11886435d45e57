"""Combines many overlapping spans of rows, at a cost logarithmic in their length.

Rows are in groups. In each group, blocks of two rows, of four, of eight, … are combined once;
a span consists of at most two blocks of each size, in order. So every kind of state column can
be combined without subtraction, and a span of 100 000 rows costs about 30 rows. Sums of integers
are the exception: they are differences of running sums, which are exact.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.state.arrays.decimals import overflow
from millstream.state.arrays.numpy_columns import int_values, plain, spans_to_rows, validity
from millstream.state.combine import reduce_groups
from millstream.state.spec import GONE, HASH, ORDER, StateSpec

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from millstream.state.spec import StateColumn

    Ints = NDArray[np.int64]

CHUNK_BYTES = 64 << 20
_LOW_32 = np.int64(0xFFFFFFFF)


def folded(
    rows: pa.Table, values: Sequence[StateColumn], starts: Ints, lows: Ints, highs: Ints
) -> Iterator[tuple[slice, pa.Table]]:
    """The rows [low, high) of each span combined, in pieces: which spans, and their values.

    `starts` is where the groups of rows begin; a span has one or more rows of one group.
    """
    others = tuple(column for column in values if not _is_whole(column))
    sums = {c.name: _Running(plain(rows[c.name]), c.name) for c in values if _is_whole(c)}
    forest = _Forest(rows, others, starts, int((highs - lows).max(initial=1))) if others else None
    for spans in _pieces(rows, others, highs - lows):
        low, high = lows[spans], highs[spans]
        columns = {name: running.between(low, high) for name, running in sums.items()}
        if forest is not None:
            made = forest.combined(low, high)
            columns |= {field.name: made[field.name] for c in others for field in c.fields}
        yield spans, pa.table(columns)


class _Forest:
    """Blocks of 1, 2, 4, … rows of each group, combined."""

    def __init__(
        self, rows: pa.Table, values: tuple[StateColumn, ...], starts: Ints, longest: int
    ) -> None:
        self._spec = StateSpec(keys=pa.schema([]), values=values)
        self._names = [field.name for field in self._spec.value_fields]
        self._starts = starts
        level = rows.select(self._names)
        counts = np.diff(starts, append=rows.num_rows)
        firsts = starts.copy()
        levels, self._firsts, above = [level], [starts], rows.num_rows
        for _ in range(longest.bit_length() - 1):
            pairs = counts // 2
            taken, _ = spans_to_rows(firsts, 2 * pairs)
            level = self._reduced(level, taken, np.arange(0, len(taken), 2))
            counts, firsts = pairs, np.cumsum(pairs) - pairs
            levels.append(level)
            self._firsts.append(above + firsts)
            above += level.num_rows
        self._blocks = pa.concat_tables(levels).combine_chunks()

    def combined(self, lows: Ints, highs: Ints) -> pa.Table:
        """Each span from its blocks, left to right."""
        blocks, starts = self._covering(lows, highs)
        return self._reduced(self._blocks, blocks, starts)

    def _covering(self, lows: Ints, highs: Ints) -> tuple[Ints, Ints]:
        """The blocks of all spans, span by span, and where those of each span begin."""
        groups = np.searchsorted(self._starts, lows, side="right") - 1
        low, high = lows - self._starts[groups], highs - self._starts[groups]
        spans = np.arange(len(lows), dtype=np.int64)
        left, right = np.zeros(len(lows), np.int64), np.zeros(len(lows), np.int64)
        found: list[tuple[Ints, Ints, Ints, bool]] = []
        for firsts in self._firsts:
            odd = spans[low[spans] & 1 == 1]
            found.append((odd, left[odd], firsts[groups[odd]] + low[odd], True))
            left[odd] += 1
            low[odd] += 1
            odd = spans[high[spans] & 1 == 1]
            high[odd] -= 1
            found.append((odd, right[odd], firsts[groups[odd]] + high[odd], False))
            right[odd] += 1
            low >>= 1
            high >>= 1
            spans = spans[low[spans] < high[spans]]
        counts = left + right
        starts = np.cumsum(counts) - counts
        blocks = np.empty(int(counts.sum()), np.int64)
        for span, place, block, from_left in found:
            at = starts[span] + (place if from_left else counts[span] - 1 - place)
            blocks[at] = block
        return blocks, starts

    def _reduced(self, rows: pa.Table, taken: Ints, starts: Ints) -> pa.Table:
        if len(starts) == 0:
            return rows.slice(0, 0)
        indices, nothing = pa.array(taken), np.zeros(len(taken), np.int64)
        columns = {name: plain(rows[name]).take(indices) for name in self._names}
        columns |= {
            ORDER: pa.array(nothing),
            HASH: pa.array(nothing.view(np.uint64)),
            GONE: pa.array(nothing.astype(np.bool_)),
        }
        return reduce_groups(columns, starts, self._spec).select(self._names)


class _Running:
    """Running sums of a column of integers, in halves of 32 bits so that none overflows."""

    def __init__(self, column: pa.Array, name: str) -> None:
        self._name = name
        present = validity(column)
        values = int_values(column)
        if present is not None:
            values = np.where(present, values, 0)
        self._high, self._low = _upto(values >> 32), _upto(values & _LOW_32)
        self._known = None if present is None else _upto(present.astype(np.int64))

    def between(self, lows: Ints, highs: Ints) -> pa.Array:
        """The sums of spans; null where every value is null."""
        low = self._low[highs] - self._low[lows]
        high = self._high[highs] - self._high[lows] + (low >> 32)
        if ((high < -(2**31)) | (high >= 2**31)).any():
            raise overflow(self._name, pa.int64(), do="sum a decimal(38, 0) instead")
        empty = None if self._known is None else self._known[highs] == self._known[lows]
        return pa.array((high << 32) | (low & _LOW_32), mask=empty)


def _upto(values: Ints) -> Ints:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(values)])


def _is_whole(column: StateColumn) -> bool:
    return column.combine == "sum" and bool(pa.types.is_int64(column.type))


def _pieces(rows: pa.Table, values: Sequence[StateColumn], lengths: Ints) -> Iterator[slice]:
    """Slices of the spans whose blocks and results take about `CHUNK_BYTES`."""
    names = [field.name for column in values for field in column.fields]
    wide = sum(rows[n].nbytes for n in names if pa.types.is_nested(rows[n].type))
    narrow = sum(rows[n].nbytes for n in names) - wide + 8 * rows.num_rows
    blocks = 2 * np.log2(np.maximum(lengths, 1)) + 1
    weights = (blocks * narrow + lengths * wide) / max(1, rows.num_rows)
    piece = (np.cumsum(weights) / CHUNK_BYTES).astype(np.int64)
    edges = [0, *(np.flatnonzero(np.diff(piece)) + 1).tolist(), len(lengths)]
    for first, last in pairwise(edges):
        if first < last:
            yield slice(first, last)
