"""Staged rows as messages for a Kafka producer."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millstream.formats.json.encode import encode
from millstream.sinks.rows import SIGN
from millstream.sources.kafka.topic import Topic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.sinks.spec import Staged

Headers = list[tuple[str, bytes | None]]
ENVELOPE = ("reason", "step", "topic", "partition", "offset")
AGAIN = "millstream.again"
RESULT_OF = "millstream.result-of"
_CHUNK = 20_000


@dataclass(frozen=True, slots=True)
class Outgoing:
    """Messages in columns: values (null is a tombstone), optional keys, timestamps in
    milliseconds (-1: none), headers `common` to all, and each message's `own` headers."""

    values: pa.Array
    keys: pa.Array | None = None
    stamps: npt.NDArray[np.int64] | None = None
    common: Headers = field(default_factory=list)
    own: list[Headers] | None = None

    def take(self, indexes: npt.NDArray[np.int64]) -> Outgoing:
        """The messages at these indexes, in this order."""
        return Outgoing(
            values=self.values.take(pa.array(indexes)),
            keys=None if self.keys is None else self.keys.take(pa.array(indexes)),
            stamps=None if self.stamps is None else self.stamps[indexes],
            common=self.common,
            own=None if self.own is None else [self.own[index] for index in indexes.tolist()],
        )


def messages(staged: Staged) -> Iterator[Outgoing]:
    """The messages of a staged output, a chunk at a time.

    Rows that are sent again after a rewind have a header that says so.
    """
    again: Headers = [] if staged.again is None else [(AGAIN, str(staged.again).encode())]
    for whole in staged.tables():
        for start in range(0, whole.num_rows, _CHUNK):
            table = whole.slice(start, _CHUNK).combine_chunks()
            chunk = _dead_letters(table) if staged.kind == "dead" else _rows(table, staged)
            yield replace(chunk, common=again)


def _rows(table: pa.Table, staged: Staged) -> Outgoing:
    if staged.is_table:
        table = _last_changes(table, staged.keys)
    user = table.select([name for name in table.column_names if not name.startswith("_")])
    values = _values(user, staged)
    if staged.is_table:
        deleted = pa.array(table[SIGN].to_numpy() < 0)
        values = pc.if_else(deleted, pa.scalar(None, pa.binary()), values)
    keys = encode(user.select(staged.keys)) if staged.keys else None
    return Outgoing(values, keys, _stamps(table, "_time"))


def _stamps(table: pa.Table, name: str) -> npt.NDArray[np.int64] | None:
    """A column of microseconds as whole milliseconds; -1 where it is null or before 1970."""
    if name not in table.column_names:
        return None
    filled = pc.fill_null(table[name].cast(pa.int64()), -1).to_numpy()
    return np.where(filled < 0, -1, filled // 1000)


def _last_changes(changes: pa.Table, keys: tuple[str, ...]) -> pa.Table:
    """The last change of each key; none for a key that was inserted and then deleted."""
    codes = encode(changes.select(keys)).dictionary_encode().indices.to_numpy()
    indexes, signs = np.arange(len(codes)), changes[SIGN].to_numpy()
    last = np.zeros(int(codes.max(initial=-1)) + 1, np.int64)
    first = np.full(len(last), len(codes))
    np.maximum.at(last, codes, indexes)
    np.minimum.at(first, codes, indexes)
    kept = ~((signs[first] > 0) & (signs[last] < 0))
    return changes.take(pa.array(np.sort(last[kept])))


def _values(user: pa.Table, staged: Staged) -> pa.Array:
    """Results in the format of the topic; late rows and keys are JSON."""
    if staged.kind == "result" and isinstance(staged.sink, Topic):
        return staged.sink.wire().encode(user)
    return encode(user)


def _dead_letters(table: pa.Table) -> Outgoing:
    """The original records, with the reason and origin in headers."""
    own = []
    for row in table.select(["headers", *ENVELOPE]).to_pylist():
        headers = [(h["key"], h["value"]) for h in row["headers"] or ()]
        own.append(headers + [(f"millstream.{name}", str(row[name]).encode()) for name in ENVELOPE])
    values, keys = (table[name].combine_chunks().cast(pa.binary()) for name in ("value", "key"))
    return Outgoing(values, keys, _stamps(table, "timestamp"), own=own)
