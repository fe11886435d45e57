"""The current row per key of a table that is replicated from a database's log."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.event_time.batch_time import MIN_TIME
from millstream.operators.kernel import ROWS, Outcome, Prepared
from millstream.operators.tables.current_kernel import (
    ARRIVAL,
    PLACE,
    POSITION,
    TIME,
    CurrentKernel,
    Met,
    filled,
    numbers,
    winners,
)
from millstream.operators.tables.debezium import TOMBSTONE, TRUNCATED, UNAVAILABLE
from millstream.operators.tables.transitions import SIGN, Groups
from millstream.state.combine import combine
from millstream.state.keys.hashing import hash_range
from millstream.state.spec import HASH, ORDER, StateColumn, StateSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from millstream.event_time.batch_time import BatchTime
    from millstream.state.runs.view import View

    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]
    Place = tuple[int, ...]

SEEN_TIME, SEEN_POSITION = "_seen_time", "_seen_position"
CLEARED, BUCKET = "cleared", "_bucket"


class DatabaseKernel(CurrentKernel):
    """As `CurrentKernel` by time, with the additional events of a database's log.

    An unchanged value that is missing in the log is taken from the previous row. A tombstone
    after a delete has no effect; one after a row means that compaction has removed the delete,
    which is applied at the row's position. A truncation deletes every row that is earlier in
    time, also rows that are read later.

    State: in addition to the rows, per key the time and position of the last change read; the
    last truncation.
    """

    more: ClassVar[Mapping[str, pa.DataType]] = {SEEN_TIME: pa.int64(), SEEN_POSITION: pa.int64()}
    _cleared = StateSpec(
        pa.schema([(BUCKET, pa.int64())]),
        tuple(StateColumn(name, pa.int64(), "last") for name in PLACE),
    )

    @property
    def tables(self) -> dict[str, StateSpec]:
        """The rows, the keys that were deleted, and the last truncation."""
        return {**super().tables, CLEARED: self._cleared}

    def prepare(self, rows: pa.Table, batch_time: BatchTime, side: int = 0) -> Prepared:
        """Hash the keys; a truncation is for every key. No row is late."""
        rows = self.exchanged(rows)
        clears = numbers(rows[SIGN]) == TRUNCATED
        broadcast = rows.filter(pa.array(clears)).select(PLACE)
        kept = rows.filter(pa.array(~clears))
        return Prepared(kept, np.zeros(0, np.int64), broadcast=broadcast)

    def run(
        self, sides: Sequence[Sequence[pa.Table]], state: Mapping[str, View], batch_time: BatchTime
    ) -> Outcome:
        """Apply the changes; `held` is the end of time: changes are emitted at once."""
        rows = pa.concat_tables([self.exchange.empty_table(), *sides[0]]).combine_chunks()
        known = _largest(state[CLEARED].scan(MIN_TIME, None))
        come = _largest(sides[1]) if len(sides) > 1 else None
        cleared = known if come is None or (known is not None and known > come) else come
        rows = _deleted_before(rows, known)
        if cleared != known and cleared is not None:
            rows = pa.concat_tables([rows, self._cleared_by(cleared, rows, state[ROWS])])
        met = self._filled(self._without_tombstones(self.met(rows, state[ROWS])))
        leaving = self.left(self.transitions(met, self.each_step(met)))
        outcome = self.settled(leaving, self.kept(met, self.won(met)), state, batch_time)
        if cleared != known and cleared is not None:
            gained = self._as_state(cleared, state[CLEARED])
            outcome.deltas = {**outcome.deltas, CLEARED: gained}
        return outcome

    def won(self, met: Met) -> Ints:
        """The current row of each key, including rows of state, which store what was last read."""
        return np.sort(winners(met.ranks, met.owner))

    def _without_tombstones(self, met: Met) -> Met:
        """Convert tombstones to deletes at the position of the change they follow, and drop those
        that follow none; adds to every row what was last read of its key."""
        rows, count = met.rows, met.rows.num_rows
        order = np.lexsort((*(numbers(rows[name]) for name in ARRIVAL),
                            np.arange(count) < met.fresh, met.owner))  # fmt: skip
        owner, has_row = met.owner[order], (numbers(rows[SIGN]) != TOMBSTONE)[order]
        last = np.maximum.accumulate(np.where(has_row, np.arange(count), 0))
        follows = np.empty(count, np.bool_)
        follows[order] = has_row[last] & (owner[last] == owner)
        is_change = np.empty(count, np.bool_)
        is_change[order] = has_row
        final = np.ones(count, np.bool_)
        final[:-1] = owner[1:] != owner[:-1]
        changed: dict[str, Ints] = {}
        for name, of_state in ((TIME, SEEN_TIME), (POSITION, SEEN_POSITION)):
            own = np.where(np.arange(count) < met.fresh, numbers(rows[name]),
                           numbers(rows[of_state]))[order][last]  # fmt: skip
            learnt = np.empty(count, np.int64)
            learnt[order] = own
            changed[name] = np.where(is_change, numbers(rows[name]), learnt)
            changed[of_state] = own[final][met.owner]
        rows = _with(rows, changed).filter(pa.array(follows))
        fresh = int(np.count_nonzero(follows[: met.fresh]))
        return Met(rows, met.owner[follows], fresh, self.ranks(rows))

    def _filled(self, met: Met) -> Met:
        """Fill values that the log does not repeat from the previous row."""
        steps, rows = self.each_step(met), met.rows
        for name in self.columns:
            column = rows[name].combine_chunks()
            missing = _unavailable(column)[steps]
            if not missing.any():
                continue
            places = np.arange(len(steps))
            before = np.maximum.accumulate(np.where(missing, 0, places))
            known = ~missing[before] & (met.owner[steps[before]] == met.owner[steps])
            at = np.arange(rows.num_rows)
            at[steps] = np.where(missing & known, steps[before], steps)
            rows = rows.set_column(rows.column_names.index(name), rows.field(name),
                                   column.take(pa.array(at)))  # fmt: skip
        return replace(met, rows=rows)

    def _cleared_by(self, place: Place, rows: pa.Table, view: View) -> pa.Table:
        """A truncation as deletes: of every row of the state, and of every key of the batch."""
        names = [HASH, *self.spec.keys]
        parts = [rows.select(names)]
        parts += [part.select(names).cast(parts[0].schema) for part in view.scan(MIN_TIME, None)]
        keys = Groups.of(pa.concat_tables(parts).combine_chunks(), self.spec.keys).wanted
        there = {name: keys[name] for name in names}
        count = keys.num_rows
        there |= {name: pa.array(np.full(count, value)) for name, value
                  in zip(reversed(PLACE), place, strict=True)}  # fmt: skip
        there[SIGN] = pa.array(np.full(count, -1, np.int8))
        return filled(there, self.exchange, count)

    def _as_state(self, place: Place, view: View) -> pa.Table:
        """The truncation, once for every bucket."""
        buckets = np.arange(*view.buckets)
        hashes = [hash_range((bucket, bucket + 1), view.of)[0] for bucket in buckets.tolist()]
        columns = {
            ORDER: pa.array(np.zeros(len(buckets), np.int64)),
            HASH: pa.array(hashes, pa.uint64()),
            BUCKET: pa.array(buckets),
            **{name: pa.array(np.full(len(buckets), value))
               for name, value in zip(reversed(PLACE), place, strict=True)},
        }  # fmt: skip
        return combine(pa.table(columns), self._cleared)


def _largest(tables: Iterable[pa.Table]) -> Place | None:
    """The largest position in these tables, compared by time first."""
    names = list(reversed(PLACE))
    places = [
        row for table in tables for row in zip(*(numbers(table[n]) for n in names), strict=True)
    ]
    return max((tuple(int(part) for part in place) for place in places), default=None)


def _deleted_before(rows: pa.Table, place: Place | None) -> pa.Table:
    """Mark rows before a position as deleted."""
    if place is None or not rows.num_rows:
        return rows
    less, equal = np.zeros(rows.num_rows, np.bool_), np.ones(rows.num_rows, np.bool_)
    for name, value in zip(reversed(PLACE), place, strict=True):
        column = numbers(rows[name])
        less |= equal & (column < value)
        equal &= column == value
    signs = numbers(rows[SIGN])
    return _with(rows, {SIGN: np.where(less & (signs > 0), -1, signs)})


def _unavailable(column: pa.Array) -> Flags:
    """Where a value is the placeholder that Debezium writes for values it does not have."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        found = pc.equal(column, pa.scalar(UNAVAILABLE).cast(kind))
        return np.asarray(pc.fill_null(found, False).to_numpy(zero_copy_only=False))  # noqa: FBT003
    return np.zeros(len(column), np.bool_)


def _with(rows: pa.Table, columns: Mapping[str, Ints]) -> pa.Table:
    """The rows with new numbers in some columns; the smallest int64 means null."""
    for name, values in columns.items():
        field = rows.field(name)
        array = pa.array(values, mask=values == MIN_TIME).cast(field.type)
        rows = rows.set_column(rows.column_names.index(name), field, array)
    return rows
