"""Live updates: one snapshot a second for all readers together, and a short queue for each.

A slow reader misses snapshots, never the newest one, and does not slow down the others.
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


class LiveUpdates:
    """Snapshots by name (`jobs`, `job hot-auctions`), taken while they have readers."""

    def __init__(self, every: float = EVERY) -> None:
        self._every = every
        self._readers: dict[str, list[asyncio.Queue[bytes]]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._last: dict[str, bytes] = {}

    @property
    def readers(self) -> int:
        """How many clients are connected."""
        return sum(map(len, self._readers.values()))

    async def watch(self, name: str, look: Callable[[], Any]) -> AsyncGenerator[bytes]:
        """Server-sent events: the current snapshot, and each one that differs.

        Ends with an event `gone` when the job was removed.
        """
        queue: asyncio.Queue[bytes] = asyncio.Queue(QUEUE)
        self._readers.setdefault(name, []).append(queue)
        if name in self._last:
            queue.put_nowait(self._last[name])
        if name not in self._tasks:
            self._tasks[name] = asyncio.create_task(self._poll(name, look))
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

    async def _poll(self, name: str, look: Callable[[], Any]) -> None:
        unchanged = 0
        while True:
            try:
                event = await run_in_threadpool(_event, look)
            except MillstreamError as error:
                self._send(name, b"event: gone\n" + _data(str(error)))
                self._send(name, _END)
                return
            except Exception:
                LOG.exception("the snapshot of %s failed; retrying", name)
                await asyncio.sleep(self._every)
                continue
            unchanged = 0 if event != self._last.get(name) else unchanged + 1
            if unchanged == 0:
                self._last[name] = event
                self._send(name, event)
            elif unchanged % _KEEP_ALIVE == 0:
                self._send(name, b": still here\n\n")
            await asyncio.sleep(self._every)

    def _send(self, name: str, event: bytes) -> None:
        for queue in self._readers.get(name, ()):
            if queue.full():
                with suppress(asyncio.QueueEmpty):
                    queue.get_nowait()
            queue.put_nowait(event)


def _event(look: Callable[[], Any]) -> bytes:
    return _data(look())


def _data(snapshot: Any) -> bytes:
    return b"data: " + json.dumps(snapshot, separators=(",", ":"), default=str).encode() + b"\n\n"
