"""Tumbling windows over Arrow: groups are appended to state and read once, when they close.

A row's group is (window start, keys). State is ordered by the window's start, so the windows
that a watermark closes are a prefix of every run; open windows are never read.
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
from millstream.operators.windows.fixed.bounds import ends_of, first_open, starts_of
from millstream.state.arrays.numpy_columns import int_values, plain
from millstream.state.combine import combine
from millstream.state.sorting import hashes_of, orders_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from millstream.event_time.batch_time import BatchTime
    from millstream.operators.aggregates.spec import Aggregate
    from millstream.operators.windows.spec import Tumbling
    from millstream.state.runs.view import View
    from millstream.state.spec import StateSpec


class TumblingKernel:
    """Aggregates per key and tumbling window, emitted once, on time.

    A row with time t and keys k belongs to the group (start of t's window, k). It is late once
    `before` has reached the window's end; the window is emitted when `after` reaches its end.
    Results are keys, `window_start`, `window_end` and the aggregates.

    State: one row per open window and key, until the window is emitted.
    Emits: each window that has rows once, in order of (start, hash of the keys), with the
    event time `window_end` - 1 µs. A group whose rows were all retracted is not emitted.
    """

    def __init__(
        self,
        spec: Tumbling,
        keys: Sequence[str],
        aggregates: Mapping[str, Aggregate],
        input_schema: pa.Schema,
        *,
        panes: bool = False,
        retractable: bool = False,
    ) -> None:
        self.spec = spec
        self._of = Aggregation(keys, aggregates, input_schema, retractable=retractable)
        self._panes = panes
        self._output = self._of.output(ON_TIME_FIELDS if panes else ())

    @property
    def tables(self) -> dict[str, StateSpec]:
        """Keys, the number of rows, and the parts of every aggregate."""
        return {ROWS: self._of.spec}

    def output(self) -> pa.Schema:
        """Keys, `window_start`, `window_end`, the aggregates in the order given."""
        return self._output

    def due(self, watermark: int) -> int:
        """The order below which windows are emitted at this watermark: the first open window."""
        return first_open(watermark, self.spec)

    def prepare(self, rows: pa.Table, batch_time: BatchTime, side: int = 0) -> Prepared:
        """Separate the late rows; aggregate the others to one row per window and key."""
        starts = starts_of(int_values(plain(rows["_time"])), self.spec)
        gone = starts < first_open(batch_time.before, self.spec)
        if not gone.any():
            return Prepared(self._of.added_up(rows, starts), np.zeros(0, np.int64))
        late, kept = np.flatnonzero(gone), np.flatnonzero(~gone)
        exchange = self._of.added_up(rows.take(pa.array(kept)), starts[kept])
        gone_windows = as_windows(starts[late], ends_of(starts[late], self.spec))
        return Prepared(exchange, late, gone_windows)

    def run(
        self, sides: Sequence[Sequence[pa.Table]], state: Mapping[str, View], batch_time: BatchTime
    ) -> Outcome:
        """Close what `batch_time.after` allows; the rest of the batch is added to the state.

        `held` is the end of the first window that is not closed, minus 1 µs, whether it
        has rows or not: any window emitted later ends there or after it. As that
        window ends after `batch_time.after`, `held` is never below it, and the output's
        watermark is the input's.
        """
        batch = self._of.together(sides[0])
        orders = orders_of(batch)
        floor = first_open(batch_time.after, self.spec)
        closing = batch.slice(*_between(orders, MIN_TIME, floor))
        gained = batch.slice(*_between(orders, floor, END_OF_TIME))
        return Outcome(
            results=self._results(closing, state[ROWS].scan(MIN_TIME, floor)),
            deltas={ROWS: gained},
            floors={ROWS: floor},
            held=self._held(floor),
        )

    def _held(self, start: int) -> int:
        if start == END_OF_TIME:
            return END_OF_TIME
        return int(ends_of(np.array([start], np.int64), self.spec)[0]) - 1

    def _results(self, closing: pa.Table, kept: Iterator[pa.Table]) -> Iterator[pa.Table]:
        """The closing groups of the batch and of the state, combined."""
        orders, hashes = orders_of(closing), hashes_of(closing)
        taken = 0
        for chunk in kept:
            upto = _first_after(orders, hashes, chunk)
            if upto > taken:
                part = closing.slice(taken, upto - taken).select(chunk.column_names)
                yield from self._finished(combine(pa.concat_tables([chunk, part]), self._of.spec))
            else:
                yield from self._finished(chunk)
            taken = upto
        yield from self._finished(closing.slice(taken))

    def _finished(self, groups: pa.Table) -> Iterator[pa.Table]:
        for chunk in in_chunks(that_have_rows(groups)):
            yield self._answer(chunk)

    def _answer(self, groups: pa.Table) -> pa.Table:
        starts = orders_of(groups)
        return shown_once(self._of, groups, starts, ends_of(starts, self.spec), panes=self._panes)


def _between(orders: NDArray[np.int64], low: int, high: int) -> tuple[int, int]:
    """The span of rows with low <= order < high in sorted orders: (first, number)."""
    first, last = np.searchsorted(orders, np.array([low, high], np.int64), side="left")
    return int(first), max(0, int(last - first))


def _first_after(orders: NDArray[np.int64], hashes: NDArray[np.uint64], chunk: pa.Table) -> int:
    """The first row of the sorted (orders, hashes) after the last group of a chunk."""
    order, hashed = orders_of(chunk)[-1], hashes_of(chunk)[-1]
    first, last = np.searchsorted(orders, order, "left"), np.searchsorted(orders, order, "right")
    return int(first + np.searchsorted(hashes[first:last], hashed, "right"))
