"""Watermarks: how far a source's event time has surely come.

W = the smallest, over the partitions that are not idle, of (largest time seen − delay).
It never goes back. A partition that has shown no row yet holds W at the beginning of
time until it is idle. When all partitions are idle, W moves on by the batch clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from millstream.event_time.batch_time import END_OF_TIME, MIN_TIME

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


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

    When all are idle, W moves on from where those that fell silent last had brought it,
    by the clock that has passed since the last row. How often one looks makes no
    difference.
    """

    idle: int | None
    _unread_at: dict[int, int] = field(default_factory=dict)
    _since: int | None = None
    _from: int = MIN_TIME
    _drifting: bool = False

    def look(
        self,
        clock: int,
        watermark: int,
        unread: Mapping[int, bool],
        *,
        times: Mapping[int, int],
        delay: int,
    ) -> Quiet:
        """One look at the ends: who is idle now, and how far the clock has carried W.

        `unread` has every partition there is, `times` the largest time of each that has
        shown a row.
        """
        for partition, waiting in unread.items():
            if waiting or partition not in self._unread_at:
                self._unread_at[partition] = clock
        if self.idle is None:
            return Quiet()
        limit = self.idle
        idle = frozenset(p for p in unread if clock - self._unread_at[p] >= limit)
        silent = bool(unread) and len(idle) == len(unread)
        if self._since is None or any(unread.values()) or (self._drifting and not silent):
            self.settle(clock, watermark)
        self._drifting = silent
        if not silent:
            self._from = max(self._from, watermark)
            return Quiet(idle)
        return Quiet(idle, self._drift(clock, watermark, times, delay))

    def _drift(self, clock: int, watermark: int, times: Mapping[int, int], delay: int) -> int:
        seen = {p: at for p, at in self._unread_at.items() if p in times}
        last = max(seen.values(), default=0)
        reached = min((before(times[p], delay) for p, at in seen.items() if at == last),
                      default=MIN_TIME)  # fmt: skip
        start = max(self._from, reached)
        if start == MIN_TIME or self._since is None:
            return MIN_TIME
        carried = min(start + clock - self._since, END_OF_TIME - 1)
        if watermark > carried:
            self.settle(clock, watermark)
            return watermark
        return carried

    def settle(self, clock: int, watermark: int) -> None:
        """A row has come, or W was set: from here on the clock carries it."""
        self._since, self._from = clock, watermark

    def rebase(self, clock: int) -> None:
        """Start counting from this clock: no silence has passed."""
        self._unread_at = dict.fromkeys(self._unread_at, clock)
        self._since = None if self._since is None else clock
