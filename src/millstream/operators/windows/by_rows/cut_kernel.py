"""Consecutive windows that rows end, per key in order of origin.

A cutter defines which rows end a window (`punctuated_kernel.py`, `delta_kernel.py`). It numbers
the windows of each key: the one that was open before the batch is number 0. Windows below the
number that is open after the batch have closed. If none of a key's windows closed, the batch is
added without reading state; otherwise the open window is read from state and emitted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa

from millstream.event_time.batch_time import END_OF_TIME, MIN_TIME
from millstream.operators.kernel import Outcome, Prepared
from millstream.operators.windows.lifted import LAST, Lifted, require_no_retraction
from millstream.operators.windows.open_times import NO_TIME, TIMES, OpenTimes
from millstream.state.arrays.numpy_columns import int_values, plain, validity
from millstream.state.combine import combine, conform, reduce_groups
from millstream.state.row_columns import ORIGIN
from millstream.state.runs.lookup import meeting
from millstream.state.spec import GONE, HASH, ORDER, StateSpec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from millstream.event_time.batch_time import BatchTime
    from millstream.operators.aggregates.functions import Aggregate
    from millstream.state.runs.view import View
    from millstream.state.spec import StateColumn

    Ints = NDArray[np.int64]
    Mask = NDArray[np.bool_]


class RowRule(Protocol):
    """A rule by which rows make windows."""

    @property
    def name(self) -> str:
        """Its name in the API."""

    @property
    def remembered(self) -> tuple[StateColumn, ...]:
        """What it stores of an open window, in addition to the aggregates."""

    @property
    def carried(self) -> dict[str, pa.DataType]:
        """Columns it needs of each row after the shuffle, in addition to the stored ones."""

    def carry(self, rows: pa.Table) -> tuple[dict[str, pa.Array], pa.Table | None, int]:
        """Its columns of each row, the rows to broadcast, the number of rows in no window."""


def prepared(rule: RowRule, lifted: Lifted, rows: pa.Table) -> Prepared:
    """Each row lifted, with the columns of the rule; no row is late."""
    require_no_retraction(rows, rule.name)
    columns, broadcast, outside = rule.carry(rows)
    made = lifted.lift(rows) | {name: rows[name] for name in ORIGIN} | columns
    return Prepared(pa.table(made), np.zeros(0, np.int64), unplaced=outside, broadcast=broadcast)


def columns_beside(rule: RowRule) -> dict[str, pa.DataType]:
    """The columns of rows in addition to hash, keys, parts and origin."""
    return {column.name: column.type for column in rule.remembered} | rule.carried


OPEN = "open"


@dataclass(frozen=True, slots=True)
class Keyed:
    """Rows sorted by key: the open window of the state, then the batch in order of origin.

    `kept` marks rows of the state, at most one per key, which comes first; `starts` is where
    keys begin, `markers` are the broadcast rows.
    """

    rows: pa.Table
    kept: Mask
    starts: Ints
    markers: pa.Table | None

    @property
    def key_of(self) -> Ints:
        """The number of the key of each row."""
        sizes = np.diff(self.starts, append=self.rows.num_rows)
        return np.repeat(np.arange(len(self.starts)), sizes)


@dataclass(frozen=True, slots=True)
class Cut:
    """The number of the window of each row, and per key the number of the window left open.

    `outside` marks rows that belong to no window; `replaced` are columns of the state that
    the cutter sets.
    """

    numbers: Ints
    ends: Ints
    outside: Mask | None = None
    replaced: Mapping[str, pa.Array] | None = None


class Cutter(RowRule, Protocol):
    """A rule by which rows end windows."""

    def cut(self, keyed: Keyed) -> Cut:
        """Number the windows."""


class CutKernel:
    """Aggregates per key and window, for windows that rows end.

    Results are keys, `window_start`, `window_end` (the smallest and largest time inside,
    null without event time) and the aggregates. No row is ever late.

    State: one row per key with an open window, and the largest time inside by time.
    Emits: each window when a row closes it, or at the finish, in order of (hash of the
    keys, window), with the event time `window_end`.
    """

    def __init__(
        self,
        cutter: Cutter,
        keys: Sequence[str],
        aggregates: Mapping[str, Aggregate],
        input_schema: pa.Schema,
    ) -> None:
        self._cutter = cutter
        self._lifted = Lifted(keys, aggregates, input_schema, spanning=True)
        self._state = StateSpec(
            keys=pa.schema(self._lifted.key_fields),
            values=(*self._lifted.values, *cutter.remembered),
        )
        self._times = OpenTimes(self._lifted.key_fields)

    @property
    def tables(self) -> dict[str, StateSpec]:
        """The open windows by key, and the times that hold back the watermark."""
        return {OPEN: self._state, TIMES: self._times.spec}

    def output(self) -> pa.Schema:
        """Keys, `window_start`, `window_end`, the aggregates in the order given."""
        return self._lifted.output

    def due(self, watermark: int) -> int:
        """Time closes no window before the finish."""
        return END_OF_TIME if watermark == END_OF_TIME else MIN_TIME

    def prepare(self, rows: pa.Table, batch_time: BatchTime, side: int = 0) -> Prepared:
        """Lift each row; no row is late."""
        return prepared(self._cutter, self._lifted, rows)

    def run(
        self, sides: Sequence[Sequence[pa.Table]], state: Mapping[str, View], batch_time: BatchTime
    ) -> Outcome:
        """Close windows that rows end; at the finish, or if a row closes all keys, all windows."""
        markers = pa.concat_tables(sides[1]) if len(sides) > 1 and sides[1] else None
        marked = markers is not None and markers.num_rows > 0
        order = _generation(state[OPEN])
        batch = self._lifted.gathered(sides[0], columns_beside(self._cutter), order)
        if batch_time.after == END_OF_TIME:
            results = self._all_closing(batch, state[OPEN], markers, finish=True)
            return Outcome(results, floors={OPEN: END_OF_TIME, TIMES: END_OF_TIME})
        if marked:
            return self._closed_by_markers(batch, state, markers, order, batch_time)
        return self._cut_by_key(batch, state, markers, batch_time)

    def _cut_by_key(
        self,
        batch: pa.Table,
        state: Mapping[str, View],
        markers: pa.Table | None,
        batch_time: BatchTime,
    ) -> Outcome:
        keyed = self._keyed(self._looked_up(batch, state[OPEN]), batch, markers)
        cut = self._cutter.cut(keyed)
        ended = cut.ends > 0
        windows, key_of, numbers = self._windows(keyed, cut, without_kept=~ended)
        closed = numbers < cut.ends[key_of]
        opened = np.flatnonzero(~closed)
        forgotten = np.flatnonzero(keyed.kept & ended[keyed.key_of])
        gained = self._gained(windows.take(pa.array(opened)), keyed.rows, forgotten)
        times = self._moved_times(keyed, ended, windows, key_of, opened)
        held = self._times.earliest(state[TIMES], times)
        return Outcome(
            self._lifted.spanned(windows.filter(pa.array(closed))),
            deltas={OPEN: gained, TIMES: times},
            floors={TIMES: min(held, batch_time.after)},
            held=held,
        )

    def _closed_by_markers(
        self, batch: pa.Table, state: Mapping[str, View], markers: pa.Table | None, order: int,
        batch_time: BatchTime,
    ) -> Outcome:  # fmt: skip
        """Emit all open windows; windows that begin after the last marker are a new generation.

        Generations are the order of this state, so the old one is dropped by the floor.
        """
        keyed = self._keyed(None, batch, markers)
        cut = self._cutter.cut(keyed)
        windows, key_of, numbers = self._windows(keyed, cut)
        opened = windows.filter(pa.array(numbers == cut.ends[key_of]))
        opened = opened.set_column(0, ORDER, pa.array(np.full(opened.num_rows, order + 1)))
        times = self._times.reset(state[TIMES], opened, _times_of(opened))
        held = self._times.earliest(state[TIMES], times)
        return Outcome(
            self._all_closing(batch, state[OPEN], markers, finish=False),
            deltas={OPEN: combine(opened, self._state), TIMES: times},
            floors={OPEN: order + 1, TIMES: min(held, batch_time.after)},
            held=held,
        )

    def _all_closing(
        self, batch: pa.Table, view: View, markers: pa.Table | None, *, finish: bool
    ) -> Iterator[pa.Table]:
        for piece, part in meeting(batch, view.scan(MIN_TIME, None)):
            keyed = self._keyed(piece, part, markers)
            cut = self._cutter.cut(keyed)
            windows, key_of, numbers = self._windows(keyed, cut)
            if not finish:
                windows = windows.filter(pa.array(numbers < cut.ends[key_of]))
            yield from self._lifted.spanned(windows)

    def _looked_up(self, batch: pa.Table, view: View) -> pa.Table:
        """The open windows of the state for the keys of the batch."""
        _, starts = self._lifted.by_key(batch)
        wanted = batch.select([ORDER, HASH, *self._lifted.keys]).take(pa.array(starts))
        found, values = view.lookup(wanted)
        for name in values.column_names:
            wanted = wanted.append_column(name, values[name])
        return wanted.filter(pa.array(found))

    def _keyed(self, kept: pa.Table | None, batch: pa.Table, markers: pa.Table | None) -> Keyed:
        """The rows of both by key, those of the state first."""
        before = 0 if kept is None else kept.num_rows
        plain_batch = conform(_only(batch, self._state), self._state)
        tables = [plain_batch] if kept is None else [conform(kept, self._state), plain_batch]
        rows = pa.concat_tables(tables)
        for name in (*ORIGIN, *self._cutter.carried):
            missing = pa.nulls(before, batch.schema.field(name).type)
            rows = rows.append_column(name, pa.chunked_array([missing, *batch[name].chunks]))
        places, starts = self._lifted.by_key(rows)
        return Keyed(rows.take(pa.array(places)), places < before, starts, markers)

    def _windows(
        self, keyed: Keyed, cut: Cut, *, without_kept: Mask | None = None
    ) -> tuple[pa.Table, Ints, Ints]:
        """The windows of these rows, combined, with the key and number of each.

        The state's open window is left out for the keys of `without_kept`.
        """
        inside = np.ones(keyed.rows.num_rows, np.bool_) if cut.outside is None else ~cut.outside
        if without_kept is not None:
            inside &= ~(keyed.kept & without_kept[keyed.key_of])
        members = np.flatnonzero(inside)
        taken = pa.array(members)
        key_of, numbers = keyed.key_of[members], cut.numbers[members]
        new = np.ones(len(members), np.bool_)
        new[1:] = (key_of[1:] != key_of[:-1]) | (numbers[1:] != numbers[:-1])
        starts = np.flatnonzero(new)
        columns = {n: plain(keyed.rows[n]).take(taken) for n in self._state.schema.names}
        for name, column in (cut.replaced or {}).items():
            columns[name] = column.take(taken)
        if len(starts) == 0:
            return self._state.schema.empty_table(), starts, starts
        return reduce_groups(columns, starts, self._state), key_of[starts], numbers[starts]

    def _gained(self, opened: pa.Table, rows: pa.Table, forgotten: Ints) -> pa.Table:
        gone = rows.select(self._state.schema.names).take(pa.array(forgotten))
        gone = gone.drop_columns([GONE])
        gone = gone.append_column(GONE, pa.array(np.ones(len(forgotten), np.bool_)))
        return combine(pa.concat_tables([conform(gone, self._state), opened]), self._state)

    def _moved_times(
        self, keyed: Keyed, ended: Mask, windows: pa.Table, key_of: Ints, opened: Ints
    ) -> pa.Table:
        """The largest time inside each key's open window, before and after the batch."""
        before = np.full(len(keyed.starts), NO_TIME)
        kept = np.flatnonzero(keyed.kept)
        kept_of = keyed.key_of[kept]
        before[kept_of] = _times_of(keyed.rows.take(pa.array(kept)))
        after = np.where(ended, NO_TIME, before)
        come, of = _times_of(windows.take(pa.array(opened))), key_of[opened]
        known = come != NO_TIME
        come, of = come[known], of[known]
        had = after[of]
        after[of] = np.where(had == NO_TIME, come, np.maximum(had, come))
        keys = keyed.rows.take(pa.array(keyed.starts))
        return self._times.moved(keys, before, after)


def _generation(view: View) -> int:
    """The generation of open windows: how often all of them have been closed."""
    return max(0, view.floor)


def _times_of(windows: pa.Table) -> Ints:
    """The largest times inside, or `NO_TIME`."""
    if windows.num_rows == 0:
        return np.zeros(0, np.int64)
    column = plain(windows[LAST])
    present = validity(column)
    times = int_values(column)
    return times if present is None else np.where(present, times, NO_TIME)


def _only(table: pa.Table, spec: StateSpec) -> pa.Table:
    return table.select([name for name in spec.schema.names if name in table.column_names])
