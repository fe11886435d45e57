"""Overlapping windows from shared slices: a row is aggregated once, whatever size ÷ every is.

A row's group is (slice, keys). State is ordered by slices; a window that closes is combined
from the slices it covers, which are kept as long as a later window needs them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.event_time.batch_time import END_OF_TIME, MIN_TIME
from millstream.operators.aggregates.aggregation import (
    ON_TIME_FIELDS,
    Aggregation,
    as_windows,
    in_chunks,
    shown_once,
    that_have_rows,
)
from millstream.operators.kernel import ROWS, Outcome, Prepared
from millstream.operators.windows.fixed.layout import NO_MORE, layout_of
from millstream.operators.windows.folding import folded
from millstream.state.arrays.numpy_columns import int_values, plain, spans_to_rows
from millstream.state.sorting import arrange, hashes_of, orders_of
from millstream.state.spec import ORDER

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from millstream.event_time.batch_time import BatchTime
    from millstream.operators.aggregates.spec import Aggregate
    from millstream.operators.windows.fixed.layout import Layout
    from millstream.operators.windows.spec import Hopping, Tumbling
    from millstream.state.runs.view import View
    from millstream.state.spec import StateSpec

    Ints = NDArray[np.int64]

PIECE_BYTES = 64 << 20


class SlicedKernel:
    """Aggregates per key and hopping window, or window of a zone's days, emitted once, on time.

    State: one row per slice and key, until the last window over the slice is emitted.
    Emits: each window that has rows once, with the event time `window_end` - 1 µs.
    """

    def __init__(
        self,
        spec: Hopping | Tumbling,
        keys: Sequence[str],
        aggregates: Mapping[str, Aggregate],
        input_schema: pa.Schema,
        *,
        panes: bool = False,
        retractable: bool = False,
    ) -> None:
        self.spec, self._layout = spec, layout_of(spec)
        self._of = Aggregation(keys, aggregates, input_schema, retractable=retractable)
        self._panes = panes
        self._output = self._of.output(ON_TIME_FIELDS if panes else ())

    @property
    def tables(self) -> dict[str, StateSpec]:
        """Keys, the number of rows, and the parts of every aggregate, per slice."""
        return {ROWS: self._of.spec}

    def output(self) -> pa.Schema:
        """Keys, `window_start`, `window_end`, the aggregates in the order given."""
        return self._output

    def due(self, watermark: int) -> int:
        """The first slice that is still needed at this watermark."""
        return self._end_of(self._layout.first_open(watermark) - 1)

    def prepare(self, rows: pa.Table, batch_time: BatchTime, side: int = 0) -> Prepared:
        """Separate rows with a closed window; aggregate those with an open one."""
        ticks = self._layout.grid.ticks(int_values(plain(rows["_time"])))
        late, windows, enters, unplaced = parted(ticks, self._layout, batch_time.before)
        if enters is not None:
            rows, ticks = rows.take(pa.array(enters)), ticks[enters]
        return Prepared(self._of.added_up(rows, ticks), late, windows, unplaced)

    def run(
        self, sides: Sequence[Sequence[pa.Table]], state: Mapping[str, View], batch_time: BatchTime
    ) -> Outcome:
        """Combine the windows that `batch_time.after` closes; keep the slices of the others."""
        batch = self._of.together(sides[0])
        first, last = (
            self._layout.first_open(batch_time.before),
            self._layout.first_open(batch_time.after),
        )
        floor = END_OF_TIME if last == NO_MORE else last * self._layout.every
        gained = batch.slice(int(np.searchsorted(orders_of(batch), floor)))
        held = END_OF_TIME
        if last != NO_MORE:
            held = int(self._layout.ends(np.array([last], np.int64))[0]) - 1
        return Outcome(
            results=self._results(batch, state[ROWS], first, last),
            deltas={ROWS: gained},
            floors={ROWS: floor},
            held=held,
        )

    def _end_of(self, window: int) -> int:
        return END_OF_TIME if window >= NO_MORE - 1 else window * self._layout.every + (
            self._layout.size
        )  # fmt: skip

    def _results(self, batch: pa.Table, view: View, first: int, last: int) -> Iterator[pa.Table]:
        """The windows from `first` up to `last`, one range of keys after the other."""
        if first >= last:
            return
        high = self._end_of(last - 1)
        batch = batch.slice(0, int(np.searchsorted(orders_of(batch), high)))
        for part, mine in view.in_pieces(batch, PIECE_BYTES):
            kept = part.scan(MIN_TIME, None if high == END_OF_TIME else high)
            whole = self._of.together([*kept, mine.select(self._of.spec.visible.names)])
            for groups in self._windows(whole, first, last):
                for chunk in in_chunks(that_have_rows(groups)):
                    yield self._answer(chunk)

    def _windows(self, slices: pa.Table, first: int, last: int) -> Iterator[pa.Table]:
        """The closing windows with rows, each combined from its slices, by window, then key."""
        if self._layout.size == 1:
            rows, windows = spread(orders_of(slices), self._layout, first, last)
            yield slices.take(pa.array(rows)).set_column(0, ORDER, pa.array(windows))
            return
        slices, starts = self._by_key(slices)
        windows, lows, highs = covered(orders_of(slices), starts, self._layout, first, last)
        order = _by_window(windows)
        windows, lows, highs = windows[order], lows[order], highs[order]
        for some, values in folded(slices, self._of.spec.values, starts, lows, highs):
            keys = slices.select(self._of.keys).take(pa.array(lows[some]))
            columns = {name: keys[name] for name in self._of.keys}
            columns |= {name: values[name] for name in values.column_names}
            yield pa.table({ORDER: pa.array(windows[some])} | columns)

    def _by_key(self, slices: pa.Table) -> tuple[pa.Table, Ints]:
        """The slices sorted by key, then time, and where keys begin."""
        keys = [plain(slices[key]) for key in self._of.keys]
        level = np.zeros(slices.num_rows, np.int64)
        order, starts, _ = arrange(level, hashes_of(slices), keys)
        return slices if order is None else slices.take(pa.array(order)), starts

    def _answer(self, groups: pa.Table) -> pa.Table:
        windows = orders_of(groups)
        starts, ends = self._layout.starts(windows), self._layout.ends(windows)
        return shown_once(self._of, groups, starts, ends, panes=self._panes)


def covered(
    ticks: Ints, starts: Ints, layout: Layout, first: int, last: int
) -> tuple[Ints, Ints, Ints]:
    """The windows of [first, last) over the ticks of each key, and their spans of rows.

    Ticks ascend within each key; keys begin at `starts`. A window begins with the first row
    that no earlier window covers, and ends with the last row before one it does not cover.
    Both are computed row by row, and both are ordered by key, then window.
    """
    begin, end = _around(ticks, layout, first, last)
    entered, left = begin.copy(), end.copy()
    entered[1:] = np.maximum(begin[1:], end[:-1])
    left[:-1] = np.minimum(end[:-1], begin[1:])
    entered[starts] = begin[starts]
    left[starts[1:] - 1] = end[starts[1:] - 1]
    windows, lows = spans_to_rows(entered, np.maximum(end - entered, 0))
    rows = np.arange(len(ticks), dtype=np.int64)
    return windows, lows, np.repeat(rows, np.maximum(left - begin, 0)) + 1


def _by_window(windows: Ints) -> Ints:
    """The stable order by window; numbers close to each other are sorted digit by digit."""
    least = windows.min(initial=NO_MORE)
    if windows.max(initial=least) - least < 2**16:
        return np.argsort((windows - least).astype(np.uint16), kind="stable")
    return np.argsort(windows, kind="stable")


def spread(ticks: Ints, layout: Layout, first: int, last: int) -> tuple[Ints, Ints]:
    """Each tick once per window of [first, last) over it: the tick, the window."""
    begin, end = _around(ticks, layout, first, last)
    windows, rows = spans_to_rows(begin, np.maximum(end - begin, 0))
    return rows, windows


def _around(ticks: Ints, layout: Layout, first: int, last: int) -> tuple[Ints, Ints]:
    """The range of windows in [first, last) over each tick; it may be empty."""
    begin, counts = layout.around(ticks)
    return np.maximum(begin, first), np.minimum(begin + counts, last)


def parted(
    ticks: Ints, layout: Layout, before: int, keep: int = 0
) -> tuple[Ints, pa.Array | None, Ints | None, int]:
    """Rows by their windows: the late ones with the closed windows, and those that enter one.

    A row may be both: late for some of its windows, in time for others. `enters` is None if all
    rows enter one. The last is the number of rows in no window.
    """
    opened = layout.first_open(before, keep)
    begin, counts = layout.around(ticks)
    unplaced = int((counts == 0).sum())
    gone = np.clip(opened - begin, 0, counts)
    late = np.flatnonzero(gone)
    windows = None
    if len(late):
        _, numbers = spread(ticks[late], layout, MIN_TIME, opened)
        windows = as_windows(layout.starts(numbers), layout.ends(numbers), gone[late])
    enters = np.flatnonzero(counts > gone)
    return late, windows, None if len(enters) == len(ticks) else enters, unplaced
