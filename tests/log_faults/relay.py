"""A network in between that can be cut, held up and slowed: a relay of our own, in a thread."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

_PIECE = 1 << 16


class Relay:
    """Passes bytes between clients at one port and a broker at another, of the loopback."""

    def __init__(self, port: int, to: int) -> None:
        self._port, self._to = port, to
        self._loop = asyncio.new_event_loop()
        self._open = True
        self._flowing: asyncio.Event | None = None
        self._delay = 0.0
        self._ends: set[asyncio.StreamWriter] = set()
        self.passed = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    def cut(self) -> None:
        """Every connection ends, and none is taken until `mend`."""
        self._do(self._cut())

    def hold(self) -> None:
        """Connections stay, and no byte passes until `mend`."""
        self._do(self._flow(flowing=False))

    def slow(self, seconds: float) -> None:
        """Each piece of data comes so much later, until `mend`."""
        self._delay = seconds

    def mend(self) -> None:
        """All is as it was."""
        self._open, self._delay = True, 0.0
        self._do(self._flow(flowing=True))

    @contextmanager
    def running(self) -> Iterator[Relay]:
        thread = threading.Thread(target=self._loop.run_forever, name="relay")
        thread.start()
        try:
            self._do(self._serve())
            yield self
        finally:
            self._do(self._cut())
            self._do(self._stop())
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join()
            self._loop.close()

    def _do(self, what: Coroutine[None, None, None]) -> None:
        asyncio.run_coroutine_threadsafe(what, self._loop).result(30)

    async def _serve(self) -> None:
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._server = await asyncio.start_server(self._met, "127.0.0.1", self._port)

    async def _stop(self) -> None:
        """Until nothing is left: what was taken a moment ago becomes a task only then."""
        self._server.close()
        for _ in range(20):
            others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            await asyncio.sleep(0.01)

    async def _cut(self) -> None:
        self._open = False
        for end in tuple(self._ends):
            end.transport.abort()

    async def _flow(self, *, flowing: bool) -> None:
        assert self._flowing is not None
        if flowing:
            self._flowing.set()
        else:
            self._flowing.clear()

    async def _met(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self._open:
                with suppress(OSError):
                    await self._between(reader, writer)
        finally:
            self._ends.discard(writer)
            writer.transport.abort()

    async def _between(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._to)
        self._ends |= {writer, there_writer}
        try:
            await asyncio.gather(self._pass(reader, there_writer), self._pass(there_reader, writer))
        finally:
            self._ends.discard(there_writer)
            there_writer.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert self._flowing is not None
        with suppress(OSError):
            while piece := await reader.read(_PIECE):
                await self._flowing.wait()
                if self._delay:
                    await asyncio.sleep(self._delay)
                writer.write(piece)
                await writer.drain()
                self.passed += len(piece)
            writer.transport.abort()
