"""Gathering rows for a batch: chunk by chunk, so that messages die young and in cache."""

from __future__ import annotations

import gc
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

from millstream.kafka.clients.consuming import message_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from millstream.kafka.clients.consuming.assignment import Reader
    from millstream.kafka.positions import Slot

_CHUNK = 5_000
_WAIT = 0.1


def gather(
    reader: Reader,
    topics: Sequence[str],
    *,
    rows: int,
    wait: float,
    over: Callable[[Mapping[Slot, int]], bool],
) -> tuple[pa.RecordBatch | None, dict[Slot, int]]:
    """Up to `rows` rows, at most `wait` after the first of them, and the offsets after them.

    The reader's positions are left as they are: they count what was handed out. Nothing that
    came is left behind when the reader is in trouble: the trouble is raised by the next call.
    Rows of a partition that goes to another member meanwhile are that member's to hand out.
    """
    parts: list[pa.RecordBatch] = []
    reached: dict[Slot, int] = {}
    until = 0.0
    with _collector_paused():
        while rows > 0 and not (parts and reader.troubled):
            left = min(_WAIT, until - time.monotonic()) if parts else _WAIT
            messages = reader.take(min(_CHUNK, rows), left) if left > 0 else []
            if left > 0 and reader.left & reached.keys():
                rows += sum(part.num_rows for part in parts)
                parts = _without(parts, reader.left)
                rows -= sum(part.num_rows for part in parts)
                reached = {slot: at for slot, at in reached.items() if slot not in reader.left}
            if messages:
                until = until or time.monotonic() + wait
                part, places = message_columns.chunk(messages, topics)
                parts.append(part)
                reached |= places
                rows -= len(messages)
            if left <= 0 or not parts or over(reached):
                break
    return _joined(parts), reached


def _without(parts: list[pa.RecordBatch], slots: Collection[Slot]) -> list[pa.RecordBatch]:
    """The rows of all other partitions; no part is empty."""
    found = []
    for part in parts:
        places = zip(part["topic"].to_pylist(), part["partition"].to_pylist(), strict=True)
        found.append(part.filter(pa.array([place not in slots for place in places], pa.bool_())))
    return [part for part in found if part.num_rows]


def _joined(parts: list[pa.RecordBatch]) -> pa.RecordBatch | None:
    if len(parts) > 1:
        return pa.concat_batches(parts)
    return parts[0] if parts else None


@contextmanager
def _collector_paused() -> Iterator[None]:
    """No garbage collection while many short-lived messages come and go: it costs a third."""
    paused = gc.isenabled()
    if paused:
        gc.disable()
    try:
        yield
    finally:
        if paused:
            gc.enable()
