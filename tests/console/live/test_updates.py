"""Live updates: one query for all readers, and a slow reader delays none."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING

from millstream.console.live.updates import QUEUE, LiveUpdates

if TYPE_CHECKING:
    import pytest


def test_readers_share_one_query_and_a_slow_one_misses_only_intermediate_snapshots() -> None:
    async def scene() -> None:
        looks = itertools.count()
        updates = LiveUpdates(every=0.01)
        readers = [updates.watch("jobs", lambda: next(looks)) for _ in range(20)]
        for reader in readers:
            assert (await anext(reader)).startswith(b"data: ")
        for _ in range(50):
            await anext(readers[0])
        seen_by_slow = [await anext(readers[1]) for _ in range(QUEUE)]
        made = next(looks)
        assert made < 200
        assert int(seen_by_slow[-1].split()[1]) >= made - QUEUE - 25
        for reader in readers:
            await reader.aclose()
        assert updates.readers == 0

    asyncio.run(scene())


def test_an_unchanged_snapshot_is_not_sent_again() -> None:
    async def scene() -> None:
        updates = LiveUpdates(every=0.001)
        reader = updates.watch("jobs", lambda: 1)
        assert await anext(reader) == b"data: 1\n\n"
        assert await anext(reader) == b": still here\n\n"
        await reader.aclose()

    asyncio.run(scene())


def test_the_stream_of_a_removed_job_ends() -> None:
    from millstream.errors import NotFound

    def gone() -> None:
        raise NotFound("this needs a job", got="none")

    async def scene() -> None:
        updates = LiveUpdates(every=0.01)
        events = [event async for event in updates.watch("job hot", gone)]
        assert events == [b'event: gone\ndata: "this needs a job; got none"\n\n']
        assert updates.readers == 0

    asyncio.run(scene())


def test_a_failed_query_is_retried(caplog: pytest.LogCaptureFixture) -> None:
    looks = itertools.count()

    def shaky() -> int:
        number = next(looks)
        if number == 0:
            raise OSError("a disk that failed")
        return number

    async def scene() -> None:
        reader = LiveUpdates(every=0.01).watch("jobs", shaky)
        assert await anext(reader) == b"data: 1\n\n"
        await reader.aclose()

    asyncio.run(scene())
    assert "the snapshot of jobs failed" in caplog.text
