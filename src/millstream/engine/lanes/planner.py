"""The planner: which ranges a batch reads, how large it is, in which lane it runs.

A batch is sized in bytes so that it takes about as long as the pipeline's `batch`; the rest waits
in the log. Small batches run in the narrow lane, large ones in the wide lane.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.sources.spec import Extent, Offsets, Ranges

NARROW_BYTES = 4 << 20
_FIRST = 4 << 20
_LEAST, _MOST = 4 << 20, 192 << 20
_RISE, _FALL = 8, 2
_UNKNOWN_RECORD = 200.0


@dataclass(slots=True)
class Sizing:
    """How many bytes a batch may have, learned from previous batches.

    Without `limited`, a batch takes everything.
    """

    target: float
    limited: bool = True
    budget: float = _FIRST
    record: dict[str, float] = field(default_factory=dict)

    def learn(
        self, source_bytes: Mapping[str, tuple[int, int]], seconds: float, *, limited: bool
    ) -> None:
        """After a batch: bytes and rows per source, and how long it took.

        The budget follows the measured speed, which small batches underestimate. Per batch it
        rises at most eightfold and falls at most to half. A batch that the budget did not limit
        changes it only if it was slow.
        """
        total = 0
        for name, (size, rows) in source_bytes.items():
            total += size
            if rows:
                known = self.record.get(name, size / rows)
                self.record[name] = 0.7 * known + 0.3 * (size / rows)
        if not total or seconds <= 0:
            return
        wanted = total / seconds * self.target
        if limited or wanted < self.budget:
            wanted = min(max(wanted, self.budget / _FALL), self.budget * _RISE)
            self.budget = min(max(wanted, _LEAST), _MOST)

    def bytes_of(self, name: str, rows: int) -> float:
        """The estimated size of so many records of a source."""
        return rows * self.record.get(name, _UNKNOWN_RECORD)


def following(extent: Extent, known: Offsets) -> Offsets:
    """Where reading continues in each partition; new partitions are read from their start."""
    return {p: known.get(p, extent.first[p]) for p in sorted(extent.end)}


def choose_ranges(waiting: Mapping[str, Ranges], sizing: Sizing) -> tuple[dict[str, Ranges], bool]:
    """The part of the waiting ranges that fits one batch, and whether something is left over.

    Every partition gives the same share of its records, so that none falls behind.
    """
    total = _bytes(waiting, sizing)
    share = 1.0 if not sizing.limited or total <= sizing.budget else sizing.budget / total
    chosen: dict[str, Ranges] = {}
    for name, ranges in waiting.items():
        chosen[name] = {
            p: (a, b if share == 1.0 else a + max(1, int((b - a) * share)))
            for p, (a, b) in ranges.items()
            if b > a
        }
    return chosen, share < 1.0


def fills_a_batch(waiting: Mapping[str, Ranges], sizing: Sizing) -> bool:
    """Whether as much waits as a batch may have."""
    return sizing.limited and _bytes(waiting, sizing) >= sizing.budget


def choose_lane(chosen: Mapping[str, Ranges], sizing: Sizing) -> str:
    """Narrow for few bytes, wide for many."""
    return "narrow" if _bytes(chosen, sizing) <= NARROW_BYTES else "wide"


def narrowed(sizing: Sizing) -> Sizing:
    """The same sizing with the limit of the narrow lane."""
    return replace(sizing, budget=min(sizing.budget, NARROW_BYTES))


def _bytes(ranges: Mapping[str, Ranges], sizing: Sizing) -> float:
    return sum(sizing.bytes_of(name, b - a) for name, r in ranges.items() for a, b in r.values())
