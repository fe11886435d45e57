"""One input of a join: its rows in the shuffle and in state."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import InvalidSpec
from millstream.operators.waiting import FLOW, TWIN
from millstream.state.arrays.numpy_columns import int_values, plain
from millstream.state.combine import conform
from millstream.state.keys.equality import canonical
from millstream.state.keys.hashing import hash_keys
from millstream.state.row_columns import SIGN, TIME
from millstream.state.sorting import arrange, hashes_of, orders_of, sort_rows
from millstream.state.spec import HASH, ORDER, StateColumn, StateSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from millstream.operators.joins.on import Pairs
    from millstream.state.runs.view import View

    Ints = NDArray[np.int64]

AT, FROM, OFFSET, SUB, MARK = "_at", "_from", "_offset", "_sub", "_mark"
ROW = (FROM, OFFSET, SUB)
_FLOWED = FLOW << 32


class Side:
    """Rows of one input, each identified by its key, its origin and a number.

    Keys are stored in the common type of both sides, so that equal keys match.
    """

    def __init__(
        self,
        schema: pa.Schema,
        keys: Sequence[str],
        types: Sequence[pa.DataType],
        *,
        step: str,
    ) -> None:
        self._step = step
        self.keys = tuple(keys)
        self.columns = {field.name: field.type for field in schema if field.name[:1] != "_"}
        self.key_types = tuple(types)
        self.values = [name for name in self.columns if name not in self.keys]
        shared = [pa.field(name, kind) for name, kind in zip(self.keys, types, strict=True)]
        row = [pa.field(name, pa.int64()) for name in (*ROW, TWIN)]
        at = StateColumn(AT, pa.int64(), "first")
        own = tuple(StateColumn(name, self.columns[name], "first") for name in self.values)
        self.spec = StateSpec(keys=pa.schema([*shared, *row]), values=(at, *own))
        self.open_spec = StateSpec(keys=pa.schema(row), values=(at,))

    def exchanged(self, rows: pa.Table, *, timed: bool, spread: bool = False) -> pa.Table:
        """The rows for the shuffle: hashed by their keys; rows without a key go to any bucket.

        With `spread`, all rows go to any bucket.
        """
        count = rows.num_rows
        keys = self._shared(rows)
        source, partition = (int_values(plain(rows[n])) for n in ("_source", "_partition"))
        origin = {
            FROM: pa.array((source << 32) | partition),
            OFFSET: rows["_offset"],
            SUB: rows["_sub"],
        }
        has = present(keys, count)
        hashes = hash_keys(keys, count)
        if spread or not has.all():
            anywhere = hash_keys(list(origin.values()), count)
            hashes = anywhere if spread else np.where(has, hashes, anywhere)
        times = rows[TIME] if timed else pa.array(np.zeros(count, np.int64))
        return pa.table(
            {
                HASH: pa.array(hashes),
                **dict(zip(self.keys, keys, strict=True)),
                **origin,
                AT: times,
                **{name: rows[name] for name in self.values},
            }
        )

    def taken(self, tables: Sequence[pa.Table]) -> pa.Table:
        """The rows received through the shuffle, as one table."""
        kept = [table for table in tables if table.num_rows]
        if not kept:
            return self.empty()
        return pa.concat_tables(kept).combine_chunks()

    def empty(self) -> pa.Table:
        """The columns of the shuffle, and no row."""
        names = [HASH, *self.keys, *ROW, AT, *self.values]
        return self.spec.schema.empty_table().select(names)

    def numbered(self, rows: pa.Table, orders: Ints, view: View) -> pa.Table:
        """The rows, numbered where several have the same origin, in the batch and in state.

        Results of earlier steps may have equal origins; records of a source never have.
        """
        count = rows.num_rows
        twins = np.zeros(count, np.int64)
        made = np.flatnonzero(int_values(plain(rows[FROM])) == _FLOWED)
        if len(made):
            flowed = rows.select([HASH, *self.keys, *ROW]).take(pa.array(made))
            flowed = flowed.add_column(0, ORDER, pa.array(orders[made]))
            twins[made] = self._twins(flowed, view)
        return rows.append_column(TWIN, pa.array(twins))

    def _twins(self, rows: pa.Table, view: View) -> Ints:
        columns = [plain(rows[name]) for name in (*self.keys, *ROW)]
        order, starts, _ = arrange(orders_of(rows), hashes_of(rows), columns)
        places = np.arange(rows.num_rows) if order is None else order
        sizes = np.diff(starts, append=rows.num_rows)
        following = np.zeros(len(starts), np.int64)
        for owners, known in view.stored(rows.take(pa.array(places[starts]))):
            np.maximum.at(following, owners, int_values(plain(known[TWIN])) + 1)
        among = np.arange(rows.num_rows) - np.repeat(starts, sizes)
        twins = np.empty(rows.num_rows, np.int64)
        twins[places] = among + np.repeat(following, sizes)
        return twins

    def kept(self, rows: pa.Table, orders: Ints) -> pa.Table:
        """Numbered rows as they are stored, under these orders."""
        return conform(
            sort_rows(rows.add_column(0, ORDER, pa.array(orders)), self.spec.key_names), self.spec
        )

    def shown(self, rows: pa.Table) -> pa.Table:
        """The columns of numbered rows that results need, and a mark derived from their origin."""
        mark = hash_keys([rows[name] for name in (*ROW, TWIN)], rows.num_rows)
        return rows.select([AT, *self.keys, *self.values]).append_column(MARK, pa.array(mark))

    def shared_keys(self, rows: pa.Table) -> list[pa.Array]:
        """The key columns of exchanged rows, in the common type of both sides."""
        return [plain(rows[name]) for name in self.keys]

    def key_hashes(self, rows: pa.Table) -> NDArray[np.uint64]:
        """The hashes of the keys of exchanged rows, whichever bucket they went to."""
        return hash_keys(self.shared_keys(rows), rows.num_rows)

    def require(self, rows: pa.Table, *, timed: bool) -> None:
        """Refuse rows without a required event time, and retracted rows."""
        if timed and TIME not in rows.column_names:
            raise InvalidSpec(
                f"{self._step} needs rows with an event time on both sides",
                got="a stream without one",
                do="give read(…) a time=",
            )
        if SIGN in rows.column_names and not (int_values(plain(rows[SIGN])) == 1).all():
            raise InvalidSpec(
                f"{self._step} needs rows that are never retracted",
                got="a correction from the previous step",
                do="leave out `keep` in the .late(…) of that step",
            )

    def _shared(self, rows: pa.Table) -> list[pa.Array]:
        return [
            canonical(plain(rows[name]).cast(kind))
            for name, kind in zip(self.keys, self.key_types, strict=True)
        ]


def present(keys: Sequence[pa.Array], count: int) -> NDArray[np.bool_]:
    """Which rows have a key: none of its columns is null."""
    whole = np.ones(count, np.bool_)
    for key in keys:
        if key.null_count:
            whole &= pc.is_valid(key).to_numpy(zero_copy_only=False)
    return whole


def shared_types(left: pa.Schema, right: pa.Schema, on: Pairs, *, step: str) -> list[pa.DataType]:
    """The type in which each pair of keys is compared.

    Raises:
        InvalidSpec: keys of different types, or of a type without an order.
    """
    found = []
    for ours, theirs in on:
        kinds = _wide(left.field(ours).type), _wide(right.field(theirs).type)
        if kinds[0] != kinds[1]:
            raise InvalidSpec(
                f"{step} needs keys of the same type",
                got=f"{ours} {left.field(ours).type} and {theirs} {right.field(theirs).type}",
                do=f'cast one of them: .with_columns({theirs}="cast({theirs} as …)")',
            )
        hash_keys([pa.array([None], kinds[0])], 1)
        found.append(kinds[0])
    return found


def _wide(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_signed_integer(kind):
        return pa.int64()
    return pa.float64() if pa.types.is_floating(kind) else kind
