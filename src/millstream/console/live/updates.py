"""Live updates: one look a second for all readers together, and a short queue for each.

A reader that is slow misses pictures, never the newest one, and costs the others nothing.
"""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool

from millstream.errors import MillstreamError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

LOG = logging.getLogger(__name__)
EVERY = 1.0
QUEUE = 2
_KEEP_ALIVE = 15
_END = b""


class Pulse:
    """Pictures by name (`jobs`, `job hot-auctions`), looked at while somebody watches."""

    def __init__(self, every: float = EVERY) -> None:
        self._every = every
        self._readers: dict[str, list[asyncio.Queue[bytes]]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._last: dict[str, bytes] = {}

    @property
    def readers(self) -> int:
        """How many watch now."""
        return sum(map(len, self._readers.values()))

    async def watch(self, name: str, look: Callable[[], Any]) -> AsyncGenerator[bytes]:
        """Server-sent events: the picture now, and every new one.

        Ends with an event `gone` when what is looked at is no longer there.
        """
        queue: asyncio.Queue[bytes] = asyncio.Queue(QUEUE)
        self._readers.setdefault(name, []).append(queue)
        if name in self._last:
            queue.put_nowait(self._last[name])
        if name not in self._tasks:
            self._tasks[name] = asyncio.create_task(self._beat(name, look))
        try:
            while (event := await queue.get()) != _END:
                yield event
        finally:
            self._leave(name, queue)

    def _leave(self, name: str, queue: asyncio.Queue[bytes]) -> None:
        self._readers[name].remove(queue)
        if not self._readers[name]:
            del self._readers[name]
            self._last.pop(name, None)
            self._tasks.pop(name).cancel()

    async def _beat(self, name: str, look: Callable[[], Any]) -> None:
        quiet = 0
        while True:
            try:
                event = await run_in_threadpool(_event, look)
            except MillstreamError as error:
                self._give(name, b"event: gone\n" + _data(str(error)))
                self._give(name, _END)
                return
            except Exception:
                LOG.exception("looking at %s failed; it is tried again", name)
                await asyncio.sleep(self._every)
                continue
            quiet = 0 if event != self._last.get(name) else quiet + 1
            if quiet == 0:
                self._last[name] = event
                self._give(name, event)
            elif quiet % _KEEP_ALIVE == 0:
                self._give(name, b": still here\n\n")
            await asyncio.sleep(self._every)

    def _give(self, name: str, event: bytes) -> None:
        for queue in self._readers.get(name, ()):
            if queue.full():
                with suppress(asyncio.QueueEmpty):
                    queue.get_nowait()
            queue.put_nowait(event)


def _event(look: Callable[[], Any]) -> bytes:
    return _data(look())


def _data(picture: Any) -> bytes:
    return b"data: " + json.dumps(picture, separators=(",", ":"), default=str).encode() + b"\n\n"
