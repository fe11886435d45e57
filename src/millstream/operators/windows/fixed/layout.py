"""Windows of fixed bounds as ranges of ticks: the grid of tumbling and hopping windows.

Time is divided into slices of the largest length that divides both size and step, numbered by
ticks. Window number k covers the ticks from k · every to k · every + size: integers, so
nothing wraps and days of 23 or 25 hours are ticks like any other. A bound is
converted into a time only when needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.event_time.batch_time import END_OF_TIME, MIN_TIME
from millstream.operators.windows.spec import DAY

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from millstream.operators.windows.spec import Hopping, Tumbling

    Ints = NDArray[np.int64]

NO_MORE = 2**62  # larger than the number of any window
_EDGE = 2**60  # microseconds: sums of a few of them stay within 64 bits
_FIRST_YEAR, _LAST_YEAR = -62_135_596_800_000_000, 253_370_764_800_000_000  # years 1 and 9999


@dataclass(frozen=True, slots=True)
class Grid:
    """Slices of one length, aligned to the epoch + `offset`."""

    unit: int
    offset: int

    def ticks(self, times: Ints) -> Ints:
        """The slice of each time; times beyond 36 000 years are clipped to that edge."""
        near = np.clip(times, -_EDGE, _EDGE)
        return (near - self.offset) // self.unit

    def times(self, ticks: Ints) -> Ints:
        """The start of each slice."""
        return ticks * self.unit + self.offset


@dataclass(frozen=True, slots=True)
class Days:
    """Slices of whole days of a time zone, each beginning `offset` after its midnight.

    If a zone skips a midnight, the day begins at the first moment after it. Before year 1 and
    in year 9999 the days are those of UTC.
    """

    days: int
    offset: int
    zone: str

    def ticks(self, times: Ints) -> Ints:
        """The slice of each time."""
        known = np.clip(times, _FIRST_YEAR, _LAST_YEAR)
        stamps = pa.array(known).cast(pa.timestamp("us", tz=self.zone))
        local = pc.local_timestamp(stamps).cast(pa.int64()).to_numpy()
        local = np.where(times == known, local, times)
        near = np.clip(local, -_EDGE, _EDGE)
        return np.asarray((near - self.offset) // (self.days * DAY), np.int64)

    def times(self, ticks: Ints) -> Ints:
        """The start of each slice."""
        plain = Grid(self.days * DAY, self.offset).times(ticks)
        known = np.clip(plain, _FIRST_YEAR, _LAST_YEAR)
        naive = pa.array(known).cast(pa.timestamp("us"))
        stamps = pc.assume_timezone(naive, self.zone, ambiguous="earliest", nonexistent="latest")
        return np.where(plain == known, stamps.cast(pa.int64()).to_numpy(), plain)


@dataclass(frozen=True, slots=True)
class Layout:
    """Windows on a grid: `size` and `every` in ticks."""

    grid: Grid | Days
    size: int
    every: int

    def starts(self, windows: Ints) -> Ints:
        """The start of each window."""
        return self.grid.times(windows * self.every)

    def ends(self, windows: Ints) -> Ints:
        """The end of each window."""
        return self.grid.times(windows * self.every + self.size)

    def around(self, ticks: Ints) -> tuple[Ints, Ints]:
        """The first window over each tick, and the number of windows over it."""
        last = ticks // self.every
        first = (ticks - self.size) // self.every + 1
        return first, np.maximum(last - first + 1, 0)

    def first_open(self, watermark: int, keep: int = 0) -> int:
        """The first window that has not ended or is still kept at a watermark."""
        if watermark == END_OF_TIME:
            return NO_MORE
        reached = max(MIN_TIME, watermark - keep)
        tick = int(self.grid.ticks(np.array([reached], np.int64))[0])
        return (tick - self.size) // self.every + 1


def layout_of(window: Tumbling | Hopping) -> Layout:
    """The grid of a window spec."""
    unit = gcd(window.size, window.every)
    if window.zone is None:
        grid: Grid | Days = Grid(unit, window.offset)
    else:
        grid = Days(unit // DAY, window.offset, window.zone)
    return Layout(grid, window.size // unit, window.every // unit)
