"""Staged rows as messages for a Kafka producer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.formats.json.encode import encode
from millstream.sources.topic import Topic

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from millstream.sinks.spec import Staged

Message = dict[str, Any]
_CHUNK = 20_000


def messages(staged: Staged) -> Iterator[list[Message]]:
    """A staged output as messages for the producer, a chunk at a time."""
    for whole in staged.tables():
        for start in range(0, whole.num_rows, _CHUNK):
            table = whole.slice(start, _CHUNK).combine_chunks()
            yield _dead(table) if staged.door == "dead" else _rows(table, staged)


def _rows(table: pa.Table, staged: Staged) -> list[Message]:
    user = table.select([name for name in table.column_names if not name.startswith("_")])
    messages: list[Message] = [{"value": value} for value in _values(user, staged).to_pylist()]
    if staged.keys:
        for message, key in zip(
            messages, encode(user.select(staged.keys)).to_pylist(), strict=True
        ):
            message["key"] = key
    if "_time" in table.column_names:
        for message, at in zip(messages, table["_time"].to_pylist(), strict=True):
            if at is not None and at >= 0:
                message["timestamp"] = at // 1000
    return messages


def _values(user: pa.Table, staged: Staged) -> pa.Array:
    """Results in the topic's own format; envelopes of late rows, and keys, are JSON."""
    if staged.door == "result" and isinstance(staged.sink, Topic):
        return staged.sink.wire().encode(user)
    return encode(user)


def _dead(table: pa.Table) -> list[Message]:
    messages = []
    for row in table.to_pylist():
        headers = [(h["key"], h["value"]) for h in row["headers"] or ()]
        headers += [
            (f"millstream.{name}", str(row[name]).encode())
            for name in ("reason", "step", "topic", "partition", "offset")
        ]
        message = {"key": row["key"], "value": row["value"], "headers": headers}
        if row["timestamp"] is not None:
            message["timestamp"] = int(row["timestamp"].timestamp() * 1000)
        messages.append(message)
    return messages
