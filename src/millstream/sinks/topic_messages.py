"""Staged rows as messages for a Kafka producer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.formats.json.encode import encode
from millstream.sinks.rows import SIGN
from millstream.sources.topic import Topic

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from millstream.sinks.spec import Staged

Message = dict[str, Any]
ENVELOPE = ("reason", "step", "topic", "partition", "offset")
AGAIN = "millstream.again"
_CHUNK = 20_000


def messages(staged: Staged) -> Iterator[list[Message]]:
    """A staged output as messages for the producer, a chunk at a time."""
    for whole in staged.tables():
        for start in range(0, whole.num_rows, _CHUNK):
            table = whole.slice(start, _CHUNK).combine_chunks()
            chunk = _dead(table) if staged.door == "dead" else _rows(table, staged)
            yield chunk if staged.again is None else _marked(chunk, staged.again)


def _marked(messages: list[Message], rewind: int) -> list[Message]:
    """Rows that are sent once more, after a rewind, say so."""
    for message in messages:
        message["headers"] = [*message.get("headers", ()), (AGAIN, str(rewind).encode())]
    return messages


def _rows(table: pa.Table, staged: Staged) -> list[Message]:
    if staged.table:
        table = _last_of_each(table, staged.keys)
    user = table.select([name for name in table.column_names if not name.startswith("_")])
    messages: list[Message] = [{"value": value} for value in _values(user, staged).to_pylist()]
    if staged.keys:
        for message, key in zip(
            messages, encode(user.select(staged.keys)).to_pylist(), strict=True
        ):
            message["key"] = key
    if staged.table:
        for message, sign in zip(messages, table[SIGN].to_pylist(), strict=True):
            if sign < 0:
                message["value"] = None
    if "_time" in table.column_names:
        for message, at in zip(messages, table["_time"].to_pylist(), strict=True):
            if at is not None and at >= 0:
                message["timestamp"] = at // 1000
    return messages


def _last_of_each(changes: pa.Table, keys: tuple[str, ...]) -> pa.Table:
    """What became of each key in the end: its new row, or that it is gone.

    Nothing, if it came and went.
    """
    import numpy as np
    import pyarrow as pa

    codes = encode(changes.select(keys)).dictionary_encode().indices.to_numpy()
    places, signs = np.arange(len(codes)), changes[SIGN].to_numpy()
    last = np.zeros(int(codes.max(initial=-1)) + 1, np.int64)
    first = np.full(len(last), len(codes))
    np.maximum.at(last, codes, places)
    np.minimum.at(first, codes, places)
    told = ~((signs[first] > 0) & (signs[last] < 0))
    return changes.take(pa.array(np.sort(last[told])))


def _values(user: pa.Table, staged: Staged) -> pa.Array:
    """Results in the topic's own format; envelopes of late rows, and keys, are JSON."""
    if staged.door == "result" and isinstance(staged.sink, Topic):
        return staged.sink.wire().encode(user)
    return encode(user)


def _dead(table: pa.Table) -> list[Message]:
    messages = []
    for row in table.to_pylist():
        headers = [(h["key"], h["value"]) for h in row["headers"] or ()]
        headers += [(f"millstream.{name}", str(row[name]).encode()) for name in ENVELOPE]
        message = {"key": row["key"], "value": row["value"], "headers": headers}
        if row["timestamp"] is not None:
            message["timestamp"] = int(row["timestamp"].timestamp() * 1000)
        messages.append(message)
    return messages
