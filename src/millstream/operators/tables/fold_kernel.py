"""A user-defined function over the rows of each key, in order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from millstream.errors import InvalidInput
from millstream.event_time.batch_time import MIN_TIME
from millstream.operators.kernel import ROWS, Outcome, Prepared
from millstream.operators.tables.transitions import NONE, Groups, Transitions
from millstream.state.arrays.numpy_columns import int_values, plain
from millstream.state.combine import combine
from millstream.state.keys.hashing import hash_keys
from millstream.state.row_columns import ORIGIN
from millstream.state.spec import HASH, StateColumn, StateSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.event_time.batch_time import BatchTime
    from millstream.operators.tables.spec import Folded, Row
    from millstream.state.runs.view import View

TIME, AT = "_time", "_at"


class FoldKernel:
    """Calls the function once per row, in order of origin, with its previous result.

    State: the last result of the function per key.
    Emits: at once, per batch and changed key: the old state with −1, the new one with +1.
    """

    def __init__(self, spec: Folded, input_schema: pa.Schema) -> None:
        self.spec = spec
        self._columns = [name for name in input_schema.names if name[0] != "_"]
        self._timed = TIME in input_schema.names
        self._keys = pa.schema([pa.field(k, input_schema.field(k).type) for k in spec.by])
        self._gives = pa.schema([pa.field(f.name, f.type) for f in spec.gives.arrow()])
        at = [StateColumn(AT, pa.int64(), "last")] if self._timed else []
        own = (StateColumn(field.name, field.type, "last") for field in self._gives)
        self._state = StateSpec(self._keys, (*at, *own))

    @property
    def tables(self) -> dict[str, StateSpec]:
        """The last result per key."""
        return {ROWS: self._state}

    def output(self) -> pa.Schema:
        """Keys, then the columns of the function's state."""
        return pa.schema([*self._keys, *self._gives])

    def due(self, watermark: int) -> int:
        """Nothing is emitted when time advances."""
        return MIN_TIME

    def prepare(self, rows: pa.Table, batch_time: BatchTime, side: int = 0) -> Prepared:
        """Hash the keys; no row is late."""
        hashes = hash_keys([rows[key] for key in self.spec.by], rows.num_rows)
        names = [*self._columns, *ORIGIN, *([TIME] if self._timed else [])]
        taken = rows.select(names).append_column(HASH, pa.array(hashes))
        return Prepared(taken, np.zeros(0, np.int64))

    def run(
        self, sides: Sequence[Sequence[pa.Table]], state: Mapping[str, View], batch_time: BatchTime
    ) -> Outcome:
        """Fold the rows of every key into its state; `held` is the end of time."""
        tables = [table for table in sides[0] if table.num_rows]
        if not tables:
            return Outcome(())
        rows = pa.concat_tables(tables).combine_chunks()
        rows = rows.take(pa.array(np.lexsort([int_values(plain(rows[n])) for n in ORIGIN[::-1]])))
        groups = Groups.of(rows, self.spec.by)
        owners, known = groups.known(state[ROWS])
        folded = self._folded(rows, groups.of_row, owners, known)
        after = groups.wanted
        for name in folded.column_names:
            after = after.append_column(name, folded[name])
        if self._timed:
            after = after.append_column(AT, self._times(rows, groups.of_row, owners, known))
        delta = combine(after, self._state)
        return Outcome(self._leaving(after, known, owners), {ROWS: delta})

    def _folded(
        self, rows: pa.Table, of_row: np.ndarray, owners: np.ndarray, known: pa.Table
    ) -> pa.Table:
        states: dict[int, Row] = dict(
            zip(owners.tolist(), known.select(self._gives.names).to_pylist(), strict=True)
        )
        for group, row in zip(of_row.tolist(), rows.select(self._columns).to_pylist(), strict=True):
            had = states.get(group)
            states[group] = self._stepped(dict(self.spec.start) if had is None else had, row)
        ordered = [states[group] for group in range(len(states))]
        try:
            return pa.Table.from_pylist(ordered, schema=self._gives)
        except (pa.ArrowInvalid, pa.ArrowTypeError, ValueError, OverflowError) as error:
            raise InvalidInput(
                "fold needs a state of the types that start= shows or gives= declares",
                got=str(error),
                do="give other values, or declare other types",
            ) from error

    def _stepped(self, had: Row, row: Row) -> Row:
        given: Any = self.spec.step(dict(had), row)
        if not isinstance(given, Mapping) or not set(given) <= set(self._gives.names):
            raise InvalidInput(
                f"the step of fold needs to return the state: {', '.join(self._gives.names)}",
                got=repr(given),
                do="return a dict with those columns",
            )
        return dict(given)

    def _times(
        self, rows: pa.Table, of_row: np.ndarray, owners: np.ndarray, known: pa.Table
    ) -> pa.Array:
        """The largest time of each key's rows."""
        times = np.full(int(of_row.max()) + 1, MIN_TIME)
        np.maximum.at(times, of_row, int_values(plain(rows[TIME])))
        np.maximum.at(times, owners, int_values(plain(known[AT])))
        return pa.array(times)

    def _leaving(self, after: pa.Table, known: pa.Table, owners: np.ndarray) -> Any:
        names, count = self.output().names, after.num_rows
        columns = [*names, *([AT] if self._timed else [])]
        rows = pa.concat_tables([t.select(columns).cast(after.select(columns).schema)
                                 for t in (after, known)])  # fmt: skip
        times = rows[AT] if self._timed else pa.nulls(rows.num_rows, pa.int64())
        rows = rows.select(names).append_column(TIME, times)
        old = np.full(count, NONE)
        old[owners] = count + np.arange(len(owners))
        changes = Transitions(rows, old, np.arange(count), np.arange(count))
        return changes.that_matter(names).results(names, [TIME])
