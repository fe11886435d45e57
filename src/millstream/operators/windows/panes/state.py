"""The state of a window with panes: its totals, what is new, and its last pane."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.operators.aggregates.parts import ROWS, Part
from millstream.state.arrays.numpy_columns import int_values, plain
from millstream.state.combine import combine
from millstream.state.spec import GONE, HASH, ORDER, StateColumn, StateSpec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from millstream.operators.aggregates.aggregation import Aggregation

    Ints = NDArray[np.int64]

ARRIVED = "_arrived"
PANES, SINCE, SHOWN = "_panes", "_since", "_shown"
NEW_PARTS, SHOWN_PARTS = "new:", "shown:"
EARLY, ON_TIME, LATE = 0, 1, 2
LABELS = np.array(["early", "on_time", "late"], dtype=object)


def arrived_part() -> Part:
    """The number of rows since the last pane, retractions included."""

    def lift(rows: pa.Table, _signs: Ints | None) -> pa.Array:
        return pa.array(np.ones(rows.num_rows, np.int64))

    return Part(StateColumn(ARRIVED, pa.int64(), "sum"), lift)


class PaneState:
    """The columns of a group: as they are stored, and as they are combined in a batch.

    Stored rows are complete: the newest one is current. In a batch, stored and new rows are
    combined part by part. In addition to the totals there are, if needed, the same parts of the
    rows since the last pane (`new:`) and of the last pane (`shown:`). `numbered` are keys that
    distinguish groups with the same user keys; `aside` are other state columns of a window.
    """

    def __init__(
        self, of: Aggregation, *, fresh: bool, shown: bool,
        numbered: Sequence[pa.Field] = (), aside: Sequence[StateColumn] = (),
    ) -> None:  # fmt: skip
        self.of, self.fresh, self.shown = of, fresh, shown
        totals = [column for column in of.spec.values if column.name != ARRIVED]
        self.totals = [field.name for column in totals for field in column.fields]
        self._summed = {field.name for column in totals if column.combine in ("sum", "dsum")
                        for field in column.fields}  # fmt: skip
        values = [*of.spec.values, StateColumn(PANES, pa.int64(), "sum"),
                  StateColumn(SINCE, pa.int64(), "min")]  # fmt: skip
        if fresh:
            values += [replace(column, name=NEW_PARTS + column.name) for column in totals]
        copies: list[StateColumn] = []
        if shown:
            copies = [StateColumn(SHOWN_PARTS + field.name, field.type, "first")
                      for column in totals for field in column.fields]  # fmt: skip
            copies.append(StateColumn(SHOWN, pa.int8(), "first"))
        keys = pa.schema([*of.spec.keys, *numbered])
        self.working = StateSpec(keys, (*values, *aside, *copies))
        self._given = [*of.spec.visible.names, *(field.name for field in numbered),
                       *(column.name for column in aside)]  # fmt: skip
        fields = [field for column in self.working.values for field in column.fields]
        self.stored = StateSpec(
            keys, tuple(StateColumn(field.name, field.type, "last") for field in fields)
        )

    def come(self, batch: pa.Table, clock: int) -> pa.Table:
        """The groups of a batch as rows of the working spec."""
        count = batch.num_rows
        columns = {name: batch[name] for name in self._given}
        columns[PANES] = pa.array(np.zeros(count, np.int64))
        columns[SINCE] = pa.array(np.full(count, clock))
        if self.fresh:
            columns |= {NEW_PARTS + name: batch[name] for name in self.totals}
        for field in self.working.value_fields:
            if field.name not in columns:
                columns[field.name] = pa.nulls(count, field.type)
        return _as(columns, self.working.visible)

    def together(self, kept: Sequence[pa.Table], come: pa.Table) -> pa.Table:
        """Stored groups and those of the batch, combined to one row each."""
        names = self.working.visible.names
        schema = self.working.visible
        tables = [*(_as({n: table[n] for n in names}, schema) for table in kept), come]
        whole = pa.concat_tables([schema.empty_table(), *tables])
        return combine(whole, self.working).drop_columns([GONE])

    def news(self, groups: pa.Table) -> pa.Table:
        """The parts of the rows since the last pane."""
        return self._copy(groups, NEW_PARTS)

    def last_shown(self, groups: pa.Table) -> pa.Table:
        """The parts of the last pane."""
        return self._copy(groups, SHOWN_PARTS)

    def _copy(self, groups: pa.Table, prefix: str) -> pa.Table:
        columns = {ORDER: groups[ORDER], HASH: groups[HASH]}
        columns |= {name: groups[name] for name in self.of.keys}
        columns |= {name: groups[prefix + name] for name in self.totals}
        return pa.table(columns)

    def after_firing(
        self, groups: pa.Table, fires: NDArray[np.bool_], labels: Ints, clock: int
    ) -> pa.Table:
        """The groups as they are stored after some of them have fired."""
        fired, standing = pa.array(fires), stands(groups)
        changed = {
            ARRIVED: np.where(fires, 0, numbers(groups, ARRIVED)),
            PANES: numbers(groups, PANES) + (fires & standing),
            SINCE: np.where(fires, clock, numbers(groups, SINCE)),
        }
        columns = {name: pa.array(array) for name, array in changed.items()}
        if self.fresh:
            for name in self.totals:
                summed = name in self._summed
                columns[NEW_PARTS + name] = _emptied(groups[NEW_PARTS + name], fired, summed=summed)
        if self.shown:
            for name in self.totals:
                columns[SHOWN_PARTS + name] = _chosen(
                    fired, groups[name], groups[SHOWN_PARTS + name]
                )
            shown = pa.array(labels.astype(np.int8), mask=~standing)
            columns[SHOWN] = _chosen(fired, shown, groups[SHOWN])
        whole = {name: columns.get(name, groups[name]) for name in groups.column_names}
        return combine(pa.table(whole), self.stored)


def _as(columns: Mapping[str, pa.Array | pa.ChunkedArray], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_arrays([columns[name] for name in schema.names], schema=schema)


def stands(groups: pa.Table) -> NDArray[np.bool_]:
    """Which groups have rows that were not retracted."""
    return np.asarray(numbers(groups, ROWS) != 0)


def numbers(groups: pa.Table, name: str) -> Ints:
    """A column of integers without nulls."""
    return int_values(plain(groups[name]))


def _chosen(first: pa.Array, then: pa.ChunkedArray | pa.Array, other: pa.ChunkedArray) -> pa.Array:
    """The values of `then` where `first` is true, else those of `other`; for any type."""
    both = pa.concat_arrays([plain(then), plain(other)])
    count = len(first)
    at = np.where(first.to_numpy(zero_copy_only=False), np.arange(count), np.arange(count) + count)
    return both.take(pa.array(at))


def _emptied(values: pa.ChunkedArray, where: pa.Array, *, summed: bool) -> pa.Array:
    """The parts, emptied where `where` is true: zero for sums, null for the rest."""
    array = plain(values)
    if summed:
        return pc.if_else(where, pa.scalar(0).cast(array.type), array)
    return array.take(pa.array(np.arange(len(array)), mask=where.to_numpy(zero_copy_only=False)))
