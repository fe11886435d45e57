"""Watermarks: up to which event time a source is complete.

W = the smallest, over the partitions that are not idle, of (largest time seen − delay).
It never goes back. A partition without any rows keeps W at the beginning of time until it is
idle. While all partitions are idle, W advances with the batch clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from millstream.event_time.batch_time import END_OF_TIME, MIN_TIME

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True, slots=True)
class Idleness:
    """The idle partitions of a source, and how far the clock alone has advanced W.

    `drift` counts only while every partition is idle.
    """

    idle: frozenset[int] = frozenset()
    drift: int = MIN_TIME


def advance(
    watermark: int,
    times: Mapping[int, int],
    partitions: Iterable[int],
    *,
    delay: int,
    idleness: Idleness,
    declared: int = MIN_TIME,
) -> int:
    """The watermark by the largest times seen so far; it never goes back.

    >>> advance(MIN_TIME, {0: 20, 1: 15}, [0, 1], delay=5, idleness=Idleness())
    10
    """
    active = [p for p in partitions if p not in idleness.idle]
    if active:
        reached = min(before(times[p], delay) if p in times else MIN_TIME for p in active)
    else:
        reached = idleness.drift
    return max(watermark, reached, declared)


def before(time: int, delay: int) -> int:
    """`time − delay` without falling off the beginning of time; the end stays the end."""
    if time == END_OF_TIME:
        return END_OF_TIME
    return max(time - delay, MIN_TIME)


@dataclass(slots=True)
class IdleTracker:
    """Tracks during one run which partitions of a source are idle.

    A partition is idle when every observation for `idle` of batch clock found it read to its
    end. Unread rows, downtime and slow reading do not make it idle: each run, and each
    observation that finds unread rows, starts the count again.

    While all are idle, W advances by the clock since the last row, from where the partitions
    that became idle last had brought it. The result does not depend on how often it is observed.
    """

    idle: int | None
    _unread_at: dict[int, int] = field(default_factory=dict)
    _since: int | None = None
    _from: int = MIN_TIME
    _drifting: bool = False

    def observe(
        self,
        clock: int,
        watermark: int,
        unread: Mapping[int, bool],
        *,
        times: Mapping[int, int],
        delay: int,
    ) -> Idleness:
        """Which partitions are idle now, and how far the clock has advanced W.

        `unread` says of every partition whether it has unread rows; `times` has the largest
        time of each partition that has had a row.
        """
        for partition, waiting in unread.items():
            if waiting or partition not in self._unread_at:
                self._unread_at[partition] = clock
        if self.idle is None:
            return Idleness()
        limit = self.idle
        idle = frozenset(p for p in unread if clock - self._unread_at[p] >= limit)
        all_idle = bool(unread) and len(idle) == len(unread)
        if self._since is None or any(unread.values()) or (self._drifting and not all_idle):
            self.restart_drift(clock, watermark)
        self._drifting = all_idle
        if not all_idle:
            self._from = max(self._from, watermark)
            return Idleness(idle)
        return Idleness(idle, self._drift(clock, watermark, times, delay))

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
            self.restart_drift(clock, watermark)
            return watermark
        return carried

    def restart_drift(self, clock: int, watermark: int) -> None:
        """Let the clock advance W from here: a row has arrived, or W was set."""
        self._since, self._from = clock, watermark

    def restart(self, clock: int) -> None:
        """Start counting idle time from this clock."""
        self._unread_at = dict.fromkeys(self._unread_at, clock)
        self._since = None if self._since is None else clock
