"""Windows with panes: emitted early, on time and late by a trigger.

A row's group is (window, keys). Unlike in windows that are only emitted on time, a group is
looked up when rows are added to it: whether it fires depends on its earlier panes. A second
table has the groups that wait for the clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.operators.aggregates.aggregation import Aggregation
from millstream.operators.kernel import ROWS, Outcome, Prepared
from millstream.operators.windows.fixed.extent import extent_of
from millstream.operators.windows.panes.clock_timers import TIMERS, ClockTimers
from millstream.operators.windows.panes.firing import Decided, Groups, Ready
from millstream.operators.windows.panes.rows import PaneRows
from millstream.operators.windows.panes.state import (
    ARRIVED,
    EARLY,
    LATE,
    ON_TIME,
    SINCE,
    PaneState,
    arrived_part,
    numbers,
)
from millstream.operators.windows.trigger import Each, Trigger
from millstream.state.combine import combine
from millstream.state.keys.hashing import buckets_of
from millstream.state.sorting import hashes_of, orders_of
from millstream.state.spec import HASH, ORDER, StateSpec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from millstream.event_time.batch_time import BatchTime
    from millstream.operators.aggregates.spec import Aggregate
    from millstream.operators.windows.spec import Everything, Hopping, Tumbling
    from millstream.state.runs.view import View

    Ints = NDArray[np.int64]

WINDOW = "_window"
PIECE_BYTES = 64 << 20


class PanesKernel:
    """Aggregates per key and window, emitted when the trigger fires, on time, and when corrected.

    State: one row per window and key, until the window has closed and `keep` has passed; one
    timer per group that waits for the clock.
    Emits: keys, bounds, aggregates, `pane`, `pane_index` and, retracting, `retract`. A window
    emits one on-time pane, if it ever had a row; one whose rows were all retracted retracts its
    last pane. Later operators receive the on-time pane, then each change as the old row
    retracted and the new one.
    """

    def __init__(
        self,
        spec: Tumbling | Hopping | Everything,
        keys: Sequence[str],
        aggregates: Mapping[str, Aggregate],
        input_schema: pa.Schema,
        *,
        trigger: Trigger | None = None,
        keep: int = 0,
        panes: bool = True,
        retractable: bool = False,
    ) -> None:
        self.spec, self.keep = spec, keep
        self.trigger = trigger or Trigger()
        self._extent = extent_of(spec, timed="_time" in input_schema.names)
        more = [arrived_part(), *self._extent.parts]
        self._of = Aggregation(keys, aggregates, input_schema, more=more, retractable=retractable)
        self._early = Ready(self.trigger.early, self._of.names)
        self._late = Ready(self.trigger.late or Each(), self._of.names)
        kind = self.trigger.panes
        emptied = retractable and self.trigger.early is not None
        self._state = PaneState(
            self._of,
            fresh=kind == "discarding",
            shown=kind == "retracting" or keep > 0 or emptied,
        )
        self._rows = PaneRows(self._state, self._extent, kind, labelled=panes)
        timer_keys = pa.schema([pa.field(WINDOW, pa.int64()), *self._of.spec.keys])
        self._timers = ClockTimers(timer_keys)

    @property
    def tables(self) -> dict[str, StateSpec]:
        """The groups, and the timers of those that wait for the clock."""
        return {ROWS: self._state.stored, TIMERS: self._timers.spec}

    def output(self) -> pa.Schema:
        """Keys, bounds, aggregates, `pane`, `pane_index`, and `retract` for retracting panes."""
        return self._rows.schema

    def due(self, watermark: int) -> int:
        """The first window that is neither emitted nor dropped at this watermark."""
        return self._extent.first_open(watermark)

    def prepare(self, rows: pa.Table, batch_time: BatchTime, side: int = 0) -> Prepared:
        """Separate rows with a closed window; aggregate those with an open one."""
        placed = self._extent.placed(rows, batch_time.before, self.keep)
        exchange = self._of.added_up(placed.rows, placed.orders)
        return Prepared(exchange, placed.late, placed.windows, placed.unplaced)

    def run(
        self, sides: Sequence[Sequence[pa.Table]], state: Mapping[str, View], batch_time: BatchTime
    ) -> Outcome:
        """Combine batch and state, fire what is due, keep the rest."""
        floors = {ROWS: self._extent.first_open(batch_time.after, self.keep)}
        floors |= self._timers.floor(batch_time.clock)
        outcome = Outcome((), {}, floors, held=self._extent.held(batch_time.after))
        batch = self._of.together(sides[0])
        come = self._extent.entered(batch, self._extent.first_open(batch_time.before, self.keep))
        outcome.results = self._results(come, state, batch_time, outcome)
        return outcome

    def _results(
        self, come: pa.Table, state: Mapping[str, View], batch_time: BatchTime, outcome: Outcome
    ) -> Iterator[pa.Table]:
        """The panes that fire, one range of keys at a time; the outcome is complete at the end."""
        asked = self._asked(state[TIMERS], batch_time.clock)
        kept: list[pa.Table] = []
        timers: list[pa.Table] = []
        flow: list[pa.Table] = []
        for view, mine in state[ROWS].in_pieces(come, PIECE_BYTES):
            groups = self._groups(view, mine, within(asked, view), batch_time)
            decided = self._decided(groups, batch_time)
            shown, flowing = self._rows.left(groups, decided)
            yield from shown
            flow += flowing
            after = self._state.after_firing(
                groups, decided.fires, decided.labels, batch_time.clock
            )
            kept.append(after.filter(pa.array(decided.stays)))
            timers.append(self._waiting(groups, decided))
        outcome.flow = flow
        outcome.deltas = {
            ROWS: combine(pa.concat_tables(kept), self._state.stored),
            TIMERS: combine(pa.concat_tables(timers), self._timers.spec),
        }
        outcome.wake = self._timers.wake(outcome.deltas[TIMERS], state[TIMERS], batch_time.clock)

    def _asked(self, timers: View, clock: int) -> pa.Table:
        """The groups whose timer is due."""
        due = self._timers.asked(timers, clock)
        names = due.column_names
        return due.rename_columns([ORDER if name == WINDOW else name for name in names])

    def _groups(
        self, view: View, come: pa.Table, asked: pa.Table, batch_time: BatchTime
    ) -> pa.Table:
        """Every group that may fire or change: stored and new rows combined."""
        names = [ORDER, HASH, *self._of.keys]
        ranges = self._leaving(batch_time)
        scanned = [table for low, high in ranges for table in view.scan(low, high)]
        bare = StateSpec(self._of.spec.keys, ())
        touched = pa.concat_tables(
            [table.select(names).cast(bare.visible) for table in (come, asked)]
        )
        orders = orders_of(touched)
        outside = np.ones(len(orders), np.bool_)
        for low, high in ranges:
            outside &= (orders < low) | (orders >= high)
        wanted = combine(touched.filter(pa.array(outside)), bare).select(names)
        found, values = view.lookup(wanted)
        looked_up = wanted.filter(pa.array(found))
        for place, name in enumerate(values.column_names):
            looked_up = looked_up.add_column(
                len(names) + place, name, values[name].filter(pa.array(found))
            )
        return self._state.together([*scanned, looked_up], self._state.come(come, batch_time.clock))

    def _leaving(self, batch_time: BatchTime) -> list[tuple[int, int]]:
        """Windows that end now, and kept ones that are dropped now, as ranges of numbers."""
        first_open = self._extent.first_open
        ranges = [(first_open(batch_time.before), first_open(batch_time.after))]
        if self.keep and self.trigger.late not in (None, Each()):
            low = first_open(batch_time.before, self.keep)
            ranges.append((low, min(first_open(batch_time.after, self.keep), ranges[0][0])))
        return [(low, high) for low, high in ranges if low < high]

    def _decided(self, groups: pa.Table, batch_time: BatchTime) -> Decided:
        """Which groups fire, as which pane; which stay, and when they fire by the clock."""
        first_open, clock = self._extent.first_open, batch_time.clock
        windows, arrived = orders_of(groups), numbers(groups, ARRIVED)
        left = windows < first_open(batch_time.before)
        ended = windows < first_open(batch_time.after)
        forgotten = windows < first_open(batch_time.after, self.keep)
        at = np.where(left, self._at(self._late, groups), self._at(self._early, groups))
        early = ~ended & (at <= clock)
        late = left & (arrived > 0) & ((at <= clock) | forgotten)
        on_time = ended & ~left
        labels = np.where(left, LATE, np.where(ended, ON_TIME, EARLY))
        return Decided(early | late | on_time, labels, ~forgotten, at)

    def _at(self, ready: Ready, groups: pa.Table) -> Ints:
        answers = pa.table(self._of.answers(groups)) if ready.conditional else None
        return ready.at(Groups(numbers(groups, ARRIVED), numbers(groups, SINCE), answers))

    def _waiting(self, groups: pa.Table, decided: Decided) -> pa.Table:
        """A timer for each group that will fire by the clock without new rows."""
        waits = decided.waits
        those = groups.take(pa.array(waits))
        return self._timers.waiting(those.append_column(WINDOW, those[ORDER]), decided.at[waits])


def within(rows: pa.Table, view: View) -> pa.Table:
    """The rows whose keys are in the buckets of a view."""
    at = buckets_of(hashes_of(rows), view.of)
    mine = (at >= view.buckets[0]) & (at < view.buckets[1])
    return rows if mine.all() else rows.filter(pa.array(mine))
