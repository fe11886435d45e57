"""Records of a compacted topic: each sets the row of its key; one without a value deletes it."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.formats.json.format import Json
from millstream.formats.spec import Decoded
from millstream.schema import Field, Scalar, Schema, Struct
from millstream.sources.spec import Opened

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millstream.sources.spec import Opener


SIGN, AT, POSITION = "_sign", "_at", "_position"
EXTRA = (
    pa.field(SIGN, pa.int8()),
    pa.field(AT, pa.int64()),
    pa.field(POSITION, pa.int64()),
)


def change_schema(schema: Schema) -> pa.Schema:
    """The columns of changes: those of the rows, which are null in deletes, the sign (`_sign`), the
    time (`_at`, null for the record's timestamp), and the position in the database's log
    (`_position`)."""
    return pa.schema([*(pa.field(part.name, part.type) for part in schema.arrow()), *EXTRA])


def as_changes(rows: pa.Table, schema: Schema, extra: Mapping[str, pa.Array]) -> pa.Table:
    """Rows, or only their keys, as changes; missing columns are null."""
    kind, count = change_schema(schema), rows.num_rows
    there = {name: rows[name] for name in rows.column_names} | dict(extra)
    columns = [there[part.name] if part.name in there else pa.nulls(count, part.type)
               for part in kind]  # fmt: skip
    return pa.Table.from_arrays([column.cast(part.type) for column, part
                                 in zip(columns, kind, strict=True)], schema=kind)  # fmt: skip


def signs(sign: int, count: int) -> pa.Array:
    """The same sign for `count` rows."""
    return pa.array(np.full(count, sign, np.int8))


@dataclass(frozen=True)
class Upserts:
    """Decodes records as changes: the rows, and deletes by key for records without a value.

    `time` is the column with the time of a row; the time of a delete is its record's timestamp.
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
    """The same, with records numbered by their place in the whole batch."""
    return Decoded(found.table, at[found.good], at[found.bad], found.reasons, found.extra)


def in_order(parts: list[Decoded]) -> Decoded:
    """Several decoded parts of a batch, combined in the order of its records."""
    if len(parts) == 1:
        return parts[0]
    good = np.concatenate([part.good for part in parts])
    bad = np.concatenate([part.bad for part in parts])
    reasons = [why for part in parts for why in part.reasons]
    order, worst = np.argsort(good), np.argsort(bad)
    table = pa.concat_tables([part.table for part in parts]).take(pa.array(order))
    return Decoded(table, good[order], bad[worst], [reasons[place] for place in worst],
                   sum(part.extra for part in parts))  # fmt: skip


_OBJECT, _WITH_SCHEMA, _QUOTED = rb"^\s*\{", rb'^\s*\{\s*"schema"\s*:', rb'^\s*"'
_PAYLOAD = "payload"


@dataclass(frozen=True)
class RecordKeys:
    """Record keys as the key columns of a table.

    A key is a JSON object with those columns, alone or as the `payload` beside its `schema`;
    of one column it may be the JSON value itself (also a struct) or, for a string, plain text.
    """

    columns: Schema

    @classmethod
    def of(cls, schema: Schema, keys: Sequence[str]) -> RecordKeys:
        """The decoder for the keys of a table with these columns."""
        return cls(Schema(tuple(replace(schema[key], nullable=False) for key in keys)))

    def decode(self, values: pa.ChunkedArray) -> Decoded:
        """The key columns; a key without all of them is bad, with a reason."""
        keys = values.combine_chunks().cast(pa.binary())
        wrapped = _matching(keys, _WITH_SCHEMA)
        plain = ~wrapped & ~_matching(keys, _OBJECT) & (len(self.columns.fields) == 1)
        text = plain & self._is_text(keys)
        inside = Schema((Field(_PAYLOAD, Struct(self.columns.fields), nullable=False),))
        objects = self._of_json(keys, np.flatnonzero(~wrapped & ~plain))
        if len(objects.bad) and isinstance(self.columns.fields[0].type, Struct):
            plain[objects.bad] = len(self.columns.fields) == 1
            objects = self._of_json(keys, np.flatnonzero(~wrapped & ~plain))
        parts = [
            objects,
            _opened(Json().decode(_taken(keys, wrapped), inside), np.flatnonzero(wrapped)),
            self._of_json(self._as_objects(keys), np.flatnonzero(plain & ~text)),
            self._of_text(keys, np.flatnonzero(text)),
        ]
        return _together(parts, self.columns)

    def _is_text(self, keys: pa.Array) -> np.ndarray:
        if self.columns.fields[0].type != Scalar("string"):
            return np.zeros(len(keys), np.bool_)
        known: np.ndarray = keys.is_valid().to_numpy(zero_copy_only=False)
        return np.asarray(~_matching(keys, _QUOTED) & known)

    def _as_objects(self, keys: pa.Array) -> pa.Array:
        name = json.dumps(self.columns.fields[0].name).encode()
        begin, end, nothing = (pa.scalar(part, pa.binary()) for part in (b"{%b:" % name, b"}", b""))
        return pc.binary_join_element_wise(begin, keys, end, nothing)

    def _of_json(self, keys: pa.Array, at: np.ndarray) -> Decoded:
        found = Json().decode(keys.take(pa.array(at)), self.columns)
        return replace(found, good=at[found.good], bad=at[found.bad])

    def _of_text(self, keys: pa.Array, at: np.ndarray) -> Decoded:
        if len(at) == 0:
            return Decoded(self.columns.arrow().empty_table(), at, at, [], 0)
        taken = keys.take(pa.array(at))
        try:
            table = pa.table([taken.cast(pa.string())], schema=self.columns.arrow())
        except pa.ArrowInvalid:
            reasons = ["the record's key is no text in UTF-8"] * len(at)
            return Decoded(self.columns.arrow().empty_table(), at[:0], at, reasons, 0)
        return Decoded(table, at, at[:0], [], 0)


def _matching(keys: pa.Array, pattern: bytes) -> np.ndarray:
    found = pc.match_substring_regex(keys, pattern.decode())
    return np.asarray(pc.fill_null(found, False).to_numpy(zero_copy_only=False))  # noqa: FBT003


def _taken(keys: pa.Array, which: np.ndarray) -> pa.Array:
    return keys.take(pa.array(np.flatnonzero(which)))


def _opened(found: Decoded, at: np.ndarray) -> Decoded:
    """The fields of the single struct column."""
    inside = found.table[_PAYLOAD].combine_chunks()
    table = pa.Table.from_arrays(inside.flatten(), names=[part.name for part in inside.type])
    return replace(found, table=table, good=at[found.good], bad=at[found.bad])


def _together(parts: list[Decoded], columns: Schema) -> Decoded:
    kind = columns.arrow()
    table = pa.concat_tables([part.table.cast(kind) for part in parts])
    good = np.concatenate([part.good for part in parts])
    bad = np.concatenate([part.bad for part in parts])
    reasons = [f"the record's key: {why}" for part in parts for why in part.reasons]
    order, worst = np.argsort(good), np.argsort(bad)
    return Decoded(table.take(pa.array(order)), good[order], bad[worst],
                   [reasons[place] for place in worst], 0)  # fmt: skip
