"""Expensive calls: their results shared for a moment, or only a few of them at a time."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any

from millstream.console.api.request import in_thread
from millstream.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.kafka.records import Record
    from millstream.viewing.pages import RecordFilter

_REMEMBERED = 200
_PATIENCE = 10.0


class ResultCache:
    """Caches results, and failures, for a moment: a hundred readers cost as much as one."""

    def __init__(self, seconds: float = 1.0) -> None:
        self._seconds = seconds
        self._answers: dict[tuple[Any, ...], tuple[float, asyncio.Task[Any]]] = {}

    async def ask(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """The function's result, from the cache or from a new call."""
        key = (function.__qualname__, *arguments, *sorted(named.items()))
        now = time.monotonic()
        known = self._answers.get(key)
        if known is None or (known[1].done() and now - known[0] > self._seconds):
            self._forget(now)
            task = asyncio.create_task(in_thread(function, *arguments, **named))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            known = self._answers[key] = (now, task)
        return await asyncio.shield(known[1])

    def _forget(self, now: float) -> None:
        if len(self._answers) >= _REMEMBERED:
            self._answers = {
                key: (at, task) for key, (at, task) in self._answers.items()
                if not task.done() or now - at <= self._seconds
            }  # fmt: skip


FILTER_LOCK = threading.Lock()
"""Held while a record is filtered or serialized, which is CPU-bound: threads that wait for it leave
the interpreter to the event loop."""


class SerialFilter:
    """A filter that evaluates one record at a time across all scans."""

    def __init__(self, selection: RecordFilter) -> None:
        self._selection = selection

    def matches(self, record: Record) -> bool:
        """Whether the record matches."""
        with FILTER_LOCK:
            return self._selection.matches(record)


class Limiter:
    """Limits concurrent calls: each occupies a thread and reads from Kafka."""

    def __init__(self, most: int) -> None:
        self._most, self._free = most, asyncio.Semaphore(most)

    async def ask(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """The function's result, once a slot is free.

        Raises:
            Unavailable: no slot becomes free within ten seconds.
        """
        try:
            async with asyncio.timeout(_PATIENCE):
                await self._free.acquire()
        except TimeoutError:
            raise Unavailable(f"at most {self._most} scans of topics can run at once",
                              got="one more", do="try again") from None  # fmt: skip
        try:
            return await in_thread(function, *arguments, **named)
        finally:
            self._free.release()
