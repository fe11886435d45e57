"""Rows of a batch by key and time, and which of them have been matched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.event_time.batch_time import END_OF_TIME, MIN_TIME
from millstream.state.runs.search import bisect
from millstream.state.sorting import arrange, by_group
from millstream.state.spec import HASH

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Mask = NDArray[np.bool_]
    Words = NDArray[np.uint64]

_SIGN_BIT = np.uint64(1 << 63)


@dataclass(frozen=True, slots=True)
class Groups:
    """The distinct keys of a batch, from both sides: their hashes and columns."""

    hashes: Words
    keys: tuple[pa.Array, ...]

    def table(self, groups: Ints, names: Sequence[str]) -> pa.Table:
        """Some of the keys as rows, with their columns under these names."""
        taken = pa.array(groups)
        columns = {name: key.take(taken) for name, key in zip(names, self.keys, strict=True)}
        return pa.table({HASH: pa.array(self.hashes[groups]), **columns})


def grouped(
    hashes: Sequence[Words], keys: Sequence[Sequence[pa.Array]]
) -> tuple[Groups, list[Ints]]:
    """The distinct keys of several tables, and for each row the number of its key."""
    lengths = [len(part) for part in hashes]
    every = np.concatenate(hashes)
    columns = [pa.concat_arrays(parts) for parts in zip(*keys, strict=True)]
    order, starts, arranged = arrange(np.zeros(len(every), np.int64), every, columns)
    numbers = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(every)))
    if order is not None:
        every = every[order]
        placed = np.empty(len(numbers), np.int64)
        placed[order] = numbers
        numbers = placed
    firsts = pa.array(starts)
    known = Groups(every[starts], tuple(key.take(firsts) for key in arranged))
    return known, np.split(numbers, np.cumsum(lengths)[:-1])


class Sorted:
    """Rows of one side by (group, time), and whether they have been matched."""

    def __init__(self, rows: pa.Table, groups: Ints, times: Ints, count: int) -> None:
        order = by_group(groups, times) if len(groups) else groups
        self.rows = rows.take(pa.array(order))
        self.groups, self.times = groups[order], times[order]
        self._starts = np.searchsorted(self.groups, np.arange(count + 1))
        self._words = sortable(self.times)
        self._alone = np.ones(len(groups), np.bool_)

    def near(
        self, groups: Ints, lows: Ints, highs: Ints, asking: Mask | None = None
    ) -> tuple[Ints, Ints]:
        """For each group and time span, both ends included, the first row and the number of rows.

        The number is 0 where `asking` is false.
        """
        begin, end = self._starts[groups], self._starts[groups + 1]
        first = bisect(self._words, sortable(lows), begin, end)
        last = bisect(self._words, sortable(highs) + np.uint64(1), first, end)
        last = np.where(highs == END_OF_TIME, end, last)
        if asking is not None:
            last = np.where(asking, last, first)
        return self._found(first, last)

    def all_of(self, groups: Ints) -> tuple[Ints, Ints]:
        """For each group, its first row and the number of rows."""
        return self._found(self._starts[groups], self._starts[groups + 1])

    def match(self, rows: Mask) -> None:
        """Mark these rows, in order of (group, time), as matched."""
        self._alone &= ~rows

    def _found(self, first: Ints, last: Ints) -> tuple[Ints, Ints]:
        some = last > first
        covered = np.bincount(first[some], minlength=len(self.times) + 1)
        covered -= np.bincount(last[some], minlength=len(self.times) + 1)
        self._alone &= np.cumsum(covered[:-1]) == 0
        return first, last - first

    @property
    def alone(self) -> Mask:
        """Which rows have not been matched."""
        return self._alone


def sortable(times: Ints) -> Words:
    """Unsigned words that sort like the signed times."""
    return times.view(np.uint64) ^ _SIGN_BIT


def moved(times: Ints, by: int) -> Ints:
    """The times shifted by so much, within the range of time."""
    if by >= 0:
        return np.where(times > END_OF_TIME - by, END_OF_TIME, times + by)
    return np.where(times < MIN_TIME - by, MIN_TIME, times + by)
