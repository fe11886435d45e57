"""How a run is going, for those who watch: one line per batch, or one line that lives.

    batch 12 · narrow · 4,210 rows/s · lag 0 · watermark 2026-01-01 00:00:20 · late 0 · dead 0 · …

Late and dead rows are added up over the run, so that nobody has to have watched.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

    from rich.console import Console

    from millstream.metrics.facts import Facts

Say = Callable[[str], None]
_WINDOW = 5.0
_EVERY = 2.0
_TICK = 0.25
_PATIENCE = 4.0


class Progress:
    """What the batches of one run add up to."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._recent: deque[tuple[float, Facts]] = deque()
        self.last: Facts | None = None
        self.batches = self.rows = self.written = self.late = self.dead = self.lag = 0

    def add(self, facts: Facts, lag: dict[str, int]) -> None:
        """One more batch has been committed."""
        now = self._clock()
        self.last, self.lag = facts, sum(lag.values())
        self.batches += 1
        self.rows += facts.rows
        self.written += sum(facts.outputs.values())
        self.late += facts.late
        self.dead += facts.dead
        self._recent.append((now, facts))
        while self._recent[0][0] < now - _WINDOW:
            self._recent.popleft()

    @property
    def rate(self) -> float:
        """Rows per second over the last batches, from where the first of them began."""
        if not self._recent:
            return 0.0
        ended, first = self._recent[0]
        span = self._recent[-1][0] - (ended - first.seconds)
        return sum(facts.rows for _, facts in self._recent) / span if span > 0 else 0.0

    def line(self) -> str:
        """The last batch, and how the run stands."""
        facts = self.last
        if facts is None:
            return "no batch yet"
        parts = [
            f"batch {facts.batch}",
            facts.lane,
            f"{self.rate:,.0f} rows/s",
            f"lag {self.lag:,}",
            f"watermark {watermark(facts)}",
            f"late {self.late:,}",
            f"dead {self.dead:,}",
            f"state {facts.state_rows:,} rows, {size(facts.state_bytes)}",
            *facts.alerts,
        ]
        return " · ".join(parts)

    def total(self) -> str:
        """The run in a few words."""
        return (
            f"{_counted(self.rows, 'row')} read in {_counted(self.batches, 'batch', 'batches')}, "
            f"{self.written:,} written, {self.late:,} late, {self.dead:,} dead"
        )


class ProgressDisplay(ABC):
    """A run shown while it goes on: a thread looks after what has not been said yet.

    As a context manager: what is still unsaid at the end is said then.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.progress = Progress(clock)
        self._clock = clock
        self._doing: str | None = None
        self._since = clock()
        self._lock = threading.RLock()
        self._end = threading.Event()
        self._ticker = threading.Thread(target=self._tick, name="progress", daemon=True)

    def phase(self, doing: str) -> None:
        """The run is about to do this, and it may take a while."""
        with self._lock:
            self._doing, self._since = doing, self._clock()
            self._began(doing)

    def batch(self, facts: Facts, lag: dict[str, int]) -> None:
        """A batch has been committed."""
        with self._lock:
            self._doing = None
            self.progress.add(facts, lag)
            self._committed(facts, lag)

    def _tick(self) -> None:
        while not self._end.wait(_TICK):
            with self._lock:
                self._refresh()

    @abstractmethod
    def _began(self, doing: str) -> None: ...

    @abstractmethod
    def _committed(self, facts: Facts, lag: dict[str, int]) -> None: ...

    @abstractmethod
    def _refresh(self) -> None: ...

    def __enter__(self) -> Self:
        self._ticker.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end.set()
        self._ticker.join()


class PlainLines(ProgressDisplay):
    """For logs and pipes: a line per batch, at most one in two seconds, the last one always.

    What takes long is said again after four seconds, then ever more rarely.
    """

    def __init__(self, say: Say, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock)
        self._say = say
        self._unsaid = False
        self._said_at = float("-inf")
        self._patience = _PATIENCE

    def _began(self, doing: str) -> None:
        self._patience = _PATIENCE
        self._say(f"{doing} …")

    def _committed(self, facts: Facts, lag: dict[str, int]) -> None:
        self._unsaid = True
        self._refresh()

    def _refresh(self) -> None:
        now = self._clock()
        if self._unsaid and now - self._said_at >= _EVERY:
            self._unsaid, self._said_at = False, now
            self._say(self.progress.line())
        elif self._doing is not None and now - self._since >= self._patience:
            self._patience *= 2
            self._say(f"{self._doing} … ({now - self._since:.0f} s)")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, trace)
        if self._unsaid:
            self._say(self.progress.line())


class EveryBatch(PlainLines):
    """For programs: each batch is handed on whole; only what takes long is talked about."""

    def __init__(self, say: Say, give: Callable[[Facts, dict[str, int]], None]) -> None:
        super().__init__(say)
        self._give = give

    def _committed(self, facts: Facts, lag: dict[str, int]) -> None:
        self._give(facts, lag)


class LiveLine(ProgressDisplay):
    """For a terminal: one line that is always the newest."""

    def __init__(self, console: Console) -> None:
        from rich.live import Live

        super().__init__()
        self._live = Live(console=console, auto_refresh=False, redirect_stdout=False)

    def _began(self, doing: str) -> None:
        self._refresh()

    def _committed(self, facts: Facts, lag: dict[str, int]) -> None:
        self._refresh()

    def _refresh(self) -> None:
        from rich.text import Text

        if self._doing is None:
            words = self.progress.line()
        else:
            words = f"{self._doing} … {self._clock() - self._since:.0f} s"
        self._live.update(Text(words, no_wrap=True, overflow="ellipsis"), refresh=True)

    def __enter__(self) -> Self:
        self._live.start()
        return super().__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, trace)
        self._live.stop()


def watermark(facts: Facts) -> str:
    """The slowest source's watermark, as people read it: in UTC, to the second."""
    known = [at for at in facts.watermarks.values() if at is not None]
    if len(known) < len(facts.watermarks) or not known:
        return "not yet"
    slowest = min(known)
    return "the end" if slowest.year == datetime.max.year else f"{slowest:%Y-%m-%d %H:%M:%S}"


def size(count: int) -> str:
    """Bytes as people read them.

    >>> size(80_512)
    '80.5 kB'
    """
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def _counted(number: int, one: str, many: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"
