"""Questions that cost something: asked once for all who want the answer, or few at a time."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any

from millstream.console.api.request import aside
from millstream.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.kafka.records import Record
    from millstream.viewing.pages import Takes

_REMEMBERED = 200
_PATIENCE = 10.0


class Shared:
    """Remembers answers, and failures, for a moment; so a hundred readers cost what one does."""

    def __init__(self, seconds: float = 1.0) -> None:
        self._seconds = seconds
        self._answers: dict[tuple[Any, ...], tuple[float, asyncio.Task[Any]]] = {}

    async def ask(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """What the function says, now or a moment ago."""
        key = (function.__qualname__, *arguments, *sorted(named.items()))
        now = time.monotonic()
        known = self._answers.get(key)
        if known is None or (known[1].done() and now - known[0] > self._seconds):
            self._forget(now)
            task = asyncio.create_task(aside(function, *arguments, **named))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            known = self._answers[key] = (now, task)
        return await asyncio.shield(known[1])

    def _forget(self, now: float) -> None:
        if len(self._answers) >= _REMEMBERED:
            self._answers = {
                key: (at, task) for key, (at, task) in self._answers.items()
                if not task.done() or now - at <= self._seconds
            }  # fmt: skip


TURN = threading.Lock()
"""Held while one record is judged or written out, which keeps the interpreter busy: threads that
wait for their turn leave it to the one that answers requests."""


class InTurn:
    """Says which records are wanted, one scan at a time."""

    def __init__(self, selection: Takes) -> None:
        self._selection = selection

    def takes(self, record: Record) -> bool:
        """Whether this record is one."""
        with TURN:
            return self._selection.takes(record)


class Few:
    """Lets only so many questions be asked at a time: they keep a thread and Kafka busy."""

    def __init__(self, most: int) -> None:
        self._most, self._free = most, asyncio.Semaphore(most)

    async def ask(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """What the function says, once it is its turn.

        Raises:
            Unavailable: its turn does not come in ten seconds.
        """
        try:
            async with asyncio.timeout(_PATIENCE):
                await self._free.acquire()
        except TimeoutError:
            raise Unavailable("looking through topics needs fewer who do", got=f"{self._most}",
                              do="try again") from None  # fmt: skip
        try:
            return await aside(function, *arguments, **named)
        finally:
            self._free.release()
