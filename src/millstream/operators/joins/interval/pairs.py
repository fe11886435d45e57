"""The rows of one batch, both sides, and their pairs with each other and with rows of state."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.event_time.batch_time import END_OF_TIME, MIN_TIME
from millstream.operators.joins.matching import Sorted, grouped, moved
from millstream.operators.joins.result_columns import LEFT, RIGHT
from millstream.operators.joins.results import CHUNK_BYTES
from millstream.operators.joins.sides import AT, ROW, present
from millstream.operators.waiting import TWIN
from millstream.state.arrays.numpy_columns import in_chunks, int_values, plain, spans_to_rows
from millstream.state.combine import conform
from millstream.state.sorting import by_group, hashes_of
from millstream.state.spec import GONE, HASH, ORDER

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from millstream.operators.joins.results import Results
    from millstream.operators.joins.sides import Side
    from millstream.state.runs.view import View

    Ints = NDArray[np.int64]


class Reach:
    """How far apart rows may match, and the time cells in which they are stored.

    `within` is (lower, upper) for right - left; None means any distance, and one cell.
    """

    def __init__(self, within: tuple[int, int] | None, cells: int) -> None:
        lower, upper = within or (0, 0)
        self.bounded = within is not None
        self.of = ((lower, upper), (-upper, -lower))
        self._cell = max(1, -(-(upper - lower + 1) // cells))

    def spans(self, times: Ints, side: int) -> tuple[Ints, Ints]:
        """The first and the last time of the other side that rows at these times can match.

        If the span is outside the range of time, the last is before the first.
        """
        lower, upper = self.of[side]
        lows, highs = moved(times, lower), moved(times, upper)
        if lower > 0:
            highs = np.where(times > END_OF_TIME - lower, MIN_TIME, highs)
        if upper < 0:
            lows = np.where(times < MIN_TIME - upper, END_OF_TIME, lows)
        return lows, highs

    def cells(self, times: Ints) -> Ints:
        """The cell of each time."""
        return times // self._cell if self.bounded else np.zeros(len(times), np.int64)

    def cell(self, time: int) -> int:
        """The cell of one time."""
        return time // self._cell


class Meeting:
    """The rows of one batch in a join.

    `lost` are the rows of each side without a key, `come` the others; `matched` collects,
    for each side, tombstones of waiting rows of state that were matched now.
    """

    def __init__(
        self,
        sides: Sequence[Side],
        results: Results,
        reach: Reach,
        tables: Sequence[pa.Table],
        views: Sequence[View],
    ) -> None:
        self._sides, self._results, self._reach = sides, results, reach
        self.matched: tuple[list[pa.Table], list[pa.Table]] = ([], [])
        self.lost: list[pa.Table] = []
        whole = []
        for side, table, view in zip(sides, tables, views, strict=True):
            rows = side.numbered(table, reach.cells(_times(table)), view)
            has = present(side.shared_keys(rows), rows.num_rows)
            whole.append(rows if has.all() else rows.filter(pa.array(has)))
            self.lost.append(rows.filter(pa.array(~has)))
        self.groups, numbers = grouped(
            [hashes_of(rows) for rows in whole],
            [side.shared_keys(rows) for side, rows in zip(sides, whole, strict=True)],
        )
        self.come = [
            Sorted(rows, of, _times(rows), len(self.groups.hashes))
            for rows, of in zip(whole, numbers, strict=True)
        ]
        self._shown = [side.shown(come.rows) for side, come in zip(sides, self.come, strict=True)]

    def pairs(self) -> Iterator[pa.Table]:
        """The pairs of two rows of this batch."""
        left, right = self.come
        lows, highs = self._reach.spans(right.times, RIGHT)
        starts, lengths = self._near(left, right.groups, lows, highs)
        right.match(lengths > 0)
        yield from self._made(LEFT, starts, lengths, self._shown[RIGHT])

    def pairs_with_kept(self, side: int, view: View, first: int) -> Iterator[pa.Table]:
        """The pairs of a side's stored rows, from time `first` on, with the other's new rows."""
        wanted, groups = self._wanted(side, view)
        if wanted.num_rows == 0:
            return
        come = self.come[1 - side]
        for owners, kept in view.stored(wanted, max_bytes=CHUNK_BYTES):
            times = _times(kept)
            lows, highs = self._reach.spans(times, side)
            starts, lengths = self._near(come, groups[owners], lows, highs, times >= first)
            hit = np.flatnonzero(lengths)
            if len(hit) == 0:
                continue
            rows = kept.take(pa.array(hit))
            self.matched[side].append(self._gone(side, rows, highs[hit]))
            shown = self._sides[side].shown(rows)
            yield from self._made(1 - side, starts[hit], lengths[hit], shown)

    def _near(
        self, come: Sorted, groups: Ints, lows: Ints, highs: Ints,
        asking: NDArray[np.bool_] | None = None,
    ) -> tuple[Ints, Ints]:  # fmt: skip
        if not self._reach.bounded:
            return come.all_of(groups)
        return come.near(groups, lows, highs, asking)

    def _made(self, side: int, starts: Ints, lengths: Ints, others: pa.Table) -> Iterator[pa.Table]:
        """The pairs of spans of new rows of a side, each with its row of the other side."""
        mine = self._shown[side]
        for owners, rows in in_chunks(starts, lengths, self._results.each(mine, others)):
            pair = mine.take(pa.array(rows)), others.take(pa.array(owners))
            yield self._results.made(*(pair if side == LEFT else pair[::-1]))

    def _wanted(self, side: int, view: View) -> tuple[pa.Table, Ints]:
        """The cells of each key in which a side's rows may match the other side's new rows."""
        asking = self.come[1 - side]
        if not view.runs or len(asking.times) == 0:
            return pa.table({}), asking.groups[:0]
        lows, highs = self._reach.spans(asking.times, 1 - side)
        first, last = np.maximum(self._reach.cells(lows), view.floor), self._reach.cells(highs)
        if not self._reach.bounded:
            first = last
        same = np.zeros(len(first), np.bool_)
        same[1:] = asking.groups[1:] == asking.groups[:-1]
        asked = np.concatenate([first[:1], last[:-1] + 1])  # rows of a key are sorted by time
        first = np.where(same, np.maximum(first, asked), first)
        cells, of = spans_to_rows(first, np.maximum(last - first + 1, 0))
        groups = asking.groups[of]
        if len(cells) == 0:
            return pa.table({}), groups
        order = by_group(cells - cells.min(), groups)
        groups = groups[order]
        wanted = self.groups.table(groups, self._sides[side].keys)
        return wanted.add_column(0, ORDER, pa.array(cells[order])), groups

    def _gone(self, side: int, rows: pa.Table, deadlines: Ints) -> pa.Table:
        """Tombstones for rows of state that no longer wait for a match."""
        gone = rows.select([HASH, *ROW, TWIN, AT]).add_column(0, ORDER, pa.array(deadlines))
        gone = gone.append_column(GONE, pa.array(np.ones(rows.num_rows, np.bool_)))
        return conform(gone, self._sides[side].open_spec)


def _times(rows: pa.Table) -> Ints:
    return int_values(plain(rows[AT]))
