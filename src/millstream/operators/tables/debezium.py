"""Debezium's events: changes of a table's rows, read from a database's log.

    {"op": "u", "before": …, "after": {…}, "source": {"ts_ms": …, "lsn": …}, "ts_ms": …}

An event takes effect at `source.ts_ms`. Events of the same time are ordered by their position in
the database's log (`lsn`, or binlog file and position); rows of an incremental snapshot have none
and come first. Only the key of a delete is used: other values of `before` may be made up. The
tombstone after a delete is for compaction, and has an effect only if compaction has removed the
delete itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.formats.json.format import Json
from millstream.formats.spec import Decoded
from millstream.operators.tables.upserts import AT, POSITION, SIGN, RecordKeys, as_changes, in_order
from millstream.schema import Field, Schema, Struct
from millstream.sources.spec import Opened

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

TRUNCATED, TOMBSTONE = 0, -2  # signs in addition to +1 and −1
UNAVAILABLE = "__debezium_unavailable_value"
_SIGNS = {"c": 1, "u": 1, "r": 1, "d": -1, "t": TRUNCATED}
_SOURCE = Schema.parse("ts_ms long, lsn long, file string, pos long")
_WITH_SCHEMA = r'^\s*\{\s*"schema"\s*:'
_POSITION_BITS = 40


@dataclass(frozen=True)
class Debezium:
    """Decodes events as changes of the table with these keys."""

    keys: tuple[str, ...]

    def open(self, raw: pa.Table, schema: Schema) -> Opened:
        """Changes, in the order of the records."""
        values = raw["value"].combine_chunks()
        bare = pc.is_null(values).to_numpy(zero_copy_only=False)
        wrapped = pc.fill_null(pc.match_substring_regex(values.cast(pa.binary()), _WITH_SCHEMA),
                               False).to_numpy(zero_copy_only=False)  # noqa: FBT003  # fmt: skip
        parts = [
            self._events(raw, np.flatnonzero(~bare & ~wrapped), schema, wrapped=False),
            self._events(raw, np.flatnonzero(wrapped), schema, wrapped=True),
            self._tombstones(raw, np.flatnonzero(bare), schema),
        ]
        return Opened(raw, in_order(parts), raw["value"].nbytes)

    def _events(self, raw: pa.Table, at: Ints, schema: Schema, *, wrapped: bool) -> Decoded:
        taken = raw.take(pa.array(at))
        envelope = self._envelope(schema)
        if wrapped:
            envelope = Schema((Field("payload", Struct(envelope.fields), nullable=False),))
        found = Json().decode(taken["value"].combine_chunks(), envelope)
        events = found.table
        if wrapped:
            inside = events["payload"].combine_chunks()
            names = [part.name for part in inside.type]
            events = pa.Table.from_arrays(inside.flatten(), names=names)
        keys = taken["key"].take(pa.array(found.good))
        table, refused = self._changes(events, keys, schema)
        kept = np.delete(np.arange(len(found.good)), list(refused))
        bad = np.concatenate([found.bad, found.good[sorted(refused)]]).astype(np.int64)
        reasons = [*found.reasons, *(refused[place] for place in sorted(refused))]
        order = np.argsort(bad)
        return Decoded(table.take(pa.array(kept)), at[found.good[kept]], at[bad[order]],
                       [reasons[place] for place in order], 0)  # fmt: skip

    def _envelope(self, schema: Schema) -> Schema:
        keys = tuple(replace(schema[key], nullable=True) for key in self.keys)
        return Schema(
            (
                *Schema.parse("op string not null, ts_ms long").fields,
                Field("source", Struct(_SOURCE.fields)),
                Field("before", Struct(keys)),
                Field("after", Struct(schema.fields)),
            )
        )

    def _changes(
        self, events: pa.Table, keys: pa.ChunkedArray, schema: Schema
    ) -> tuple[pa.Table, dict[int, str]]:
        """One change per event, and the events without a valid change, with a reason."""
        ops = events["op"].to_pylist()
        signs = np.array([_SIGNS.get(op, -3) for op in ops], np.int64)
        refused = {place: f"op: no change of a row is called {ops[place]!r}"
                   for place in np.flatnonzero(signs == -3).tolist()}  # fmt: skip
        after = events["after"].combine_chunks()
        for place in np.flatnonzero(
            (signs == 1) & pc.is_null(after).to_numpy(zero_copy_only=False)
        ):
            refused[int(place)] = "after: a row that was written is null"
        rows = pa.Table.from_arrays(after.flatten(), names=schema.names)
        gone = np.flatnonzero(signs == -1)
        if len(gone):
            rows = self._with_deleted(rows, gone, events, keys)
        inside = events["source"].combine_chunks().flatten()
        source = dict(zip(_SOURCE.names, inside, strict=True))
        extra = {
            SIGN: pa.array(signs.astype(np.int8)),
            AT: pc.multiply(pc.coalesce(source["ts_ms"], events["ts_ms"]), 1000),
            POSITION: pc.coalesce(source["lsn"], _binlog(source["file"], source["pos"])),
        }
        return as_changes(rows, schema, extra), refused

    def _with_deleted(
        self, rows: pa.Table, gone: Ints, events: pa.Table, keys: pa.ChunkedArray
    ) -> pa.Table:
        """Fill in the keys of deleted rows: from the record's key, else from `before`."""
        wanted = Schema(tuple(Field(n, Schema.from_arrow(rows.schema)[n].type) for n in self.keys))
        found = RecordKeys.of(wanted, self.keys).decode(keys.take(pa.array(gone)))
        before = events["before"].combine_chunks().take(pa.array(gone))
        count = rows.num_rows
        for place, name in enumerate(self.keys):
            column = rows[name].combine_chunks()
            from_key = np.full(len(gone), -1, np.int64)
            from_key[found.good] = np.arange(len(found.good))
            every = pa.concat_arrays([column, found.table[name].combine_chunks().cast(column.type),
                                      before.flatten()[place].cast(column.type)])  # fmt: skip
            at = np.arange(count)
            at[gone] = np.where(from_key >= 0, count + from_key,
                                count + len(found.good) + np.arange(len(gone)))  # fmt: skip
            rows = rows.set_column(rows.column_names.index(name), name, every.take(pa.array(at)))
        return rows

    def _tombstones(self, raw: pa.Table, at: Ints, schema: Schema) -> Decoded:
        found = RecordKeys.of(schema, self.keys).decode(raw["key"].take(pa.array(at)))
        extra = {SIGN: pa.array(np.full(found.table.num_rows, TOMBSTONE, np.int8))}
        return Decoded(as_changes(found.table, schema, extra), at[found.good], at[found.bad],
                       found.reasons, 0)  # fmt: skip


def _binlog(file: pa.Array, position: pa.Array) -> pa.Array:
    """The position in MySQL's log as one number: `mysql-bin.000003` and an offset in it."""
    number = pc.extract_regex(file, r"(?P<number>\d+)$")
    digits = pc.struct_field(number, "number").cast(pa.int64())
    return pc.add(pc.shift_left(digits, _POSITION_BITS), position)
