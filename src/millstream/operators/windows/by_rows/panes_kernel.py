"""Rows, delta and punctuated windows with panes: emitted early by a trigger, and when they close.

These windows have no bounds in advance and no late rows: they take the rows of their key in
order of origin, and close with one of them or at the finish, which emits the on-time pane. All
open windows of a key are stored together, numbered from the first; a batch reads those of its
keys and of the keys with a due timer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.event_time.batch_time import END_OF_TIME, MIN_TIME
from millstream.operators.aggregates.aggregation import BOUND, Aggregation
from millstream.operators.aggregates.parts import ROWS
from millstream.operators.kernel import Outcome, Prepared
from millstream.operators.windows.by_rows.cut_kernel import OPEN, columns_beside, prepared
from millstream.operators.windows.by_rows.touched_windows import WINDOW
from millstream.operators.windows.lifted import FIRST, LAST, Lifted, span_parts
from millstream.operators.windows.open_times import NO_TIME, TIMES, OpenTimes
from millstream.operators.windows.panes.clock_timers import TIMERS, ClockTimers
from millstream.operators.windows.panes.firing import Decided, Groups, Ready
from millstream.operators.windows.panes.kernel import within
from millstream.operators.windows.panes.rows import PaneRows
from millstream.operators.windows.panes.state import (
    ARRIVED,
    EARLY,
    ON_TIME,
    SINCE,
    PaneState,
    arrived_part,
    numbers,
)
from millstream.state.arrays.numpy_columns import int_values, plain, spans_to_rows, validity
from millstream.state.combine import combine, conform
from millstream.state.spec import GONE, HASH, ORDER, StateColumn, StateSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from millstream.event_time.batch_time import BatchTime
    from millstream.operators.aggregates.spec import Aggregate
    from millstream.operators.windows.by_rows.touched_windows import Touching
    from millstream.operators.windows.trigger import Trigger
    from millstream.state.runs.view import View

    Ints = NDArray[np.int64]

PIECE_BYTES = 64 << 20
_BEFORE, _AFTER, _HAD, _HAS = "_before", "_after", "_had", "_has"


class RowPanesKernel:
    """Aggregates per key over windows that rows end, emitted by a trigger and when they close.

    Results are keys, `window_start`, `window_end` (the smallest and largest time inside so
    far, null without event time), the aggregates, `pane`, `pane_index` and, retracting,
    `retract`. No row is ever late.

    State: one row per key and open window; the smallest of the largest times inside by
    time; one timer per key that waits for the clock.
    Emits: open windows when the trigger fires, and each window on time once: when a row
    closes it, or at the finish; in order of (hash of the keys, window). Later operators
    receive the on-time pane only.
    """

    def __init__(
        self,
        windows: Touching,
        keys: Sequence[str],
        aggregates: Mapping[str, Aggregate],
        input_schema: pa.Schema,
        trigger: Trigger,
    ) -> None:
        self._windows = windows
        self._lifted = Lifted(keys, aggregates, input_schema, spanning=True)
        of = Aggregation(keys, aggregates, input_schema, more=[arrived_part(), *span_parts()])
        self._of, kind = of, trigger.panes
        self._early = Ready(trigger.early, of.names)
        moves = kind == "accumulating" and "_time" in input_schema.names
        self._state = PaneState(
            of,
            fresh=kind == "discarding",
            shown=kind == "retracting" or moves,
            numbered=[pa.field(WINDOW, pa.int64())],
            aside=windows.remembered,
        )
        self._rows = PaneRows(self._state, Inside(), kind, labelled=True)
        self._times = OpenTimes(self._lifted.key_fields)
        self._timers = ClockTimers(of.spec.keys)

    @property
    def tables(self) -> dict[str, StateSpec]:
        """The open windows by key, the times that hold back the watermark, and the timers."""
        return {OPEN: self._state.stored, TIMES: self._times.spec, TIMERS: self._timers.spec}

    def output(self) -> pa.Schema:
        """Keys, bounds, aggregates, `pane`, `pane_index`, and `retract` for retracting panes."""
        return self._rows.schema

    def due(self, watermark: int) -> int:
        """Time closes no window before the finish."""
        return END_OF_TIME if watermark == END_OF_TIME else MIN_TIME

    def prepare(self, rows: pa.Table, batch_time: BatchTime, side: int = 0) -> Prepared:
        """Lift each row; no row is late."""
        return prepared(self._windows, self._lifted, rows)

    def run(
        self, sides: Sequence[Sequence[pa.Table]], state: Mapping[str, View], batch_time: BatchTime
    ) -> Outcome:
        """Emit windows that close or fire; at the finish, or if a row closes all, all windows."""
        markers = pa.concat_tables(sides[1]) if len(sides) > 1 and sides[1] else None
        batch = self._lifted.gathered(sides[0], columns_beside(self._windows), 0)
        outcome = Outcome((), {}, {})
        outcome.results = self._results(batch, markers, state, batch_time, outcome)
        return outcome

    def _results(
        self, batch: pa.Table, markers: pa.Table | None, state: Mapping[str, View],
        batch_time: BatchTime, outcome: Outcome,
    ) -> Iterator[pa.Table]:  # fmt: skip
        """The results, one range of keys at a time; the outcome is complete at the end."""
        finish = batch_time.after == END_OF_TIME
        marked = markers is not None and markers.num_rows > 0
        asked = self._timers.asked(state[TIMERS], batch_time.clock)
        left = _Left(max(0, state[OPEN].floor), new_generation=marked)
        flow: list[pa.Table] = []
        for kept, rows in self._met(batch, state[OPEN], asked, everything=finish or marked):
            if not finish:
                left.had.append(kept.select([ORDER, HASH, *self._lifted.keys, LAST]))
            for some in self._windows.touched(self._lifted, kept, rows, markers):
                come = some.come.append_column(ARRIVED, some.come[ROWS])
                groups = self._state.together([some.kept], self._state.come(come, batch_time.clock))
                decided = self._decided(groups, batch_time.clock, finish=finish)
                shown, flowing = self._rows.left(groups, decided)
                yield from shown
                flow += flowing
                if not finish:
                    self._remember(groups, decided, batch_time.clock, left)
        outcome.flow = flow
        if finish:
            outcome.floors = dict.fromkeys(self.tables, END_OF_TIME)
        else:
            self._settle(left, state, batch_time, outcome)

    def _met(
        self, batch: pa.Table, view: View, asked: pa.Table, *, everything: bool
    ) -> Iterable[tuple[pa.Table, pa.Table]]:
        """The open windows of the keys of the batch and those with due timers, or of all keys."""
        if not everything:
            yield self._looked_up(batch, view, asked), batch
            return
        none = view.spec.visible.empty_table()
        for piece, rows in view.in_pieces(batch, PIECE_BYTES):
            yield self._in_order(pa.concat_tables([none, *piece.scan(MIN_TIME, None)])), rows

    def _looked_up(self, batch: pa.Table, view: View, asked: pa.Table) -> pa.Table:
        spec = StateSpec(pa.schema(self._lifted.key_fields), ())
        names = [HASH, *self._lifted.keys]
        due = within(asked, view).select(names)
        both = pa.concat_tables([batch.select(names), due], promote_options="permissive")
        order = pa.array(np.full(both.num_rows, max(0, view.floor)))
        wanted = combine(both.add_column(0, ORDER, order), spec).drop_columns([GONE])
        return self._in_order(view.find(wanted))

    def _in_order(self, kept: pa.Table) -> pa.Table:
        """Rows of the state as rows of a batch: without a generation."""
        kept = kept.set_column(0, ORDER, pa.array(np.zeros(kept.num_rows, np.int64)))
        return kept.select(self._state.working.visible.names)

    def _decided(self, groups: pa.Table, clock: int, *, finish: bool) -> Decided:
        """Closed windows are emitted on time; the others early, if the trigger fires."""
        closed = numbers(groups, WINDOW) < 0
        if finish:
            closed = np.ones(groups.num_rows, np.bool_)
        answers = pa.table(self._of.answers(groups)) if self._early.conditional else None
        at = self._early.at(Groups(numbers(groups, ARRIVED), numbers(groups, SINCE), answers))
        labels = np.where(closed, ON_TIME, EARLY)
        return Decided(closed | (at <= clock), labels, ~closed, at)

    def _remember(self, groups: pa.Table, decided: Decided, clock: int, left: _Left) -> None:
        after = self._state.after_firing(groups, decided.fires, decided.labels, clock)
        left.has.append(after.filter(pa.array(decided.stays)))
        waits = decided.waits
        left.timers.append(self._timers.waiting(groups.take(pa.array(waits)), decided.at[waits]))

    def _settle(
        self, left: _Left, state: Mapping[str, View], batch_time: BatchTime, outcome: Outcome
    ) -> None:
        """The deltas and floors of the tables, and the hold and wake of the next batch."""
        had, has = pa.concat_tables(left.had), pa.concat_tables(left.has)
        before = self._per_key(had, has)
        times = self._times.moved(before, _times(before, _BEFORE), _times(before, _AFTER))
        held = self._times.earliest(state[TIMES], times)
        timers = combine(pa.concat_tables(left.timers), self._timers.spec)
        gained = has if left.new_generation else pa.concat_tables([has, self._gone(before)])
        order = pa.array(np.full(gained.num_rows, left.order + left.new_generation))
        gained = combine(gained.set_column(0, ORDER, order), self._state.stored)
        outcome.deltas = {OPEN: gained, TIMES: times, TIMERS: timers}
        outcome.floors = {TIMES: min(held, batch_time.after)} | self._timers.floor(batch_time.clock)
        if left.new_generation:
            outcome.floors[OPEN] = left.order + 1
        outcome.held = held
        outcome.wake = self._timers.wake(timers, state[TIMERS], batch_time.clock)

    def _per_key(self, had: pa.Table, has: pa.Table) -> pa.Table:
        """For each key read: its earliest time and number of windows, before and after."""
        times = [StateColumn(name, pa.int64(), "min") for name in (_BEFORE, _AFTER)]
        counts = [StateColumn(name, pa.int64(), "sum") for name in (_HAD, _HAS)]
        spec = StateSpec(pa.schema(self._lifted.key_fields), (*times, *counts))

        def span(windows: pa.Table, time: str, count: str) -> pa.Table:
            rows = windows.num_rows
            made = {name: windows[name] for name in (ORDER, HASH, *self._lifted.keys)}
            made |= dict.fromkeys((_BEFORE, _AFTER), pa.nulls(rows, pa.int64()))
            made |= dict.fromkeys((_HAD, _HAS), pa.array(np.zeros(rows, np.int64)))
            made |= {time: windows[LAST], count: pa.array(np.ones(rows, np.int64))}
            return conform(pa.table(made), spec)

        return combine(pa.concat_tables([span(had, _BEFORE, _HAD), span(has, _AFTER, _HAS)]), spec)

    def _gone(self, keys: pa.Table) -> pa.Table:
        """Tombstones for the window numbers that a key no longer has."""
        had, has = numbers(keys, _HAD), numbers(keys, _HAS)
        windows, of = spans_to_rows(has, np.maximum(0, had - has))
        those = keys.select([ORDER, HASH, *self._lifted.keys]).take(pa.array(of))
        columns = {name: those[name] for name in those.column_names}
        columns |= {WINDOW: pa.array(windows), GONE: pa.array(np.ones(len(of), np.bool_))}
        for value in self._state.stored.value_fields:
            columns[value.name] = pa.nulls(len(of), value.type)
        return conform(pa.table(columns), self._state.stored)


class Inside:
    """Windows whose bounds are the smallest and the largest time inside."""

    moves = True

    def bounds(self, groups: pa.Table) -> tuple[pa.Array, pa.Array, pa.Array]:
        """Start, end and event time of each window; null without event time."""
        first, last = plain(groups[FIRST]), plain(groups[LAST])
        return first.cast(BOUND), last.cast(BOUND), last


@dataclass(slots=True)
class _Left:
    """The state changes of a batch: the windows it read, those that stay open, and timers.

    `order` is the generation of the open windows; `new_generation` whether a new one begins.
    """

    order: int
    new_generation: bool
    had: list[pa.Table] = field(default_factory=list)
    has: list[pa.Table] = field(default_factory=list)
    timers: list[pa.Table] = field(default_factory=list)


def _times(keys: pa.Table, name: str) -> Ints:
    column = plain(keys[name])
    present = validity(column)
    return int_values(column) if present is None else np.where(present, int_values(column), NO_TIME)
