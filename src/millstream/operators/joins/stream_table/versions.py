"""The versions of a table's rows, per key: each is valid from its time until the next one's.

Changes are ordered by their time, then by position in the database's log, then by offset in
the topic. Of changes at the same position, the one that adds a row comes last: it replaces the
one that retracts the old row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.event_time.batch_time import END_OF_TIME
from millstream.operators.joins.matching import moved, sortable
from millstream.operators.joins.sides import AT
from millstream.operators.joins.stream_table.enriched import NOWHERE
from millstream.state.arrays.numpy_columns import int_values, plain
from millstream.state.combine import combine
from millstream.state.keys.equality import canonical
from millstream.state.keys.hashing import hash_keys
from millstream.state.runs.search import bisect
from millstream.state.spec import HASH, ORDER, StateColumn, StateSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from millstream.state.runs.view import View

    Ints = NDArray[np.int64]
    Mask = NDArray[np.bool_]

POSITION, ALIVE = "_position", "_alive"
PLACE = (AT, POSITION, "_offset", "_from", "_sub")
FORGET = 86_400_000_000


class Versions:
    """How the versions of a table are stored.

    Keys are stored in the common type of both sides of the join; `values` are the other columns
    that results may need.
    """

    def __init__(
        self, schema: pa.Schema, keys: Sequence[str], types: Sequence[pa.DataType]
    ) -> None:
        self.keys, self._types = tuple(keys), tuple(types)
        self.columns = {field.name: field.type for field in schema if field.name[:1] != "_"}
        self.values = [name for name in self.columns if name not in self.keys]
        shared = [pa.field(name, kind) for name, kind in zip(self.keys, types, strict=True)]
        place = [pa.field(name, pa.int64()) for name in PLACE]
        own = (StateColumn(name, self.columns[name], "last") for name in self.values)
        self.spec = StateSpec(
            keys=pa.schema([*shared, *place]),
            values=(StateColumn(ALIVE, pa.bool_(), "last"), *own),
        )
        names = [HASH, *self.spec.key_names, ALIVE, *self.values]
        self.kept = pa.schema([self.spec.schema.field(name) for name in names])
        self.timer_spec = StateSpec(keys=pa.schema(shared), values=())

    def exchanged(self, rows: pa.Table) -> pa.Table:
        """Changes as they are shuffled."""
        count = rows.num_rows
        keys = [
            canonical(plain(rows[name]).cast(kind))
            for name, kind in zip(self.keys, self._types, strict=True)
        ]
        source, partition = (int_values(plain(rows[n])) for n in ("_source", "_partition"))
        signs = int_values(plain(rows["_sign"])) if "_sign" in rows.column_names else np.ones(count)
        there = POSITION in rows.column_names
        position = rows[POSITION] if there else pa.nulls(count, pa.int64())
        return pa.table(
            {
                HASH: pa.array(hash_keys(keys, count)),
                **dict(zip(self.keys, keys, strict=True)),
                AT: rows["_time"],
                POSITION: pc.fill_null(position, -(2**63)),
                "_offset": rows["_offset"],
                "_from": pa.array((source << 32) | partition),
                "_sub": rows["_sub"],
                ALIVE: pa.array(signs > 0),
                **{name: rows[name] for name in self.values},
            }
        )

    def taken(self, tables: Sequence[pa.Table]) -> pa.Table:
        """The changes of a batch, one per key and position."""
        names = self.kept.names
        parts = [table.select(names).cast(self.kept) for table in tables]
        rows = pa.concat_tables([self.kept.empty_table(), *parts]).combine_chunks()
        gone = ~plain(rows[ALIVE]).to_numpy(zero_copy_only=False)
        if not gone.any():
            return rows
        order = np.argsort(~gone, kind="stable")
        rows = rows.take(pa.array(order))
        whole = rows.add_column(0, ORDER, pa.array(np.zeros(len(order), np.int64)))
        return combine(whole, self.spec).select(names).cast(self.kept)

    def found(self, wanted: pa.Table, view: View) -> tuple[Ints, pa.Table]:
        """All versions of the wanted keys (`_hash`, keys), and which key each belongs to."""
        zeros = pa.array(np.zeros(wanted.num_rows, np.int64))
        known = view.find(wanted.add_column(0, ORDER, zeros))
        return int_values(plain(known[ORDER])), known.select(self.kept.names)

    def shared_keys(self, rows: pa.Table) -> list[pa.Array]:
        """The key columns in the common type of both sides."""
        return [plain(rows[name]) for name in self.keys]


class History:
    """Versions of several keys, sorted by key, then by position."""

    def __init__(self, rows: pa.Table, groups: Ints, count: int) -> None:
        places = [int_values(plain(rows[name])) for name in reversed(PLACE)]
        order = np.lexsort((*places, groups))
        self.order = order
        self.rows = rows.take(pa.array(order))
        self.groups = groups[order]
        self.times = int_values(plain(self.rows[AT]))
        self.alive = plain(self.rows[ALIVE]).to_numpy(zero_copy_only=False)
        self._starts = np.searchsorted(self.groups, np.arange(count + 1))

    def at(self, groups: Ints, times: Ints) -> Ints:
        """The index of the version of each group at each time; NOWHERE where there is none."""
        begin, end = self._starts[groups], self._starts[groups + 1]
        words, after = sortable(self.times), sortable(times) + np.uint64(1)
        last = np.where(times == END_OF_TIME, end, bisect(words, after, begin, end)) - 1
        there = last >= begin
        there[there] = self.alive[last[there]]
        return np.where(there, last, NOWHERE)

    def needless(self, bound: int) -> Mask:
        """Which versions no event at or after the bound can need.

        A delete that is the newest version is kept for a day, so that an older change that is
        read again does not restore the key.
        """
        last = np.ones(len(self.times), np.bool_)
        last[:-1] = self.groups[1:] != self.groups[:-1]
        following = np.append(self.times[1:], END_OF_TIME)
        superseded = ~last & (following <= bound)
        forgotten = last & ~self.alive & (moved(self.times, FORGET) <= bound)
        return np.asarray(superseded | forgotten)
