"""Records of a compacted topic: each is the row of its key, one without a value deletes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.formats.spec import Decoded
from millstream.operators.tables.record_keys import RecordKeys
from millstream.sources.spec import Opened

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.schema import Schema
    from millstream.sources.spec import Opener

SIGN, AT, POSITION = "_sign", "_at", "_position"
EXTRA = (
    pa.field(SIGN, pa.int8()),
    pa.field(AT, pa.int64()),
    pa.field(POSITION, pa.int64()),
)


def change_schema(schema: Schema) -> pa.Schema:
    """The columns of changes: those of the rows, any of which a delete lacks, and what a change
    does (`_sign`), when (`_at`, null for its record's timestamp), and where in its database's
    log it stands (`_position`)."""
    return pa.schema([*(pa.field(part.name, part.type) for part in schema.arrow()), *EXTRA])


def as_changes(rows: pa.Table, schema: Schema, extra: Mapping[str, pa.Array]) -> pa.Table:
    """Rows, or only their keys, as changes; a column that is not there is null."""
    kind, count = change_schema(schema), rows.num_rows
    there = {name: rows[name] for name in rows.column_names} | dict(extra)
    columns = [there[part.name] if part.name in there else pa.nulls(count, part.type)
               for part in kind]  # fmt: skip
    return pa.Table.from_arrays([column.cast(part.type) for column, part
                                 in zip(columns, kind, strict=True)], schema=kind)  # fmt: skip


def signs(sign: int, count: int) -> pa.Array:
    """One sign for so many rows."""
    return pa.array(np.full(count, sign, np.int8))


@dataclass(frozen=True)
class Upserts:
    """Opens records as changes: rows as they are, records without a value by their key.

    `time` is the column a row takes effect by; a delete does by its record's timestamp.
    """

    rows: Opener
    keys: tuple[str, ...]
    time: str | None

    def open(self, raw: pa.Table, schema: Schema) -> Opened:
        """Changes, in the order of the records."""
        gone = np.zeros(0, np.int64)
        if "value" in raw.column_names and raw["value"].null_count:
            missing = pc.is_null(raw["value"]).to_numpy()
            gone = np.flatnonzero(missing)
            there = np.flatnonzero(~missing)
            opened = self.rows.open(raw.take(pa.array(there)), schema)
        else:
            opened = self.rows.open(raw, schema)
            raw, there = opened.records, np.arange(opened.records.num_rows)
        parts = [_placed(self._sets(opened.decoded, schema), there)]
        if len(gone):
            parts.append(_placed(self._deletes(raw["key"].take(pa.array(gone)), schema), gone))
        return Opened(raw, in_order(parts), opened.bytes)

    def _sets(self, found: Decoded, schema: Schema) -> Decoded:
        extra = {SIGN: signs(1, found.table.num_rows)}
        if self.time is not None:
            extra[AT] = found.table[self.time].cast(pa.int64())
        return _with_table(found, as_changes(found.table, schema, extra))

    def _deletes(self, keys: pa.ChunkedArray, schema: Schema) -> Decoded:
        found = RecordKeys.of(schema, self.keys).decode(keys)
        extra = {SIGN: signs(-1, found.table.num_rows)}
        return _with_table(found, as_changes(found.table, schema, extra))


def _with_table(found: Decoded, table: pa.Table) -> Decoded:
    return Decoded(table, found.good, found.bad, found.reasons, found.extra)


def _placed(found: Decoded, at: np.ndarray) -> Decoded:
    """The same, speaking of records by their place among all."""
    return Decoded(found.table, at[found.good], at[found.bad], found.reasons, found.extra)


def in_order(parts: list[Decoded]) -> Decoded:
    """What several ways of reading have made of some records each, in the order of those."""
    if len(parts) == 1:
        return parts[0]
    good = np.concatenate([part.good for part in parts])
    bad = np.concatenate([part.bad for part in parts])
    reasons = [why for part in parts for why in part.reasons]
    order, worst = np.argsort(good), np.argsort(bad)
    table = pa.concat_tables([part.table for part in parts]).take(pa.array(order))
    return Decoded(table, good[order], bad[worst], [reasons[place] for place in worst],
                   sum(part.extra for part in parts))  # fmt: skip
