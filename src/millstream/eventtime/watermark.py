"""Watermarks: how far a source's event time has surely come.

W = the smallest, over the partitions that are not idle, of (largest time seen − delay).
It never goes back. A partition that has shown no row yet holds W at the beginning of
time until it is idle. When all partitions are idle, W moves on by the batch clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from millstream.eventtime.moment import END_OF_TIME, MIN_TIME


@dataclass(frozen=True, slots=True)
class Quiet:
    """What an intent says about silence: who is idle, and how far W has drifted.

    `drift` is the watermark that the clock alone has reached; it counts only while
    every partition is idle.
    """

    idle: frozenset[int] = frozenset()
    drift: int = MIN_TIME


def advance(
    watermark: int,
    times: Mapping[int, int],
    partitions: Iterable[int],
    *,
    delay: int,
    quiet: Quiet,
    declared: int = MIN_TIME,
) -> int:
    """The watermark after the largest times seen so far, never behind the one before.

    >>> advance(MIN_TIME, {0: 20, 1: 15}, [0, 1], delay=5, quiet=Quiet())
    10
    """
    awake = [p for p in partitions if p not in quiet.idle]
    if awake:
        reached = min(before(times[p], delay) if p in times else MIN_TIME for p in awake)
    else:
        reached = quiet.drift
    return max(watermark, reached, declared)


def before(time: int, delay: int) -> int:
    """`time − delay` without falling off the beginning of time; the end stays the end."""
    if time == END_OF_TIME:
        return END_OF_TIME
    return max(time - delay, MIN_TIME)


@dataclass(slots=True)
class Silence:
    """Watches one source during one run and tells which partitions are idle.

    A partition is idle when for `idle` of batch clock every look found it read to its
    end. Unread rows, downtime and slow reading never make it so: the count begins anew
    with each run and with each look that finds something unread.
    """

    idle: int | None
    _unread_at: dict[int, int] = field(default_factory=dict)
    _anchor: tuple[int, int] | None = None

    def look(self, clock: int, watermark: int, unread: Mapping[int, bool]) -> Quiet:
        """One look at the ends: who is idle now, and how far the clock has carried W."""
        for partition, waiting in unread.items():
            if waiting or partition not in self._unread_at:
                self._unread_at[partition] = clock
        if self._anchor is None or any(unread.values()):
            self._anchor = (clock, watermark)
        if self.idle is None or not unread:
            return Quiet()
        limit = self.idle
        idle = frozenset(p for p in unread if clock - self._unread_at[p] >= limit)
        if len(idle) < len(unread) or watermark == MIN_TIME:
            return Quiet(idle)
        since, carried = self._anchor
        carried = max(carried, MIN_TIME)
        return Quiet(idle, MIN_TIME if carried == MIN_TIME else carried + (clock - since))

    def settle(self, clock: int, watermark: int) -> None:
        """After a batch that read rows: the clock carries W on from here."""
        self._anchor = (clock, watermark)

    def rebase(self, clock: int) -> None:
        """Start counting from this clock: no silence has passed."""
        self._unread_at = dict.fromkeys(self._unread_at, clock)
        if self._anchor is not None:
            self._anchor = (clock, self._anchor[1])
