"""The progress of a run: one line per batch, or one line that is updated.

    batch 12 · narrow · spark · 4,210 rows/s · lag 0 · watermark 2026-01-01 00:00:20 · late 0 · …

Late and dead rows are totals of the run.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.console import Console

    from millstream.metrics.facts import Facts

Say = Callable[[str], None]
_WINDOW = 5.0
_EVERY = 2.0
_TICK = 0.25
_PATIENCE = 4.0


class Progress:
    """Totals over the batches of one run."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._recent: deque[tuple[float, Facts]] = deque()
        self.last: Facts | None = None
        self.places: Counter[str] = Counter()
        self.batches = self.rows = self.written = self.late = self.dead = self.lag = 0

    def add(self, facts: Facts, lag: dict[str, int]) -> None:
        """Add a committed batch."""
        now = self._clock()
        self.last, self.lag = facts, sum(lag.values())
        self.batches += 1
        self.places[facts.where] += 1
        self.rows += facts.rows
        self.written += sum(facts.outputs.values())
        self.late += facts.late
        self.dead += facts.dead
        self._recent.append((now, facts))
        while self._recent[0][0] < now - _WINDOW:
            self._recent.popleft()

    @property
    def rate(self) -> float:
        """Rows per second over the batches of the last seconds."""
        if not self._recent:
            return 0.0
        ended, first = self._recent[0]
        span = self._recent[-1][0] - (ended - first.seconds)
        return sum(facts.rows for _, facts in self._recent) / span if span > 0 else 0.0

    def line(self) -> str:
        """The last batch, with the lag and the totals of late and dead rows."""
        facts = self.last
        if facts is None:
            return "no batch yet"
        parts = [
            f"batch {facts.batch}",
            facts.lane,
            facts.where,
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
        """The totals as one line, with how many batches ran where."""
        places = ", ".join(f"{count:,} {where}" for where, count in self.places.items())
        batches = _counted(self.batches, "batch", "batches")
        return (
            f"{_counted(self.rows, 'row')} read in {batches}{f' ({places})' if places else ''}, "
            f"{self.written:,} written, {self.late:,} late, {self.dead:,} dead"
        )


class ProgressDisplay(ABC):
    """Shows the progress of a run; a thread refreshes it.

    As a context manager, it shows the last batch at the end.
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
        """The run enters a phase that may take a while, or reports again that it is in it."""
        with self._lock:
            if doing == self._doing:
                return
            self._doing, self._since = doing, self._clock()
            self._began(doing)

    def batch(self, facts: Facts, lag: dict[str, int]) -> None:
        """A batch was committed."""
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

    def __exit__(self, *error: object) -> None:
        self._end.set()
        self._ticker.join()


class PlainLines(ProgressDisplay):
    """For logs and pipes: a line per batch, at most one every two seconds, and always the last one.

    A long phase is repeated after four seconds, then at doubling intervals.
    """

    def __init__(self, say: Say, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock)
        self._say = say
        self._pending = False
        self._last_line = float("-inf")
        self._patience = _PATIENCE

    def _began(self, doing: str) -> None:
        self._patience = _PATIENCE
        self._say(f"{doing} …")

    def _committed(self, facts: Facts, lag: dict[str, int]) -> None:
        self._pending = True
        self._refresh()

    def _refresh(self) -> None:
        now = self._clock()
        if self._pending and now - self._last_line >= _EVERY:
            self._pending, self._last_line = False, now
            self._say(self.progress.line())
        elif self._doing is not None and now - self._since >= self._patience:
            self._patience *= 2
            self._say(f"{self._doing} … ({now - self._since:.0f} s)")

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        if self._pending:
            self._say(self.progress.line())


class EveryBatch(PlainLines):
    """For programs: passes on the facts of each batch, and prints only long phases."""

    def __init__(self, say: Say, on_batch: Callable[[Facts, dict[str, int]], None]) -> None:
        super().__init__(say)
        self._on_batch = on_batch

    def _committed(self, facts: Facts, lag: dict[str, int]) -> None:
        self._on_batch(facts, lag)


class LiveLine(ProgressDisplay):
    """For a terminal: one line that is updated in place."""

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

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._live.stop()


def watermark(facts: Facts) -> str:
    """The watermark of the slowest source as text: in UTC, to the second."""
    known = [at for at in facts.watermarks.values() if at is not None]
    if len(known) < len(facts.watermarks) or not known:
        return "not yet"
    slowest = min(known)
    return "the end" if slowest.year == datetime.max.year else f"{slowest:%Y-%m-%d %H:%M:%S}"


def size(count: int) -> str:
    """A number of bytes with its unit.

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
