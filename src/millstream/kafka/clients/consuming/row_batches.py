"""Reads rows into Arrow batches, in chunks, so that messages are freed while in the cache."""

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


def read_batch(
    reader: Reader,
    topics: Sequence[str],
    *,
    rows: int,
    wait: float,
    at_end: Callable[[Mapping[Slot, int]], bool],
) -> tuple[pa.RecordBatch | None, dict[Slot, int]]:
    """Up to `rows` rows, at most `wait` after the first of them, and the offsets after them.

    The reader's positions stay: they are those of records delivered. If the reader fails, the
    rows fetched before are returned and the next call raises the error. Rows of a partition that
    is revoked meanwhile are dropped: its new member delivers them.
    """
    parts: list[pa.RecordBatch] = []
    reached: dict[Slot, int] = {}
    until = 0.0
    with _gc_paused():
        while rows > 0 and not (parts and reader.has_failed):
            left = min(_WAIT, until - time.monotonic()) if parts else _WAIT
            messages = reader.take(min(_CHUNK, rows), left) if left > 0 else []
            if left > 0 and reader.revoked & reached.keys():
                rows += sum(part.num_rows for part in parts)
                parts = _without(parts, reader.revoked)
                rows -= sum(part.num_rows for part in parts)
                reached = {slot: at for slot, at in reached.items() if slot not in reader.revoked}
            if messages:
                until = until or time.monotonic() + wait
                part, offsets = message_columns.chunk(messages, topics)
                parts.append(part)
                reached |= offsets
                rows -= len(messages)
            if left <= 0 or not parts or at_end(reached):
                break
    return _joined(parts), reached


def _without(parts: list[pa.RecordBatch], slots: Collection[Slot]) -> list[pa.RecordBatch]:
    """The rows of all other partitions; no part is empty."""
    found = []
    for part in parts:
        rows = zip(part["topic"].to_pylist(), part["partition"].to_pylist(), strict=True)
        found.append(part.filter(pa.array([slot not in slots for slot in rows], pa.bool_())))
    return [part for part in found if part.num_rows]


def _joined(parts: list[pa.RecordBatch]) -> pa.RecordBatch | None:
    if len(parts) > 1:
        return pa.concat_batches(parts)
    return parts[0] if parts else None


@contextmanager
def _gc_paused() -> Iterator[None]:
    """Collecting garbage while many short-lived messages are created takes a third of the time."""
    paused = gc.isenabled()
    if paused:
        gc.disable()
    try:
        yield
    finally:
        if paused:
            gc.enable()
