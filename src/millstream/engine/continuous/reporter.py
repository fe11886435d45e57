"""Reports a continuous run as facts, like those of batches."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

from millstream.engine.continuous.rules import MODE
from millstream.metrics.batch_report import BatchReporter
from millstream.metrics.facts import Facts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from millstream.engine.stage_runs import Where
    from millstream.plan.stages import Stages


class Reporter:
    """Adds up what was processed up to stored positions, and reports it."""

    def __init__(
        self, on_facts: Callable[[Facts, dict[str, int]], None], stages: Stages,
        bad_above: float | None, where: Where,
    ) -> None:  # fmt: skip
        self._on_facts, self._batches = on_facts, BatchReporter(stages, bad_above)
        self._number, self._where = 0, where
        self._clear()

    def _clear(self) -> None:
        self._read: Counter[str] = Counter()
        self._written: Counter[str] = Counter()
        self._sums: Counter[str] = Counter()
        self._seconds = 0.0

    def wrote(self, output: str, rows: int, seconds: float) -> None:
        """Count rows that an output wrote up to stored positions, and the seconds it took."""
        self._written[output] += rows
        self._seconds = max(self._seconds, seconds)

    def read(self, source: str, counted: Mapping[str, int], dead: int) -> None:
        """Count records that were read from a source, and how many of them were bad."""
        self._read[source] += counted.get("rows", 0)
        self._sums.update({word: counted.get(word, 0) for word in ("extra", "bytes")})
        self._sums["dead"] += dead

    def has_news(self, number: int) -> bool:
        """Whether there is something to report under a number not reported yet."""
        if number <= self._number:
            return False
        if self._read.total() or self._written.total() or self._sums["dead"]:
            return True
        self._number = number
        return False

    def report(self, number: int, lag: dict[str, int]) -> None:
        """Report it.

        Raises:
            InvalidInput: more than `bad_above` of a minute's rows were bad.
        """
        facts = Facts(
            batch=number, rows=self._read.total(), late=0, dead=self._sums["dead"], lane=MODE,
            outputs=dict(self._written), bytes=self._sums["bytes"], extra=self._sums["extra"],
            seconds=self._seconds, read=dict(self._read),
            where=self._where,
        )  # fmt: skip
        self._number = number
        self._clear()
        self._on_facts(facts, lag)
        self._batches.refuse_too_many_bad(time.time_ns() // 1000, facts)
