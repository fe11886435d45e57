"""Converts messages to Arrow columns, without a Python function call per record."""

from __future__ import annotations

from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from confluent_kafka import Message

from millstream.kafka.records import UNREADABLE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.kafka.positions import Slot

HEADER = pa.struct([pa.field("name", pa.string(), nullable=False), pa.field("value", pa.binary())])

SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("headers", pa.list_(pa.field("item", HEADER, nullable=False)), nullable=False),
    ]
)
"""The columns of `Consumer.batches()`."""

_second = itemgetter(1)


def chunk(
    messages: Sequence[Message], topics: Sequence[str]
) -> tuple[pa.RecordBatch, dict[Slot, int]]:
    """Messages without errors as columns, and the offset after the last of each partition."""
    rows = len(messages)
    partitions = np.fromiter(map(Message.partition, messages), np.int32, rows)
    offsets = np.fromiter(map(Message.offset, messages), np.int64, rows)
    times = np.fromiter(map(_second, map(Message.timestamp, messages)), np.int64, rows)
    which = _topic_numbers(messages, topics)
    columns = [
        pa.array(list(map(Message.key, messages)), pa.binary()),
        pa.array(list(map(Message.value, messages)), pa.binary()),
        _topic_column(which, topics, rows),
        pa.array(partitions),
        pa.array(offsets),
        pa.array(times * 1000).view(pa.timestamp("us", "UTC")),
        _header_column(messages),
    ]
    batch = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
    return batch, _next_offsets(which, partitions, offsets, topics)


def _topic_numbers(
    messages: Sequence[Message], topics: Sequence[str]
) -> np.ndarray[tuple[int], np.dtype[np.int32]] | None:
    """The index of each message's topic in `topics`; None if there is only one."""
    if len(topics) == 1:
        return None
    index = {topic: number for number, topic in enumerate(topics)}
    numbers = map(index.__getitem__, map(Message.topic, messages))  # type: ignore[arg-type]
    return np.fromiter(numbers, np.int32, len(messages))


def _topic_column(
    which: np.ndarray[tuple[int], np.dtype[np.int32]] | None, topics: Sequence[str], rows: int
) -> pa.Array:
    if which is None:
        return pa.repeat(pa.scalar(topics[0], pa.string()), rows)
    names = pa.array(list(topics), pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(which), names).dictionary_decode()


def _header_column(messages: Sequence[Message]) -> pa.Array:
    found = _headers(messages)
    if any(found):
        named = [
            [{"name": pair[0], "value": pair[1]} for pair in headers or ()] for headers in found
        ]
        return pa.array(named, SCHEMA.field("headers").type)
    empty = pa.py_buffer(bytes(4 * (len(messages) + 1)))
    return pa.ListArray.from_buffers(
        SCHEMA.field("headers").type,
        len(messages),
        [None, empty],
        children=[pa.array([], HEADER)],
    )


def _headers(messages: Sequence[Message]) -> list[Any]:
    """The headers of each message, read once: see `headers_of`."""
    found: list[Any] = []
    while len(found) < len(messages):
        try:
            found.extend(map(Message.headers, messages[len(found) :]))
        except (SystemError, UnicodeDecodeError):
            found.append(UNREADABLE)
    return found


def _next_offsets(
    which: np.ndarray[tuple[int], np.dtype[np.int32]] | None,
    partitions: np.ndarray[tuple[int], np.dtype[np.int32]],
    offsets: np.ndarray[tuple[int], np.dtype[np.int64]],
    topics: Sequence[str],
) -> dict[Slot, int]:
    """From the last row of each run of equal partitions; later runs of the same one win."""
    changes = partitions[1:] != partitions[:-1]
    if which is not None:
        changes |= which[1:] != which[:-1]
    lasts = chain(np.flatnonzero(changes).tolist(), [len(partitions) - 1])
    return {
        (topics[0 if which is None else which[row]], int(partitions[row])): int(offsets[row]) + 1
        for row in lasts
    }
