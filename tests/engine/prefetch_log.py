"""A log in memory that can be read ahead, for tests without a broker."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tests.faults.small_world import LogReader

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

    from millstream.sources.spec import Ranges, Reader


class LogPrefetchReader:
    """Gives what lies behind offsets, in pieces of at most `rows` records of a partition."""

    def __init__(self, reader: Reader, more: Sequence[str], rows: int = 5) -> None:
        self._reader, self._more, self._rows = reader, more, rows
        self.closed = False

    def wait(
        self, starts: Mapping[int, int], *, least: int, most: int
    ) -> tuple[Ranges, pa.Table] | None:
        ends = self._reader.extent().end
        ranges = {p: (a, min(ends[p], a + self._rows)) for p, a in starts.items() if ends[p] > a}
        if not ranges:
            time.sleep(0.005)
            return None
        return ranges, self._reader.table(ranges, self._more)

    def close(self) -> None:
        self.closed = True


class PrefetchableReader(LogReader):
    """A topic of the small world that can be read ahead."""

    def prefetch_reader(self, more: Sequence[str]) -> LogPrefetchReader:
        return LogPrefetchReader(self, more)


def until(true: Callable[[], bool], what: str, patience: float = 60.0) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + patience
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {patience:.0f} s")
        time.sleep(0.001)
