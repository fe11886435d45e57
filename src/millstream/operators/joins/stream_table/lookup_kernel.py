"""The join of a stream with the current rows of a table over Arrow: no event waits."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.event_time.batch_time import MIN_TIME
from millstream.operators.joins.matching import grouped
from millstream.operators.joins.sides import Side, present, shared_types
from millstream.operators.joins.stream_table.as_of_kernel import EVENTS, EVERYWHERE, TABLE
from millstream.operators.joins.stream_table.enriched import NOWHERE, Enriched
from millstream.operators.kernel import Outcome, Prepared
from millstream.state.arrays.numpy_columns import int_values, plain
from millstream.state.combine import combine
from millstream.state.keys.equality import canonical
from millstream.state.keys.hashing import hash_keys
from millstream.state.row_columns import ORIGIN, SIGN, TIME
from millstream.state.sorting import hashes_of
from millstream.state.spec import GONE, HASH, ORDER, StateColumn, StateSpec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from millstream.event_time.batch_time import BatchTime
    from millstream.operators.joins.stream_table.spec import Lookup
    from millstream.state.runs.view import View

    Ints = NDArray[np.int64]

CURRENT = "current"


class LookupKernel:
    """Each event with the row its key has in the table when the event is processed.

    A batch applies the table's changes before its events: rows added and retracted, in order of
    origin. Which row an event matches depends on when its batch ran. Null keys match nothing; no
    event is late. The table may be replicated, like that of `as_of`.

    State: one row per key of the table.
    Emits: each event at once, with its time and origin.
    """

    shared = (CURRENT,)

    def __init__(self, spec: Lookup, schemas: Sequence[pa.Schema]) -> None:
        self.spec, self._replicated = spec, spec.replicated(0)
        stream, table = schemas
        types = shared_types(stream, table, spec.on, step="lookup")
        self._timed = TIME in stream.names
        self._events = Side(stream, [left for left, _ in spec.on], types, step="lookup")
        self._keys = tuple(right for _, right in spec.on)
        self._types = types
        own = [f for f in table if f.name[:1] != "_"]
        self._values = [f.name for f in own if f.name not in self._keys]
        self._spec = StateSpec(
            keys=pa.schema([pa.field(n, kind) for n, kind in zip(self._keys, types, strict=True)]),
            values=tuple(
                StateColumn(f.name, f.type, "last") for f in own if f.name in self._values
            ),
        )
        columns = {f.name: f.type for f in own}
        self._enriched = Enriched(
            self._events.columns, columns, spec.on, suffix=spec.suffix, step="lookup"
        )

    @property
    def tables(self) -> dict[str, StateSpec]:
        """The table's rows by key."""
        return {CURRENT: self._spec}

    def planned(self, sizes: Mapping[str, int]) -> LookupKernel:
        """The kernel for one batch: a small table is replicated, unless the user chose a plan."""
        made = copy(self)
        made._replicated = self.spec.replicated(sizes[CURRENT])
        return made

    def output(self) -> pa.Schema:
        """The columns of the stream, then those of the table; the origin of the event."""
        return self._enriched.schema

    def due(self, watermark: int) -> int:
        """Nothing is emitted when time advances."""
        return MIN_TIME

    def prepare(self, rows: pa.Table, batch_time: BatchTime, side: int = 0) -> Prepared:
        """Hash the keys of events and of changes."""
        nothing = np.zeros(0, np.int64)
        if side == TABLE:
            changes = self._changed(rows)
            return Prepared(changes, nothing, broadcast=changes if self._replicated else None)
        self._events.require(rows, timed=False)
        timed = TIME in rows.column_names
        return Prepared(self._events.exchanged(rows, timed=timed, spread=self._replicated), nothing)

    def run(
        self, sides: Sequence[Sequence[pa.Table]], state: Mapping[str, View], batch_time: BatchTime
    ) -> Outcome:
        """Apply the changes, then join each event with its row.

        `held` is the end of time: every event is emitted in its own batch.
        """
        changes = self._in_order(sides[TABLE])
        delta = combine(changes, self._spec)
        events = self._events.taken(sides[EVENTS])
        everyones = self._in_order(sides[EVERYWHERE]) if len(sides) > EVERYWHERE else changes
        return Outcome(self._results(events, everyones, state[CURRENT]), {CURRENT: delta})

    def _changed(self, rows: pa.Table) -> pa.Table:
        """Changes for the shuffle: all columns, a hash, whether the key is deleted."""
        count = rows.num_rows
        keys = [
            canonical(plain(rows[name]).cast(kind))
            for name, kind in zip(self._keys, self._types, strict=True)
        ]
        gone = np.zeros(count, np.bool_)
        if SIGN in rows.column_names:
            gone = int_values(plain(rows[SIGN])) < 0
        return pa.table(
            {
                ORDER: pa.array(np.zeros(count, np.int64)),
                HASH: pa.array(hash_keys(keys, count)),
                **dict(zip(self._keys, keys, strict=True)),
                **{name: rows[name] for name in self._values},
                GONE: pa.array(gone),
                **{name: rows[name] for name in ORIGIN},
            }
        )

    def _in_order(self, tables: Sequence[pa.Table]) -> pa.Table:
        """The changes of a batch in order of origin; of one origin, the retracted row first."""
        names = self._spec.schema.names
        tables = [table for table in tables if table.num_rows]
        if not tables:
            return self._spec.schema.empty_table()
        rows = pa.concat_tables(tables).combine_chunks()
        origin = [int_values(plain(rows[name])) for name in reversed(ORIGIN)]
        given = ~plain(rows[GONE]).to_numpy(zero_copy_only=False)
        order = np.lexsort((given, *origin))
        return rows.select(names).take(pa.array(order)).cast(self._spec.schema)

    def _results(self, events: pa.Table, changes: pa.Table, view: View) -> Iterator[pa.Table]:
        if events.num_rows == 0:
            return
        keys = self._events.shared_keys(events)
        groups, (asked, changed) = grouped(
            [self._events.key_hashes(events), hashes_of(changes)],
            [keys, [plain(changes[name]) for name in self._keys]],
        )
        wanted = groups.table(np.arange(len(groups.hashes)), self._keys)
        zeros = pa.array(np.zeros(wanted.num_rows, np.int64))
        found, values = view.lookup(wanted.add_column(0, ORDER, zeros))
        rows = pa.concat_tables([_under(wanted, values), changes.select(self._row)])
        given = ~plain(changes[GONE]).to_numpy(zero_copy_only=False)
        at = np.where(found, np.arange(len(found)), NOWHERE)
        at[changed] = np.where(given, len(found) + np.arange(len(changed)), NOWHERE)
        place = np.where(present(keys, len(asked)), at[asked], NOWHERE)
        yield from self._enriched.results(
            events, rows, place, timed=self._timed, every=self.spec.how == "left"
        )

    @property
    def _row(self) -> list[str]:
        return [*self._keys, *self._values]


def _under(keys: pa.Table, values: pa.Table) -> pa.Table:
    columns = {name: keys[name] for name in keys.column_names if name != HASH}
    return pa.table({**columns, **{name: values[name] for name in values.column_names}})
