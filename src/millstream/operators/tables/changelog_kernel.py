"""The changes of a table as events: a retracted and an added row become one event."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.event_time.batch_time import MIN_TIME
from millstream.operators.kernel import ROWS, Outcome, Prepared
from millstream.operators.tables.spec import CHANGE, CHANGED_AT
from millstream.operators.tables.transitions import NONE, SIGN, Groups, Transitions
from millstream.operators.waiting import FLOW
from millstream.state.arrays.numpy_columns import int_values, plain
from millstream.state.keys.hashing import hash_keys
from millstream.state.row_columns import ORIGIN, ORIGIN_FIELDS, TIME
from millstream.state.spec import HASH, StateSpec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from millstream.event_time.batch_time import BatchTime
    from millstream.state.runs.view import View

_STAMP = pa.timestamp("us", "UTC")


class ChangelogKernel:
    """Each change of a table as one event.

    State: none.
    Emits: at once, the new row as an `insert` or `update`, the old one as a `delete`, with its
    time (`changed_at`) if the table has an event time; nothing if the rows are equal.
    """

    def __init__(self, keys: Sequence[str], input_schema: pa.Schema) -> None:
        self._keys = tuple(keys)
        self._fields = [pa.field(f.name, f.type) for f in input_schema if f.name[0] != "_"]
        self._columns = [field.name for field in self._fields]
        self._timed = TIME in input_schema.names
        self._engine = [*ORIGIN, SIGN, *([TIME] if self._timed else [])]
        self._state = StateSpec(pa.schema([input_schema.field(key) for key in keys]), ())

    @property
    def tables(self) -> dict[str, StateSpec]:
        """A table that stays empty."""
        return {ROWS: self._state}

    def output(self) -> pa.Schema:
        """The columns of the table, `change` and `changed_at`, and the origin of the change."""
        added = [pa.field(CHANGE, pa.string())]
        added += [pa.field(CHANGED_AT, _STAMP)] if self._timed else []
        return pa.schema([*self._fields, *added, *ORIGIN_FIELDS])

    def due(self, watermark: int) -> int:
        """Nothing is emitted when time advances."""
        return MIN_TIME

    def prepare(self, rows: pa.Table, batch_time: BatchTime, side: int = 0) -> Prepared:
        """Hash the keys; no row is late."""
        hashes = hash_keys([rows[key] for key in self._keys], rows.num_rows)
        taken = rows.select([*self._columns, *self._engine])
        return Prepared(taken.append_column(HASH, pa.array(hashes)), np.zeros(0, np.int64))

    def run(
        self, sides: Sequence[Sequence[pa.Table]], state: Mapping[str, View], batch_time: BatchTime
    ) -> Outcome:
        """Combine the rows that each change retracted and added."""
        tables = [table for table in sides[0] if table.num_rows]
        if not tables:
            return Outcome(())
        rows = pa.concat_tables(tables).combine_chunks()
        groups = Groups.of(_by_change(rows), [*self._keys, *ORIGIN])
        signs = int_values(plain(rows[SIGN]))
        old = np.full(groups.wanted.num_rows, NONE)
        new, cause = old.copy(), old.copy()
        places = np.arange(rows.num_rows)
        cause[groups.of_row] = places
        old[groups.of_row[signs < 0]] = places[signs < 0]
        new[groups.of_row[signs > 0]] = places[signs > 0]
        changes = Transitions(rows, old, new, cause).that_matter(self._columns)
        return Outcome(self._events(changes))

    def _events(self, changes: Transitions) -> Iterator[pa.Table]:
        words = np.where(changes.old == NONE, "insert",
                         np.where(changes.new == NONE, "delete", "update"))  # fmt: skip
        shown = np.where(changes.new == NONE, changes.old, changes.new)
        events = Transitions(changes.rows, np.full(len(shown), NONE), shown, changes.cause)
        first = 0
        for piece in events.results(self._columns, [*ORIGIN, *([TIME] if self._timed else [])]):
            part = words[first : first + piece.num_rows]
            first += piece.num_rows
            yield self._with_words(piece, part)

    def _with_words(self, piece: pa.Table, words: np.ndarray) -> pa.Table:
        piece = piece.append_column(CHANGE, pa.array(words, pa.string()))
        if not self._timed:
            return piece.append_column(TIME, pa.nulls(piece.num_rows, pa.int64()))
        return piece.append_column(CHANGED_AT, piece[TIME].cast(_STAMP))


def _by_change(rows: pa.Table) -> pa.Table:
    """Rows with the origin of their change.

    A record is a change; all results of a step for a key in one batch are one change.
    """
    made = int_values(plain(rows["_source"])) == FLOW
    for name in ORIGIN[1:] if made.any() else ():
        place, kind = rows.column_names.index(name), rows.field(name).type
        values = np.where(made, 0, int_values(plain(rows[name])))
        rows = rows.set_column(place, name, pa.array(values).cast(kind))
    return rows
