"""Windows of a number of rows over Arrow, per key in order of origin.

Rows are numbered per key and aggregated to panes, so that every window is a span of whole panes:
a pane has as many rows as the greatest common divisor of `n` and `every`. Without overlap a pane
is a window, and the state has one row per key.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.event_time.batch_time import END_OF_TIME, MIN_TIME
from millstream.operators.aggregates.parts import ROWS
from millstream.operators.kernel import Outcome, Prepared
from millstream.operators.windows.folding import folded
from millstream.operators.windows.lifted import LAST, Lifted, require_no_retraction
from millstream.operators.windows.open_times import NO_TIME, TIMES, OpenTimes
from millstream.state.arrays.numpy_columns import int_values, plain, spans_to_rows, validity
from millstream.state.combine import combine, conform, reduce_groups
from millstream.state.row_columns import ORIGIN
from millstream.state.runs.lookup import meeting
from millstream.state.spec import GONE, HASH, ORDER, StateSpec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from millstream.event_time.batch_time import BatchTime
    from millstream.operators.aggregates.functions import Aggregate
    from millstream.operators.windows.by_rows.spec import Rows
    from millstream.state.runs.view import View

    Ints = NDArray[np.int64]
    Mask = NDArray[np.bool_]

PANES = "panes"
PANE = "_pane"


@dataclass(frozen=True, slots=True)
class _Panes:
    """The panes of keys: those of the state, then the rows of the batch.

    `rows` are panes of the state (`kept`) and single rows, each with the number of its pane.
    `before` and `after` are the number of rows of each key before and after the batch.
    """

    rows: pa.Table
    kept: Mask
    starts: Ints
    numbers: Ints
    before: Ints
    after: Ints

    @property
    def key_of(self) -> Ints:
        """The number of the key of each row."""
        sizes = np.diff(self.starts, append=self.rows.num_rows)
        return np.repeat(np.arange(len(self.starts)), sizes)


class RowsKernel:
    """Aggregates per key over windows of `n` rows, one beginning every `every` rows.

    Results are keys, `window_start`, `window_end` (the smallest and largest time inside,
    null without event time) and the aggregates. No row is ever late.

    State: per key the panes of windows that have begun and are not full, and the largest
    time in the last of these windows by time.
    Emits: each window when it is full; at the finish those that have begun, with the rows
    they have; in order of (hash of the keys, window), with the event time `window_end`.
    """

    def __init__(
        self,
        spec: Rows,
        keys: Sequence[str],
        aggregates: Mapping[str, Aggregate],
        input_schema: pa.Schema,
    ) -> None:
        self.spec = spec
        self._lifted = Lifted(keys, aggregates, input_schema, spanning=True)
        self._pane = math.gcd(spec.n, spec.every)
        self._state = StateSpec(
            keys=pa.schema([*self._lifted.key_fields, pa.field(PANE, pa.int64())]),
            values=self._lifted.values,
        )
        self._times = OpenTimes(self._lifted.key_fields)

    @property
    def tables(self) -> dict[str, StateSpec]:
        """The panes by key, and the times that hold the watermark."""
        return {PANES: self._state, TIMES: self._times.spec}

    def output(self) -> pa.Schema:
        """Keys, `window_start`, `window_end`, the aggregates in the order given."""
        return self._lifted.output

    def due(self, watermark: int) -> int:
        """Time closes no window before the finish."""
        return END_OF_TIME if watermark == END_OF_TIME else MIN_TIME

    def prepare(self, rows: pa.Table, batch_time: BatchTime, side: int = 0) -> Prepared:
        """Lift each row; no row is late."""
        require_no_retraction(rows, "rows")
        lifted = self._lifted.lift(rows) | {name: rows[name] for name in ORIGIN}
        return Prepared(pa.table(lifted), np.zeros(0, np.int64))

    def run(
        self, sides: Sequence[Sequence[pa.Table]], state: Mapping[str, View], batch_time: BatchTime
    ) -> Outcome:
        """Emit the windows that are full; at the finish, all that have begun."""
        batch = self._lifted.gathered(sides[0], {}, 0)
        if batch_time.after == END_OF_TIME:
            results = self._finished(batch, state[PANES])
            return Outcome(results, floors={PANES: END_OF_TIME, TIMES: END_OF_TIME})
        panes = self._numbered(self._looked_up(batch, state[PANES]), batch)
        times = self._moved_times(panes)
        held = self._times.earliest(state[TIMES], times)
        return Outcome(
            self._windows(panes, self._full(panes.after)),
            deltas={PANES: self._gained(panes), TIMES: times},
            floors={TIMES: min(held, batch_time.after)},
            held=held,
        )

    def _finished(self, batch: pa.Table, view: View) -> Iterator[pa.Table]:
        for piece, part in meeting(batch, view.scan(MIN_TIME, None)):
            panes = self._numbered(piece, part)
            begun = -(-panes.after // self.spec.every)
            yield from self._windows(panes, begun)

    def _looked_up(self, batch: pa.Table, view: View) -> pa.Table:
        _, starts = self._lifted.by_key(batch)
        wanted = batch.select([ORDER, HASH, *self._lifted.keys]).take(pa.array(starts))
        return view.find(wanted)

    def _numbered(self, kept: pa.Table | None, batch: pa.Table) -> _Panes:
        """The rows of both by key, with numbers that continue those of the state."""
        rows = batch.append_column(PANE, pa.array(np.zeros(batch.num_rows, np.int64)))
        rows = conform(rows.drop_columns(list(ORIGIN)), self._state)
        before = 0 if kept is None else kept.num_rows
        if kept is not None:
            rows = pa.concat_tables([conform(kept, self._state), rows])
        places, starts = self._lifted.by_key(rows)
        rows, is_kept = rows.take(pa.array(places)), places < before
        sizes = np.diff(starts, append=len(places))
        key_of = np.repeat(np.arange(len(starts)), sizes)
        numbers = np.asarray(int_values(plain(rows[PANE]))).copy()
        upto = numbers * self._pane + int_values(plain(rows[ROWS]))
        seen = np.zeros(len(starts), np.int64)
        if len(starts):
            seen = np.maximum.reduceat(np.where(is_kept, upto, 0), starts)
        come = np.flatnonzero(~is_kept)
        had = np.add.reduceat(is_kept, starts, dtype=np.int64) if len(starts) else seen
        place = come - (starts + had)[key_of[come]]
        numbers[come] = (seen[key_of[come]] + place) // self._pane
        return _Panes(rows, is_kept, starts, numbers, seen, seen + sizes - had)

    def _full(self, seen: Ints) -> Ints:
        """The number of full windows after so many rows: also that of the first open one."""
        return np.maximum(0, (seen - self.spec.n) // self.spec.every + 1)

    def _windows(self, panes: _Panes, until: Ints) -> Iterator[pa.Table]:
        """The windows from the first that was not full before, up to one per key."""
        if panes.rows.num_rows == 0:
            return
        added, first_of, numbers = self._added_up(panes, np.arange(panes.rows.num_rows))
        counts = np.diff(first_of, append=added.num_rows)
        first = self._full(panes.before)
        windows, of = spans_to_rows(first, np.maximum(0, until - first))
        lows = first_of[of] + windows * self.spec.every // self._pane - numbers[first_of[of]]
        highs = np.minimum(lows + self.spec.n // self._pane, (first_of + counts)[of])
        for spans, values in folded(added, self._state.values, first_of, lows, highs):
            yield from self._lifted.spanned(self._lifted.keyed(added, lows[spans], values))

    def _added_up(self, panes: _Panes, taken: Ints) -> tuple[pa.Table, Ints, Ints]:
        """The taken rows as one row per pane, where keys begin, and the panes' numbers."""
        key_of, numbers = panes.key_of[taken], panes.numbers[taken]
        new_key = np.ones(len(taken), np.bool_)
        new_key[1:] = key_of[1:] != key_of[:-1]
        new = new_key.copy()
        new[1:] |= numbers[1:] != numbers[:-1]
        starts = np.flatnonzero(new)
        if len(starts) == 0:
            return self._state.schema.empty_table(), starts, starts
        indices = pa.array(taken)
        columns = {n: plain(panes.rows[n]).take(indices) for n in self._state.schema.names}
        columns[PANE] = pa.array(numbers)
        columns[ORDER] = pa.array(np.zeros(len(taken), np.int64))
        return (
            reduce_groups(columns, starts, self._state),
            np.flatnonzero(new_key[starts]),
            numbers[starts],
        )

    def _gained(self, panes: _Panes) -> pa.Table:
        """What the batch adds to panes still needed, and tombstones for the others."""
        needed = self._full(panes.after) * self.spec.every // self._pane
        old = panes.numbers < needed[panes.key_of]
        added, _, _ = self._added_up(panes, np.flatnonzero(~panes.kept & ~old))
        gone = panes.rows.take(pa.array(np.flatnonzero(panes.kept & old)))
        tombstones = pa.array(np.ones(gone.num_rows, np.bool_))
        gone = conform(gone.drop_columns([GONE]).append_column(GONE, tombstones), self._state)
        gone = gone.set_column(0, ORDER, pa.array(np.zeros(gone.num_rows, np.int64)))
        return combine(pa.concat_tables([conform(gone, self._state), added]), self._state)

    def _moved_times(self, panes: _Panes) -> pa.Table:
        """The largest time in the last window that has begun, before and after the batch."""
        everything = np.ones(panes.rows.num_rows, np.bool_)
        before = self._latest(panes, panes.kept, panes.before)
        after = self._latest(panes, everything, panes.after)
        keys = panes.rows.take(pa.array(panes.starts))
        return self._times.moved(keys, before, after)

    def _latest(self, panes: _Panes, among: Mask, seen: Ints) -> Ints:
        """The largest time in each key's last window, unless it is full or has no row."""
        every = self.spec.every
        last = np.maximum(0, seen - 1) // every * every
        column = plain(panes.rows[LAST])
        present = validity(column)
        counted = among & (panes.numbers >= (last // self._pane)[panes.key_of])
        counted &= ((seen > 0) & (seen - last < self.spec.n))[panes.key_of]
        if present is not None:
            counted &= present
        if len(panes.starts) == 0:
            return np.zeros(0, np.int64)
        times = np.where(counted, int_values(column), MIN_TIME)
        found = np.maximum.reduceat(times, panes.starts)
        known = np.logical_or.reduceat(counted, panes.starts)
        return np.where(known, found, NO_TIME)
