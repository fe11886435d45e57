"""What a continuous run did, as the facts that those who watch are used to."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

from millstream.engine.continuous.rules import MODE
from millstream.metrics.batch_report import BatchReporter
from millstream.metrics.facts import Facts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from millstream.plan.stages import Stages


class Told:
    """Adds up what was done up to positions that are kept; tells it when more of them are."""

    def __init__(
        self, told: Callable[[Facts, dict[str, int]], None], stages: Stages,
        bad_above: float | None,
    ) -> None:  # fmt: skip
        self._told, self._reporter = told, BatchReporter(stages, bad_above)
        self._number = 0
        self._clear()

    def _clear(self) -> None:
        self._read: Counter[str] = Counter()
        self._written: Counter[str] = Counter()
        self._sums: Counter[str] = Counter()
        self._seconds = 0.0

    def wrote(self, output: str, rows: int, seconds: float) -> None:
        """Positions have been kept, and so many rows have left up to them, in so many seconds."""
        self._written[output] += rows
        self._seconds = max(self._seconds, seconds)

    def read(self, source: str, counted: Mapping[str, int], dead: int) -> None:
        """These records of a source have been read, and so many of them were bad."""
        self._read[source] += counted.get("rows", 0)
        self._sums.update({word: counted.get(word, 0) for word in ("extra", "bytes")})
        self._sums["dead"] += dead

    def waiting(self, number: int) -> bool:
        """Whether there is something to tell under a number that has not been told."""
        if number <= self._number:
            return False
        if self._read.total() or self._written.total() or self._sums["dead"]:
            return True
        self._number = number
        return False

    def tell(self, number: int, lag: dict[str, int]) -> None:
        """Tell it.

        Raises:
            InvalidInput: more than `bad_above` of a minute's rows were bad.
        """
        facts = Facts(
            batch=number, rows=self._read.total(), late=0, dead=self._sums["dead"], lane=MODE,
            outputs=dict(self._written), bytes=self._sums["bytes"], extra=self._sums["extra"],
            seconds=self._seconds, read=dict(self._read),
        )  # fmt: skip
        self._number = number
        self._clear()
        self._told(facts, lag)
        self._reporter.refuse_too_many_bad(time.time_ns() // 1000, facts)
