"""The join of two streams over Arrow: rows of a batch are joined with each other and with state.

Rows are stored by time cell, one table per side, written once and never changed. An incoming
row looks up its key in the cells within reach, so the cost depends on the rows that are
looked up. Each pair is found once, when its second row arrives; if both arrive in one batch,
they are joined in that batch.

Rows that may be emitted without a match are in one more table per side, ordered by the last
time at which a match may arrive; the first match removes them from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.errors import InvalidSpec
from millstream.event_time.batch_time import END_OF_TIME, MIN_TIME
from millstream.operators.joins.interval.pairs import Meeting, Reach
from millstream.operators.joins.matching import moved
from millstream.operators.joins.result_columns import LEFT, RIGHT, result_columns
from millstream.operators.joins.results import CHUNK_BYTES, Results
from millstream.operators.joins.sides import AT, ROW, Side, shared_types
from millstream.operators.kernel import Outcome, Prepared
from millstream.operators.waiting import TWIN
from millstream.state.arrays.numpy_columns import int_values, plain
from millstream.state.combine import combine, conform, without_tombstones
from millstream.state.row_columns import TIME
from millstream.state.runs.lookup import meeting
from millstream.state.sorting import orders_of
from millstream.state.spec import HASH, ORDER, StateSpec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from millstream.event_time.batch_time import BatchTime
    from millstream.operators.joins.interval.spec import Interval
    from millstream.state.runs.view import View

    Ints = NDArray[np.int64]
    Mask = NDArray[np.bool_]

SIDES = ("left", "right")
OPEN = ("left_open", "right_open")
_CELLS = 2


class IntervalKernel:
    """Pairs of a left and a right row with equal keys, `within` of each other in event time.

    A row is late when no row it could match is in state, and none can still arrive on time.
    Null keys match nothing. Each pair is emitted once, in the batch of its second row.

    State: rows of each side, until the other side's watermark is beyond all they could match;
    without `within`, never dropped. For outer joins: which rows have not been matched yet.
    Emits: pairs with the later of the two times in `event_time`; unmatched rows of an outer side
    with their own time, when the other side's watermark is beyond what they could match, or at
    once if they have no key.
    """

    def __init__(
        self,
        spec: Interval,
        schemas: Sequence[pa.Schema],
        times: Sequence[tuple[str, int] | None],
    ) -> None:
        self.spec = spec
        self._timed = all(time is not None for time in times)
        if spec.within is not None and not self._timed:
            raise InvalidSpec(
                "join with a `within` needs an event time on both sides",
                got="a stream without one",
                do="give read(…) a time=",
            )
        left, right = schemas
        names = [[f.name for f in schema if f.name[:1] != "_"] for schema in schemas]
        columns = result_columns(names[LEFT], names[RIGHT], spec.on, suffix=spec.suffix,
                                 timed=self._timed, step="join")  # fmt: skip
        types = shared_types(left, right, spec.on, step="join")
        self._sides = (
            Side(left, [a for a, _ in spec.on], types, step="join"),
            Side(right, [b for _, b in spec.on], types, step="join"),
        )
        self._results = Results(self._sides, columns, spec.on, timed=self._timed)
        self._reach = Reach(spec.within, _CELLS)

    @property
    def tables(self) -> dict[str, StateSpec]:
        """The unmatched rows of outer sides; the rows of each side."""
        waiting = {
            OPEN[side]: self._sides[side].open_spec
            for side in (LEFT, RIGHT)
            if self.spec.outer[side]
        }
        return waiting | {name: side.spec for name, side in zip(SIDES, self._sides, strict=True)}

    def output(self) -> pa.Schema:
        """The columns of the left, those of the right, the time and the origin of the pair."""
        return self._results.schema

    def due(self, watermark: int) -> int:
        """Rows of an outer side below the watermark are emitted; pairs do not depend on it."""
        return watermark if any(self.spec.outer) else MIN_TIME

    def dues(self, sides: Sequence[int]) -> dict[str, int]:
        """Rows of an outer side wait for the watermark of the other."""
        return {OPEN[side]: sides[1 - side] for side in (LEFT, RIGHT) if self.spec.outer[side]}

    def prepare(self, rows: pa.Table, batch_time: BatchTime, side: int = 0) -> Prepared:
        """Separate the late rows; the others go to the bucket of their keys."""
        mine = self._sides[side]
        mine.require(rows, timed=self._timed)
        late = np.zeros(0, np.int64)
        if self.spec.within is not None:
            gone = self._too_late(int_values(plain(rows[TIME])), side, batch_time)
            late = np.flatnonzero(gone)
            if len(late):
                rows = rows.take(pa.array(np.flatnonzero(~gone)))
        return Prepared(mine.exchanged(rows, timed=self._timed), late)

    def run(
        self, sides: Sequence[Sequence[pa.Table]], state: Mapping[str, View], batch_time: BatchTime
    ) -> Outcome:
        """Emit the pairs that this batch completes; drop rows that nothing can match any more."""
        outcome = Outcome((), floors=self._floors(batch_time))
        taken = [side.taken(tables) for side, tables in zip(self._sides, sides, strict=True)]
        views = [state[name] for name in SIDES]
        batch = Meeting(self._sides, self._results, self._reach, taken, views)
        outcome.results = self._leaving(batch, state, batch_time, outcome)
        return outcome

    def _too_late(self, times: Ints, side: int, batch_time: BatchTime) -> Mask:
        """Whether all a row could match is dropped, and none of it can still arrive on time."""
        lower, upper = self._reach.of[side]
        theirs, ours = batch_time.before_of(1 - side), batch_time.before_of(side)
        late = np.ones(len(times), np.bool_)
        if theirs < END_OF_TIME:
            late &= times < theirs - upper
        if ours < END_OF_TIME:
            late &= times < ours + lower - upper
        return late

    def _leaving(
        self, batch: Meeting, state: Mapping[str, View], batch_time: BatchTime, outcome: Outcome
    ) -> Iterator[pa.Table]:
        """All results; the outcome is complete at the end."""
        for side in (LEFT, RIGHT):
            if self.spec.outer[side]:
                yield from self._results.alone(side, self._shown(side, batch.lost[side]))
        yield from batch.pairs()
        for side in (RIGHT, LEFT):
            first = self._first_kept(side, batch_time)
            yield from batch.pairs_with_kept(side, state[SIDES[side]], first)
        deltas: dict[str, pa.Table] = {}
        for side in (LEFT, RIGHT):
            if self.spec.outer[side]:
                yield from self._unmatched(side, batch, state, batch_time, deltas, outcome)
            stays = self._staying(batch.come[side].times, side, batch_time)
            rows = batch.come[side].rows.filter(pa.array(stays))
            orders = self._reach.cells(batch.come[side].times[stays])
            deltas[SIDES[side]] = self._sides[side].kept(rows, orders)
        outcome.deltas = deltas

    def _unmatched(
        self,
        side: int,
        batch: Meeting,
        state: Mapping[str, View],
        batch_time: BatchTime,
        deltas: dict[str, pa.Table],
        outcome: Outcome,
    ) -> Iterator[pa.Table]:
        """Rows of an outer side that are emitted without a match; the others keep waiting."""
        come = batch.come[side]
        alone, stays = come.alone, self._staying(come.times, side, batch_time)
        leaving = come.rows.filter(pa.array(alone & ~stays))
        yield from self._results.alone(side, self._shown(side, leaving))
        found = pa.concat_tables([self._sides[side].open_spec.schema.empty_table(),
                                  *batch.matched[side]])  # fmt: skip
        found = combine(found, self._sides[side].open_spec)
        yield from self._expired(side, found, state, batch_time)
        waits = np.flatnonzero(alone & stays)
        upper = self._reach.of[side][1]
        waiting = come.rows.select([HASH, *ROW, TWIN, AT]).take(pa.array(waits))
        deadlines = pa.array(moved(come.times[waits], upper))
        waiting = conform(waiting.add_column(0, ORDER, deadlines), self._sides[side].open_spec)
        waiting = combine(pa.concat_tables([found, waiting]), self._sides[side].open_spec)
        passed = np.searchsorted(orders_of(waiting), batch_time.after_of(1 - side))
        deltas[OPEN[side]] = waiting.slice(int(passed))
        self._hold(side, come.times[waits], state[OPEN[side]], batch_time, outcome)

    def _expired(
        self, side: int, found: pa.Table, state: Mapping[str, View], batch_time: BatchTime
    ) -> Iterator[pa.Table]:
        """Unmatched rows of state that nothing can match any more."""
        spec = self._sides[side].open_spec
        after = batch_time.after_of(1 - side)
        due = state[OPEN[side]].scan(MIN_TIME, None if after == END_OF_TIME else after)
        for piece, matched in meeting(found, due):
            if piece is None:
                continue
            both = combine(pa.concat_tables([conform(piece, spec), matched]), spec)
            rows = without_tombstones(both)
            orders = self._reach.cells(int_values(plain(rows[AT])))
            wanted = rows.select([HASH, *ROW, TWIN]).add_column(0, ORDER, pa.array(orders))
            for _, kept in state[SIDES[side]].stored(wanted, max_bytes=CHUNK_BYTES):
                yield from self._results.alone(side, self._shown(side, kept))

    def _hold(
        self, side: int, times: Ints, waiting: View, batch_time: BatchTime, to: Outcome
    ) -> None:
        """The smallest time at which a row of an outer side may still be emitted."""
        upper, after = self._reach.of[side][1], batch_time.after_of(1 - side)
        deadline = None if after == END_OF_TIME else waiting.next_order(after)
        if deadline is not None:
            to.held = min(to.held, max(MIN_TIME, deadline - upper))
        if len(times):
            to.held = min(to.held, int(times.min()))

    def _shown(self, side: int, rows: pa.Table) -> pa.Table:
        return self._sides[side].shown(rows)

    def _staying(self, times: Ints, side: int, batch_time: BatchTime) -> Mask:
        """Which rows can still be matched."""
        if self.spec.within is None:
            return np.ones(len(times), np.bool_)
        after = batch_time.after_of(1 - side)
        if after == END_OF_TIME:
            return np.zeros(len(times), np.bool_)
        return np.asarray(times >= after - self._reach.of[side][1])

    def _first_kept(self, side: int, batch_time: BatchTime) -> int:
        """The time from which rows of a side were in state when the batch began."""
        if self.spec.within is None:
            return MIN_TIME
        before = batch_time.before_of(1 - side)
        return END_OF_TIME if before == END_OF_TIME else before - self._reach.of[side][1]

    def _floors(self, batch_time: BatchTime) -> dict[str, int]:
        if self.spec.within is None:
            return {}
        floors = {}
        for side in (LEFT, RIGHT):
            after = batch_time.after_of(1 - side)
            first = max(MIN_TIME, min(after - self._reach.of[side][1], END_OF_TIME))
            ended = after == END_OF_TIME
            floors[SIDES[side]] = END_OF_TIME if ended else self._reach.cell(first)
            if self.spec.outer[side]:
                floors[OPEN[side]] = after
        return floors
