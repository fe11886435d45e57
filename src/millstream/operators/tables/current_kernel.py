"""The current row per key over Arrow: takes sets and deletes, emits rows retracted and added."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa

from millstream.event_time.batch_time import MIN_TIME
from millstream.event_time.watermark import before
from millstream.operators.kernel import ROWS, Outcome, Prepared
from millstream.operators.tables.transitions import NONE, SIGN, Groups, Transitions
from millstream.state.arrays.numpy_columns import int_values, plain, validity
from millstream.state.combine import combine
from millstream.state.keys.hashing import hash_keys
from millstream.state.row_columns import ORIGIN_FIELDS, ORIGIN_TYPES
from millstream.state.spec import GONE, HASH, ORDER, StateColumn, StateSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from millstream.event_time.batch_time import BatchTime
    from millstream.operators.tables.spec import Current
    from millstream.state.runs.view import View

    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]

TIME, POSITION, ALIVE = "_time", "_position", "_alive"
ARRIVAL = ("_sub", "_offset", "_partition", "_source")  # the most important last
PLACE = ("_sub", "_source", "_partition", "_offset", POSITION, TIME)
DELETED = "deleted"
DAY = 86_400_000_000


@dataclass(frozen=True)
class Met:
    """Rows of a batch (the first `fresh`) and those of the state, by key (`owner`).

    The row of a key with the largest `ranks` is the current one.
    """

    rows: pa.Table
    owner: Ints
    fresh: int
    ranks: Ints


class CurrentKernel:
    """The current row of each key.

    By time, it is the one with the largest (time, source position, offset), in whatever order
    changes arrive; repeated and older changes have no effect. By origin, it is the last one.
    Null is a key like others.

    State: one row per key; for a deleted one its key and position, until the watermark is a day
    beyond, so that an older change that is read again does not restore it.
    Emits: at once, the old row with −1 and the new one with +1, if they differ: one change per
    batch and key, or (`each`) every one, in order of origin.
    """

    more: ClassVar[Mapping[str, pa.DataType]] = {}  # additional columns of the state

    def __init__(self, spec: Current, input_schema: pa.Schema) -> None:
        self.spec = spec
        self._fields = [pa.field(f.name, f.type) for f in input_schema if f.name[0] != "_"]
        self.columns = [field.name for field in self._fields]
        self.by_time = spec.order == "time"
        self._timed = TIME in input_schema.names
        stamps = {**ORIGIN_TYPES, **({TIME: pa.int64()} if self._timed else {})}
        self._stamps = list(stamps)
        place = {TIME: pa.int64(), POSITION: pa.int64(), **ORIGIN_TYPES} if self.by_time else {}
        place |= self.more
        extra = {SIGN: pa.int8(), POSITION: pa.int64(), **self.more} if self.by_time else {}
        self.exchange = pa.schema([*self._fields, *stamps.items(), *extra.items(),
                                   (HASH, pa.uint64())])  # fmt: skip
        keys = pa.schema([input_schema.field(key) for key in spec.keys])
        self._place = tuple(place)
        self._values = [name for name in self.columns if name not in spec.keys]
        kinds = {**place, **({ALIVE: pa.bool_()} if self.by_time else {})}
        kinds |= {name: input_schema.field(name).type for name in self._values}
        self.state = StateSpec(
            keys, tuple(StateColumn(name, kind, "last") for name, kind in kinds.items())
        )
        self._deleted = StateSpec(keys, ())

    @property
    def tables(self) -> dict[str, StateSpec]:
        """The rows by key; deleted keys by the time of their deletion."""
        return {ROWS: self.state} | ({DELETED: self._deleted} if self.by_time else {})

    def output(self) -> pa.Schema:
        """The columns of the input, with the origin of the change that set the row."""
        return pa.schema([*self._fields, *ORIGIN_FIELDS])

    def due(self, watermark: int) -> int:
        """Nothing is emitted when time advances."""
        return MIN_TIME

    def prepare(self, rows: pa.Table, batch_time: BatchTime, side: int = 0) -> Prepared:
        """Hash the keys, and keep only the current change of each key. No row is late."""
        rows = self.exchanged(rows)
        if not self.spec.each and rows.num_rows:
            owner = Groups.of(rows, self.spec.keys).of_row
            last = winners(self.ranks(rows), owner)
            rows = rows.take(pa.array(np.sort(last)))
        return Prepared(rows, np.zeros(0, np.int64))

    def exchanged(self, rows: pa.Table) -> pa.Table:
        """The rows as they are shuffled."""
        count = rows.num_rows
        there = {name: rows[name] for name in self.exchange.names if name in rows.column_names}
        there[HASH] = pa.array(hash_keys([rows[key] for key in self.spec.keys], count))
        there.setdefault(SIGN, pa.array(np.ones(count, np.int8)))
        return filled(there, self.exchange, count)

    def run(
        self, sides: Sequence[Sequence[pa.Table]], state: Mapping[str, View], batch_time: BatchTime
    ) -> Outcome:
        """Apply the changes; `held` is the end of time: changes are emitted at once."""
        rows = pa.concat_tables([self.exchange.empty_table(), *sides[0]]).combine_chunks()
        met = self.met(rows, state[ROWS])
        steps = self.each_step(met) if self.spec.each else self._last_step(met)
        leaving = self.left(self.transitions(met, steps))
        return self.settled(leaving, self.kept(met, self.won(met)), state, batch_time)

    def met(self, rows: pa.Table, view: View) -> Met:
        """The rows of a batch, with those of their keys in the state."""
        groups = Groups.of(rows, self.spec.keys)
        owners, known = groups.known(view)
        every = pa.concat_tables([rows, self._as_rows(known)])
        owner = np.concatenate([groups.of_row, owners])
        return Met(every, owner, rows.num_rows, self.ranks(every))

    def won(self, met: Met) -> Ints:
        """The current row of each key, if it is of this batch."""
        last = winners(met.ranks, met.owner)
        return np.sort(last[last < met.fresh])

    def left(self, changes: Transitions) -> Iterator[pa.Table]:
        """Changes as they are emitted."""
        return changes.that_matter(self.columns).results(self.columns, self._stamps)

    def settled(
        self,
        leaving: Iterable[pa.Table],
        delta: pa.Table,
        state: Mapping[str, View],
        batch_time: BatchTime,
    ) -> Outcome:
        """The outcome of a batch; adds deleted keys to the state and drops old ones."""
        if not self._timed:
            leaving = map(_without_time, leaving)
        if not self.by_time:
            return Outcome(leaving, {ROWS: delta})
        edge = before(batch_time.after, DAY)
        gone, old = ~_flags(delta[ALIVE]), numbers(delta[TIME]) < edge
        dead = delta.filter(pa.array(gone & ~old))
        tombstones = dead.select([HASH, *self.spec.keys]).add_column(0, ORDER, dead[TIME])
        forgotten = pa.concat_tables([self._forgotten(state, edge), _forget(delta, gone & old)])
        deltas = {ROWS: combine(forgotten, self.state), DELETED: combine(tombstones, self._deleted)}
        return Outcome(leaving, deltas, {DELETED: edge})

    def ranks(self, rows: pa.Table) -> Ints:
        """The ranks that decide which row is current; by origin, rows of the state have none."""
        names = PLACE if self.by_time else ARRIVAL
        order = np.lexsort([numbers(rows[name]) for name in names])
        ranks = np.empty(len(order), np.int64)
        ranks[order] = np.arange(len(order))
        return ranks

    def each_step(self, met: Met) -> Ints:
        """The row of the state, then every row that was current on arrival, in order of arrival."""
        count = met.rows.num_rows
        arrival = [numbers(met.rows[name]) for name in ARRIVAL]
        order = np.lexsort((*arrival, np.arange(count) < met.fresh, met.owner))
        reached = np.maximum.accumulate(met.owner[order] * (count + 1) + met.ranks[order] + 1)
        counts = np.ones(count, np.bool_)
        counts[1:] = reached[1:] > reached[:-1]
        return np.asarray(order[counts])

    def _last_step(self, met: Met) -> Ints:
        """The row of the state, then the final current row if it is of this batch."""
        steps = np.concatenate([np.arange(met.fresh, met.rows.num_rows), self.won(met)])
        return np.asarray(steps[np.lexsort((steps < met.fresh, met.owner[steps]))])

    def transitions(self, met: Met, steps: Ints) -> Transitions:
        """The changes from row to row, for rows sorted by key."""
        earlier = np.full(len(steps), NONE)
        follows = met.owner[steps[1:]] == met.owner[steps[:-1]]
        earlier[1:][follows] = steps[:-1][follows]
        alive = self._alive(met.rows)
        come = steps < met.fresh
        new, old = steps[come], earlier[come]
        old = np.where((old != NONE) & alive[old], old, NONE)
        return Transitions(met.rows, old, np.where(alive[new], new, NONE), new)

    def _alive(self, rows: pa.Table) -> Flags:
        if not self.by_time:
            return np.ones(rows.num_rows, np.bool_)
        return np.asarray(int_values(plain(rows[SIGN])) > 0)

    def _as_rows(self, known: pa.Table) -> pa.Table:
        """Rows of the state, with the columns of the batch."""
        there = {name: known[name] for name in known.column_names}
        if self.by_time:
            there[SIGN] = pa.array(np.where(_flags(known[ALIVE]), 1, -1).astype(np.int8))
        return filled(there, self.exchange, known.num_rows)

    def kept(self, met: Met, which: Ints) -> pa.Table:
        """Rows as they are stored: for deleted ones, only key and position."""
        taken = met.rows.take(pa.array(which))
        alive = self._alive(taken)
        columns = {ORDER: pa.array(np.zeros(len(which), np.int64))}
        columns |= {name: taken[name] for name in (HASH, *self.spec.keys, *self._place)}
        if self.by_time:
            columns[ALIVE] = pa.array(alive)
        still = pa.array(np.arange(len(which)), mask=~alive)
        columns |= {name: taken[name].take(still) for name in self._values}
        return combine(pa.table(columns), self.state)

    def _forgotten(self, state: Mapping[str, View], edge: int) -> pa.Table:
        """Tombstones for keys that were deleted long ago and not written since."""
        gone = pa.concat_tables(
            [self._deleted.visible.empty_table(), *state[DELETED].scan(MIN_TIME, edge)]
        ).combine_chunks()
        _, known = Groups.of(gone, self.spec.keys).known(state[ROWS])
        long_ago = ~_flags(known[ALIVE]) & (numbers(known[TIME]) < edge)
        dead = combine(known.filter(pa.array(long_ago)), self.state)
        return _forget(dead, np.ones(dead.num_rows, np.bool_))


def _forget(rows: pa.Table, which: Flags) -> pa.Table:
    """Rows of the state; the selected ones become tombstones."""
    place = rows.column_names.index(GONE)
    return rows.set_column(place, rows.field(GONE), pa.array(which))


def winners(ranks: Ints, owner: Ints) -> Ints:
    """The row with the largest rank of each group, in the order of groups."""
    order = np.lexsort((ranks, owner))
    sorted_owner = owner[order]
    last = np.ones(len(order), np.bool_)
    last[:-1] = sorted_owner[1:] != sorted_owner[:-1]
    return np.asarray(order[last])


def numbers(column: pa.ChunkedArray) -> Ints:
    """Integers; the smallest int64 for null."""
    array = plain(column)
    values, known = int_values(array), validity(array)
    return values if known is None else np.where(known, values, MIN_TIME)


def _flags(column: pa.ChunkedArray) -> Flags:
    return np.asarray(int_values(plain(column)) == 1)


def filled(
    there: Mapping[str, pa.Array | pa.ChunkedArray], schema: pa.Schema, count: int
) -> pa.Table:
    """These columns as a table of the schema; missing columns are null."""
    columns = [there[field.name].cast(field.type) if field.name in there
               else pa.nulls(count, field.type) for field in schema]  # fmt: skip
    return pa.Table.from_arrays(columns, schema=schema)


def _without_time(results: pa.Table) -> pa.Table:
    """Results without an event time, as their rows have none."""
    return results.append_column(TIME, pa.nulls(results.num_rows, pa.int64()))
