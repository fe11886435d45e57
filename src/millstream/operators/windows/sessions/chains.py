"""Spans of time that follow each other closely, chained for all keys at once.

Times are any 64-bit integers: sums stop at the limits, differences are unsigned and exact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from millstream.event_time.batch_time import END_OF_TIME
from millstream.state.sorting import in_one_word

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Mask = NDArray[np.bool_]


def chain_heads(new_group: Mask, firsts: Ints, lasts: Ints, reach: int) -> Mask:
    """Which spans begin a chain: no span before them in their group comes within `reach`.

    Spans are sorted by (group, first); `new_group` marks the first one of each group.
    """
    heads = new_group.copy()
    reached = _largest_so_far(new_group, lasts)[:-1]
    away = firsts[1:].view(np.uint64) - reached.view(np.uint64)
    heads[1:] |= (firsts[1:] > reached) & (away > np.uint64(reach))
    return heads


def _largest_so_far(new_group: Mask, values: Ints) -> Ints:
    """For each place the largest value of its group up to it."""
    if (new_group[1:] | (values[1:] >= values[:-1])).all():
        return values
    groups = np.cumsum(new_group, dtype=np.int64)
    words = in_one_word(groups, values)
    if words is not None:
        largest: Ints = np.maximum.accumulate(words) - words + values
        return largest
    by_value = np.argsort(values, kind="stable")
    ranks = np.empty(len(values), np.int64)
    ranks[by_value] = np.arange(len(values))
    groups *= len(values)
    ranked: Ints = values[by_value[np.maximum.accumulate(groups + ranks) - groups]]
    return ranked


def later(times: Ints, by: int) -> Ints:
    """The times so much later, at most the end of time."""
    return np.where(times > END_OF_TIME - by, END_OF_TIME, times + by)
