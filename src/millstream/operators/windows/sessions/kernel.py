"""Session windows over Arrow: pieces of a batch are merged with the sessions of their keys.

Before the shuffle, rows of a key that follow each other within the gap become one piece.
After it, pieces are chained with the stored sessions of their keys, and sessions that the
watermark has passed are emitted. Timers find the keys to check: each stored session has one,
set for the watermark that would close it. If the session has grown when its timer is due, the
timer is set again, so a session that grows with every batch is checked once per gap. A second
table holds timers of the same kind for the batch clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.event_time.batch_time import END_OF_TIME, MIN_TIME
from millstream.operators.kernel import Late, Outcome, Prepared
from millstream.operators.windows.sessions.layout import (
    CLOCKS,
    DUE,
    POINTS,
    RINGS,
    SESSIONS,
    TIMERS,
    Layout,
)
from millstream.operators.windows.sessions.merging import Chaining, Meeting, valid_numbers
from millstream.operators.windows.sessions.panes import Once, Panes
from millstream.operators.windows.sessions.pieces import late_rows, later, pieces
from millstream.operators.windows.sessions.points import Points
from millstream.operators.windows.trigger import AllOf, AnyOf, Every, Trigger
from millstream.state.arrays.numpy_columns import int_values, plain
from millstream.state.combine import combine
from millstream.state.sorting import orders_of
from millstream.state.spec import GONE, ORDER

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from millstream.event_time.batch_time import BatchTime
    from millstream.operators.aggregates.spec import Aggregate
    from millstream.operators.windows.sessions.merging import Met
    from millstream.operators.windows.sessions.panes import Settled
    from millstream.operators.windows.sessions.spec import Session
    from millstream.operators.windows.trigger import Firing
    from millstream.state.runs.view import View
    from millstream.state.spec import StateSpec

    Ints = NDArray[np.int64]
    Mask = NDArray[np.bool_]

CHUNK_BYTES = 64 << 20


class SessionKernel:
    """Aggregates per key and session.

    Rows of a key at most `gap` from each other are one session, `[first, last + gap)`. It
    closes when the watermark is beyond `last + gap`, and is kept until the watermark has
    reached `last + gap + keep`. A row is late if, with its batch added, it would be in a new
    session that is no longer kept at the watermark before the batch.

    State: one row per session that is open or kept, and a timer for each.
    Emits: each session once, when it closes, with the event time `window_end` - 1 µs. With
    a trigger or `keep`: its panes. A session that was shown and is absorbed by another one is
    retracted in the same batch.
    """

    def __init__(
        self,
        spec: Session,
        keys: Sequence[str],
        aggregates: Mapping[str, Aggregate],
        input_schema: pa.Schema,
        *,
        trigger: Trigger | None = None,
        keep: int = 0,
        panes: bool = False,
        retractable: bool = False,
    ) -> None:
        self.spec, self.keep = spec, keep
        if (keep or panes) and trigger is None:
            trigger = Trigger()
        self._layout = Layout(
            keys, aggregates, input_schema, trigger=trigger, retractable=retractable
        )
        self._meet = (Points if retractable else Chaining)(self._layout, spec.gap).meet
        self._settling = (
            Once(self._layout, spec.gap)
            if trigger is None
            else Panes(self._layout, spec.gap, trigger, keep)
        )
        self._by_clock = trigger is not None and any(
            _waits(firing) for firing in (trigger.early, trigger.late)
        )

    @property
    def tables(self) -> dict[str, StateSpec]:
        """The watermark timers, the sessions, and the clock timers."""
        tables = {TIMERS: self._layout.timer, SESSIONS: self._layout.session}
        if self._by_clock:
            tables[CLOCKS] = self._layout.timer
        if self._layout.retractable:
            tables[POINTS] = self._layout.point
        return tables

    def output(self) -> pa.Schema:
        """Keys, `window_start`, `window_end`, the aggregates, and the columns of panes, if any."""
        return self._layout.output

    def due(self, watermark: int) -> int:
        """The next watermark: timers set for this one or earlier are due."""
        return min(watermark, END_OF_TIME - 1) + 1

    def prepare(self, rows: pa.Table, batch_time: BatchTime, side: int = 0) -> Prepared:
        """Chain rows that follow each other; rows that may be late stay separate.

        Which of them are late depends on the sessions of their keys, known after the shuffle.
        """
        suspects = self._gone(int_values(plain(rows["_time"])), batch_time.before)
        reach = 0 if self._layout.retractable else self.spec.gap
        exchange = pieces(rows, suspects, self._layout, reach)
        return Prepared(exchange, np.zeros(0, np.int64))

    def run(
        self, sides: Sequence[Sequence[pa.Table]], state: Mapping[str, View], batch_time: BatchTime
    ) -> Outcome:
        """Chain the batch with the stored sessions of its keys, and emit what is due.

        `held` is 1 µs before the watermark: a session that ends at the watermark is open.
        """
        held = (
            batch_time.after
            if batch_time.after in (MIN_TIME, END_OF_TIME)
            else batch_time.after - 1
        )
        outcome = Outcome((), floors=self._floors(batch_time), held=held)
        outcome.results = self._results(sides[0], state, batch_time, outcome)
        return outcome

    def _results(
        self,
        batch: Sequence[pa.Table],
        state: Mapping[str, View],
        batch_time: BatchTime,
        outcome: Outcome,
    ) -> Iterator[pa.Table]:
        """The results, by chunks of keys; the outcome is complete at the end."""
        arrived = pa.concat_tables(batch) if batch else self._layout.no_pieces
        meeting = Meeting(arrived, self._due_keys(state, batch_time), self._layout)
        gained: dict[str, list[pa.Table]] = {table: [] for table in self.tables}
        late: list[Late] = []
        flow: list[pa.Table] = []
        for keys, part in meeting.chunks(state[SESSIONS], CHUNK_BYTES):
            met = self._meet(
                keys,
                part,
                state,
                lambda lasts: self._gone(lasts, batch_time.before),
                batch_time.clock,
            )
            if met.late is not None:
                late.append(Late(*late_rows(met.late, self.spec.gap)))
            settled = self._settling.settle(met, batch_time)
            yield from settled.results
            flow += settled.flow
            if batch_time.after != END_OF_TIME:
                self._remember(met, settled, batch_time, gained)
        outcome.late = late
        outcome.flow = None if self._layout.trigger is None else flow
        outcome.deltas = {
            table: combine(pa.concat_tables(gained[table]), spec)
            for table, spec in self.tables.items()
            if gained[table]
        }
        if self._by_clock:
            outcome.wake = self._next_ring(
                outcome.deltas.get(CLOCKS), state[CLOCKS], batch_time.clock
            )

    def _due_keys(self, state: Mapping[str, View], batch_time: BatchTime) -> list[pa.Table]:
        """The keys whose timers are due."""
        found = list(state[TIMERS].scan(MIN_TIME, _behind(batch_time.after)))
        if self._by_clock:
            found += state[CLOCKS].scan(MIN_TIME, _behind(batch_time.clock))
        return found

    def _remember(
        self, met: Met, settled: Settled, batch_time: BatchTime, gained: dict[str, list[pa.Table]]
    ) -> None:
        """Write the sessions that have changed, and set missing timers."""
        sessions, changed = settled.sessions, settled.changed.copy()
        timers = [(TIMERS, DUE, settled.due, settled.stays, batch_time.after)]
        if self._by_clock:
            rings = settled.stays & (settled.rings < END_OF_TIME)
            timers.append((CLOCKS, RINGS, settled.rings, rings, batch_time.clock))
        for table, column, needs, needed, now in timers:
            stands = valid_numbers(sessions, column, MIN_TIME)
            reset = needed & ((stands <= now) | (stands > needs))
            changed |= reset
            place = sessions.column_names.index(column)
            set_for = np.where(reset, needs, stands)
            known = pa.array(set_for, mask=set_for == MIN_TIME)
            sessions = sessions.set_column(place, column, known)
            gained[table].append(self._timers(met, np.flatnonzero(reset), needs))
        written = sessions.take(pa.array(np.flatnonzero(settled.stays & changed)))
        gained[SESSIONS] += [
            self._tombstones(met, settled),
            self._state_rows(met, written, gone=False),
        ]
        if met.points is not None:
            gained[POINTS].append(met.points.gained(met, settled.stays, self._layout))

    def _tombstones(self, met: Met, settled: Settled) -> pa.Table:
        """Tombstones for stored sessions that have left or whose start has moved."""
        gone = ~met.continued
        gone[met.continued] = ~settled.stays[met.into[met.continued]]
        known = met.known.take(pa.array(np.flatnonzero(gone)))
        return self._state_rows(met, known, gone=True)

    def _state_rows(self, met: Met, rows: pa.Table, *, gone: bool) -> pa.Table:
        keys = met.keys_of(rows)
        columns = {name: rows[name] for name in rows.column_names}
        columns |= {name: keys[name] for name in keys.column_names}
        columns[GONE] = pa.array(np.full(keys.num_rows, gone))
        schema = self._layout.session.schema
        return pa.table({name: columns[name] for name in schema.names})

    def _timers(self, met: Met, places: Ints, needs: Ints) -> pa.Table:
        owners = met.sessions[ORDER].take(pa.array(places))
        return met.keys.take(owners).set_column(0, ORDER, pa.array(needs[places]))

    def _next_ring(self, gained: pa.Table | None, view: View, clock: int) -> int:
        """The first later clock for which a timer is set."""
        known = view.next_order(clock + 1) if clock < END_OF_TIME else None
        set_now = int(orders_of(gained)[0]) if gained is not None and gained.num_rows else None
        return min(END_OF_TIME if ring is None else ring for ring in (known, set_now))

    def _gone(self, lasts: Ints, watermark: int) -> Mask:
        """Whether sessions with these last times are neither open nor kept at a watermark."""
        return later(lasts, self.spec.gap + max(self.keep, 1)) <= watermark

    def _floors(self, batch_time: BatchTime) -> dict[str, int]:
        if batch_time.after == END_OF_TIME:
            return dict.fromkeys(self.tables, END_OF_TIME)
        floors = {TIMERS: batch_time.after + 1}
        return floors | ({CLOCKS: batch_time.clock + 1} if self._by_clock else {})


def _behind(time: int) -> int | None:
    return None if time == END_OF_TIME else time + 1


def _waits(firing: Firing | None) -> bool:
    """Whether a trigger may fire because the clock advances."""
    match firing:
        case Every():
            return True
        case AnyOf(firings) | AllOf(firings):
            return any(_waits(one) for one in firings)
        case _:
            return False
