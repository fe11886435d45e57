"""Gathering rows for a batch: chunk by chunk, so that messages die young and in cache."""

from __future__ import annotations

import gc
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

from millstream.log import columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from millstream.log.places import Slot
    from millstream.log.reading import Reader

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
    """
    parts: list[pa.RecordBatch] = []
    reached: dict[Slot, int] = {}
    until = 0.0
    with _collector_paused():
        while rows > 0 and not (parts and reader.troubled):
            left = min(_WAIT, until - time.monotonic()) if parts else _WAIT
            messages = reader.take(min(_CHUNK, rows), left) if left > 0 else []
            if messages:
                until = until or time.monotonic() + wait
                part, places = columns.chunk(messages, topics)
                parts.append(part)
                reached |= places
                rows -= len(messages)
            if left <= 0 or not parts or over(reached):
                break
    return _joined(parts), reached


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
