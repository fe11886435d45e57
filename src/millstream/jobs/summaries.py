"""What a job's log says of its batches: a line a minute instead of one for each batch."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.metrics.facts import Facts

EVERY = 60.0


class Summary:
    """Adds up batches; from one thread, while another asks for the sum."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._since = clock()
        self._last: Facts | None = None
        self._lag, self._counts = 0, Counter[str]()
        self._seconds = self._longest = 0.0
        self._outputs: Counter[str] = Counter()

    def add(self, facts: Facts, lag: int) -> None:
        """A batch was committed."""
        with self._lock:
            self._last, self._lag = facts, lag
            self._counts.update(batches=1, rows=facts.rows, late=facts.late, dead=facts.dead)
            self._outputs.update(facts.outputs)
            self._seconds += facts.seconds
            self._longest = max(self._longest, facts.seconds)

    def take(self, *, now: bool = False) -> dict[str, Any] | None:
        """The sum since the last one, once a minute or `now`; None if there was no batch."""
        with self._lock:
            passed = self._clock() - self._since
            if self._last is None or not (now or passed >= EVERY):
                return None
            found = {
                "seconds": round(passed, 1), "batch_id": self._last.batch, **self._counts,
                "outputs": dict(self._outputs), "where": self._last.where,
                "busy_ms": round(self._seconds * 1000), "longest_ms": round(self._longest * 1000),
                "lag": self._lag,
            }  # fmt: skip
            self._since, self._last = self._clock(), None
            self._counts, self._outputs = Counter(), Counter()
            self._seconds = self._longest = 0.0
        return found
