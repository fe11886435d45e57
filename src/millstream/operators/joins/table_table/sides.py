"""One input of a join of tables: rows added and retracted, stored by the join columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.operators.joins.sides import present
from millstream.operators.joins.table_table.view_rows import STAMPS, Some
from millstream.state.arrays.numpy_columns import int_values, plain
from millstream.state.combine import combine
from millstream.state.keys.equality import canonical
from millstream.state.keys.hashing import hash_keys
from millstream.state.row_columns import ORIGIN, ORIGIN_FIELDS, SIGN, TIME
from millstream.state.sorting import arrange, hashes_of
from millstream.state.spec import GONE, HASH, ORDER, StateColumn, StateSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from millstream.state.runs.view import View

    Ints = NDArray[np.int64]
    Mask = NDArray[np.bool_]


class TableSide:
    """The rows of one table by the columns it is joined on, then by its own key."""

    def __init__(
        self,
        schema: pa.Schema,
        on: Sequence[str],
        types: Sequence[pa.DataType],
        keys: Sequence[str],
    ) -> None:
        self.on, self._types = tuple(on), dict(zip(on, types, strict=True))
        self.columns = {field.name: field.type for field in schema if field.name[:1] != "_"}
        own = [name for name in keys if name not in self._types]
        self.keys = (*self.on, *own)
        self.values = [name for name in self.columns if name not in self.keys]
        kinds = self.columns | self._types
        self.spec = StateSpec(
            keys=pa.schema([pa.field(name, kinds[name]) for name in self.keys]),
            values=tuple(StateColumn(name, kinds[name], "last") for name in self.values),
        )
        self.row = [HASH, *self.keys, *self.values]
        self._row = pa.schema([self.spec.schema.field(name) for name in self.row])

    def exchanged(self, rows: pa.Table) -> pa.Table:
        """Changes for the shuffle, to the bucket of their join columns.

        Rows with a null there go to the bucket of their own key.
        """
        count = rows.num_rows
        keys = [
            canonical(plain(rows[name]).cast(self.spec.keys.field(name).type)) for name in self.keys
        ]
        joined = keys[: len(self.on)]
        hashes = hash_keys(joined, count)
        lost = ~present(joined, count)
        if lost.any():
            hashes = np.where(lost, hash_keys(keys, count), hashes)
        signs = rows[SIGN] if SIGN in rows.column_names else pa.array(np.ones(count, np.int8))
        times = rows[TIME] if TIME in rows.column_names else pa.nulls(count, pa.int64())
        return pa.table(
            {
                HASH: pa.array(hashes),
                **dict(zip(self.keys, keys, strict=True)),
                **{name: rows[name] for name in self.values},
                SIGN: signs,
                TIME: times,
                **{name: rows[name] for name in ORIGIN},
            }
        )

    def taken(self, tables: Sequence[pa.Table]) -> Changes:
        """The net changes of a batch: each row as it was before, and as it is after."""
        stamps = [pa.field(SIGN, pa.int8()), pa.field(TIME, pa.int64()),
                  *ORIGIN_FIELDS]  # fmt: skip
        schema = pa.schema([*self._row, *stamps])
        parts = [table.cast(schema) for table in tables if table.num_rows]
        rows = pa.concat_tables([schema.empty_table(), *parts]).combine_chunks()
        rows = rows.take(pa.array(self._ends(rows)))
        keys = [plain(rows[name]) for name in self.on]
        given = int_values(plain(rows[SIGN])) > 0
        return Changes(rows.select(self.row), rows.select(list(STAMPS)), given,
                       present(keys, rows.num_rows))  # fmt: skip

    def _ends(self, rows: pa.Table) -> Ints:
        """For each key, the first change if it retracts a row, and the last if it adds one."""
        count = rows.num_rows
        keys = [plain(rows[name]) for name in self.keys]
        order, starts, _ = arrange(np.zeros(count, np.int64), hashes_of(rows), keys)
        groups = np.empty(count, np.int64)
        groups[np.arange(count) if order is None else order] = np.repeat(
            np.arange(len(starts)), np.diff(starts, append=count)
        )
        given = int_values(plain(rows[SIGN])) > 0
        origin = [int_values(plain(rows[name])) for name in reversed(ORIGIN)]
        by_key = np.lexsort((given, *origin, groups))
        first = np.diff(groups[by_key], prepend=-1) != 0
        last = np.append(first[1:], np.ones(min(count, 1), np.bool_))
        given = given[by_key]
        return np.asarray(by_key[(first & ~given) | (last & given)])

    def joined_on(self, rows: pa.Table) -> list[pa.Array]:
        """The join columns, in the common type of both sides."""
        return [plain(rows[name]) for name in self.on]

    def found(self, wanted: pa.Table, view: View) -> tuple[Ints, pa.Table]:
        """All stored rows of the wanted keys (`_hash`, `on`), and which key each belongs to."""
        zeros = pa.array(np.zeros(wanted.num_rows, np.int64))
        known = view.find(wanted.add_column(0, ORDER, zeros))
        return int_values(plain(known[ORDER])), known.select(self.row).cast(self._row)

    def among(self, rows: pa.Table, groups: Ints, others: pa.Table, theirs: Ints) -> Mask:
        """Which rows have a row with the same own key, in the same group, among others."""
        count = rows.num_rows
        if count == 0 or others.num_rows == 0:
            return np.zeros(count, np.bool_)
        every = pa.concat_tables([rows, others])
        keys = [plain(every[name]) for name in self.keys]
        order, starts, _ = arrange(np.concatenate([groups, theirs]), hashes_of(every), keys)
        places = np.arange(every.num_rows) if order is None else order
        found = np.maximum.reduceat(places, starts) >= count
        matched = np.empty(every.num_rows, np.bool_)
        matched[places] = np.repeat(found, np.diff(starts, append=every.num_rows))
        return matched[:count]

    def gained(self, changes: Changes) -> pa.Table:
        """The state's delta: added rows, and tombstones of retracted ones."""
        rows = changes.rows.append_column(GONE, pa.array(~changes.given))
        rows = rows.filter(pa.array(changes.whole))
        zeros = pa.array(np.zeros(rows.num_rows, np.int64))
        return combine(rows.add_column(0, ORDER, zeros), self.spec)


class Changes:
    """The changes of one side in a batch: the rows, their stamps, and whether each is added.

    `whole` marks those without a null in the join columns.
    """

    def __init__(self, rows: pa.Table, stamps: pa.Table, given: Mask, whole: Mask) -> None:
        self.rows, self.stamps, self.given, self.whole = rows, stamps, given, whole

    def some(self, which: Mask, groups: Ints) -> Some:
        """The selected rows, by the number of their key."""
        mask = pa.array(which)
        return Some.of(self.rows.filter(mask), groups[which], self.whole[which],
                       self.stamps.filter(mask))  # fmt: skip
