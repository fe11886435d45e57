"""Aggregates of all rows of a key over Arrow, updated as rows are added and retracted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.event_time.batch_time import MIN_TIME
from millstream.operators.aggregates.aggregation import Aggregation
from millstream.operators.aggregates.parts import ROWS as ROW_COUNT
from millstream.operators.aggregates.parts import Part
from millstream.operators.kernel import ROWS, Outcome, Prepared
from millstream.operators.tables.transitions import NONE, Groups, Transitions
from millstream.state.arrays.numpy_columns import int_values, plain
from millstream.state.combine import combine
from millstream.state.keys.hashing import hash_keys
from millstream.state.row_columns import ORIGIN, TIME
from millstream.state.spec import GONE, StateColumn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from millstream.event_time.batch_time import BatchTime
    from millstream.operators.aggregates.spec import Aggregate
    from millstream.state.runs.view import View
    from millstream.state.spec import StateSpec

    Ints = NDArray[np.int64]


class TableAggregateKernel:
    """Aggregates per key over all its current rows.

    A retracted row is removed from its key's aggregates; a key without rows is deleted.

    State: one row of partial aggregates per key, as long as it has rows.
    Emits: at once, per batch and changed key: the old result with −1, the new one with +1; its
    time is the largest of the key's rows.
    """

    def __init__(
        self,
        keys: Sequence[str],
        aggregates: Mapping[str, Aggregate],
        input_schema: pa.Schema,
        *,
        retractable: bool = False,
        of: Sequence[str] = (),
    ) -> None:
        self._row_keys = tuple(of)
        self._timed = TIME in input_schema.names
        more = [_largest_time()] if self._timed else []
        self._of = Aggregation(keys, aggregates, input_schema, more=more, retractable=retractable)

    @property
    def tables(self) -> dict[str, StateSpec]:
        """The groups."""
        return {ROWS: self._of.spec}

    def output(self) -> pa.Schema:
        """Keys, then aggregates in the order given."""
        keys = [pa.field(field.name, field.type) for field in self._of.spec.keys]
        return pa.schema([*keys, *self._of.answer_fields()])

    def due(self, watermark: int) -> int:
        """Nothing is emitted when time advances."""
        return MIN_TIME

    def prepare(self, rows: pa.Table, batch_time: BatchTime, side: int = 0) -> Prepared:
        """Aggregate the rows of each key; no row is late.

        A row of a table is identified by its key: the change that retracts it has another origin.
        """
        if self._row_keys and rows.num_rows:
            rows = _known_by(rows, self._row_keys)
        exchange = self._of.added_up(rows, np.zeros(rows.num_rows, np.int64))
        return Prepared(exchange, np.zeros(0, np.int64))

    def run(
        self, sides: Sequence[Sequence[pa.Table]], state: Mapping[str, View], batch_time: BatchTime
    ) -> Outcome:
        """Add the batch to the state; `held` is the end of time."""
        come = self._of.together(sides[0])
        if not come.num_rows:
            return Outcome(())
        visible = self._of.spec.visible.names
        owners, known = Groups.of(come, self._of.keys).known(state[ROWS])
        known = known.select(visible).cast(self._of.spec.visible)
        after = combine(pa.concat_tables([known, come.select(visible)]), self._of.spec)
        names = self.output().names
        changes = self._transitions(after, known, owners)
        leaving = changes.that_matter(names).results(names, [TIME])
        return Outcome(leaving, {ROWS: self._kept(come, after)})

    def _transitions(self, after: pa.Table, known: pa.Table, owners: Ints) -> Transitions:
        """The changes from old to new results; `owners` is the key of each known one."""
        rows = pa.concat_tables([self.answers(after), self.answers(known)])
        new = np.arange(after.num_rows)
        old = np.full(after.num_rows, NONE)
        old[owners] = after.num_rows + np.arange(known.num_rows)
        return Transitions(rows, old, np.where(_rows_of(after) != 0, new, NONE), new)

    def answers(self, groups: pa.Table) -> pa.Table:
        """Keys, aggregates and time of groups."""
        times = groups["_at"] if self._timed else pa.nulls(groups.num_rows, pa.int64())
        keys = {key: groups[key] for key in self._of.keys}
        return pa.table({**keys, **self._of.answers(groups), TIME: times})

    def _kept(self, come: pa.Table, after: pa.Table) -> pa.Table:
        """The state's delta: the batch, and tombstones for keys without rows."""
        empty = after.filter(pa.array(_rows_of(after) == 0))
        if not empty.num_rows:
            return come
        gone = empty.set_column(empty.column_names.index(GONE), come.schema.field(GONE),
                                pa.array(np.ones(empty.num_rows, np.bool_)))  # fmt: skip
        return combine(pa.concat_tables([come, gone]), self._of.spec)


def _known_by(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The rows with an origin derived from their key."""
    hashes = hash_keys([rows[key] for key in keys], rows.num_rows).view(np.int64)
    for name in ORIGIN:
        kind = rows.field(name).type
        values = hashes if name == ORIGIN[-1] else np.zeros(rows.num_rows, np.int64)
        place = rows.column_names.index(name)
        rows = rows.set_column(place, name, pa.array(values).cast(kind))
    return rows


def _rows_of(groups: pa.Table) -> Ints:
    return int_values(plain(groups[ROW_COUNT]))


def _largest_time() -> Part:
    def lift(rows: pa.Table, _signs: Ints | None) -> pa.Array:
        return plain(rows[TIME])

    return Part(StateColumn("_at", pa.int64(), "max"), lift)
