"""Binary search over rows sorted by (order, hash), for many wanted rows at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Rows = NDArray[np.int64]
    Orders = NDArray[np.int64]
    Hashes = NDArray[np.uint64]

_FEW_ORDERS = 16


def spans(
    orders: Orders, hashes: Hashes, wanted_orders: Orders, wanted_hashes: Hashes
) -> tuple[Rows, Rows]:
    """For each wanted (order, hash), the first equal row and the number of equal rows.

    The cost depends on the wanted rows and the logarithm of the searched ones.
    """
    starts = lower_bound(orders, hashes, wanted_orders, wanted_hashes)
    lengths = np.zeros(len(starts), dtype=np.int64)
    hit = _equal_at(orders, hashes, starts, wanted_orders, wanted_hashes)
    lengths[hit] = 1
    rows = np.flatnonzero(hit)
    more = rows[
        _equal_at(orders, hashes, starts[rows] + 1, wanted_orders[rows], wanted_hashes[rows])
    ]
    if len(more):
        ends = _upper_bound(orders, hashes, wanted_orders[more], wanted_hashes[more])
        lengths[more] = ends - starts[more]
    return starts, lengths


def lower_bound(
    orders: Orders, hashes: Hashes, wanted_orders: Orders, wanted_hashes: Hashes
) -> Rows:
    """For each wanted (order, hash), the first row that is not below it.

    Fastest if wanted rows of the same order are adjacent, sorted by hash.
    """
    firsts = np.flatnonzero(np.diff(wanted_orders, prepend=wanted_orders[:1] - 1))
    low = np.searchsorted(orders, wanted_orders[firsts], side="left")
    high = np.searchsorted(orders, wanted_orders[firsts], side="right")
    sizes = np.diff(firsts, append=len(wanted_orders))
    if len(firsts) > _FEW_ORDERS:
        return bisect(hashes, wanted_hashes, np.repeat(low, sizes), np.repeat(high, sizes))
    found = np.empty(len(wanted_orders), dtype=np.int64)
    for first, size, start, stop in zip(firsts, sizes, low, high, strict=True):
        wanted = wanted_hashes[first : first + size]
        found[first : first + size] = start + np.searchsorted(hashes[start:stop], wanted)
    return found


def _upper_bound(
    orders: Orders, hashes: Hashes, wanted_orders: Orders, wanted_hashes: Hashes
) -> Rows:
    after = np.searchsorted(orders, wanted_orders, side="right")
    last = wanted_hashes == np.uint64(2**64 - 1)
    following = wanted_hashes + np.uint64(1)
    return np.where(last, after, lower_bound(orders, hashes, wanted_orders, following))


def bisect(hashes: Hashes, wanted: Hashes, low: Rows, high: Rows) -> Rows:
    """The first row in each [low, high) whose hash is not below the wanted one."""
    low, high = low.astype(np.int64), high.astype(np.int64)
    active = np.flatnonzero(low < high)
    while len(active):
        middle = (low[active] + high[active]) >> 1
        below = hashes[middle] < wanted[active]
        low[active] = np.where(below, middle + 1, low[active])
        high[active] = np.where(below, high[active], middle)
        active = active[low[active] < high[active]]
    return low


def _equal_at(
    orders: Orders, hashes: Hashes, rows: Rows, wanted_orders: Orders, wanted_hashes: Hashes
) -> NDArray[np.bool_]:
    if len(orders) == 0:
        return np.zeros(len(rows), dtype=np.bool_)
    at = np.minimum(rows, len(orders) - 1)
    equal: NDArray[np.bool_] = (hashes[at] == wanted_hashes) & (rows < len(orders))
    hit = np.flatnonzero(equal)
    equal[hit] = orders[at[hit]] == wanted_orders[hit]
    return equal
