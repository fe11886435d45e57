"""Which rows pass, in order of arrival: each one, unless a row near it has passed before.

A sequential rule, solved for all groups at once. The number of array operations grows with
the logarithm of the largest group, whatever the order of arrival.

Sort a group by time, and let M(i) be the solution for its rows i, i+1, … alone. Adding row i
on the left, its only rival is h, the earliest row of M(i+1): rows that pass are apart, so
at most one of them is near i. If h is near and arrived first, M(i) = M(i+1). Otherwise i
passes, the rows near i do not, and M(i) = {i} and M(first row beyond i's reach). Hence:

- a row j stays the head of M(i) for smaller and smaller i until a row that arrived
  earlier, or is out of j's reach, takes over: `takes_over(j)` is the last such i before j,
  and all heads lie on one path of it, from the group's last row;
- the solution M(0) is a path as well: its head, then the head of M(first row beyond it), …

Paths are walked by doubling: the rows reached in 2^k steps give those reached in 2^(k+1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Mask = NDArray[np.bool_]
    Words = NDArray[np.uint64]


def passing(groups: Ints, times: Ints, arrivals: Ints, within: int) -> Mask:
    """Which rows pass, in order of arrival, unless a row of their group that passed is near.

    Near is at most `within` away in time. Rows are sorted by (group, time); no two have
    the same arrival.
    """
    count = len(times)
    passes = np.ones(count, np.bool_)
    if count < 2:
        return passes
    near = np.zeros(count + 1, np.bool_)  # whether row i and row i - 1 are near
    gaps = _words(times)[1:] - _words(times)[:-1]
    near[1:-1] = (groups[1:] == groups[:-1]) & (gaps <= np.uint64(within))
    crowded = np.flatnonzero(near[:-1] | near[1:])
    if len(crowded):
        chains = np.flatnonzero(~near[crowded])
        passes[crowded] = _solve(times[crowded], arrivals[crowded], chains, within)
    return passes


def _solve(times: Ints, arrivals: Ints, firsts: Ints, within: int) -> Mask:
    """The rule for chains of rows, each near the next; `firsts` are where chains begin."""
    count = len(times)
    lasts = np.append(firsts[1:], count) - 1
    sizes = lasts - firsts + 1
    first_of, last_of = np.repeat(firsts, sizes), np.repeat(lasts, sizes)
    rows = np.arange(count, dtype=np.int64)
    out_of_reach = _furthest(_words(times), rows, first_of, -1, within) - 1
    takes_over = np.maximum(out_of_reach, last_smaller(arrivals))
    takes_over[takes_over < first_of] = count
    heads = walked(lasts, takes_over)
    head_at: Ints = np.cumsum(heads) - heads  # the place, among heads, of the head of M(row)
    head_rows = np.flatnonzero(heads)
    beyond = _furthest(_words(times), head_rows, last_of[head_rows], 1, within) + 1
    ended = beyond > last_of[head_rows]
    beyond[ended] = 0
    follows = np.where(ended, len(head_rows), head_at[beyond])
    passes = np.zeros(count, np.bool_)
    passes[head_rows[walked(head_at[firsts], follows)]] = True
    return passes


def _furthest(times: Words, rows: Ints, limits: Ints, direction: int, within: int) -> Ints:
    """For each row, the furthest one towards its limit that is at most `within` away."""
    reached = rows.copy()
    longest = int(np.abs(limits - rows).max())
    for power in reversed(range(longest.bit_length())):
        further = reached + direction * (1 << power)
        inside = (further <= limits) if direction > 0 else (further >= limits)
        further[~inside] = 0
        # Unsigned differences are exact over the whole range of 64-bit times.
        away = times[further] - times[rows] if direction > 0 else times[rows] - times[further]
        inside &= away <= np.uint64(within)
        np.copyto(reached, further, where=inside)
    return reached


def last_smaller(values: Ints) -> Ints:
    """For each index, the nearest previous index with a smaller value, or -1.

    A tree of minima over pairs is climbed to the first subtree on the left that holds a
    smaller value, then descended towards its right end.
    """
    levels = _minima(values)
    rows = np.arange(len(values), dtype=np.int64)
    nodes = rows.copy()
    hits: list[tuple[Ints, Ints]] = []
    for minima in levels:
        left = nodes - 1
        hit = (nodes & 1 == 1) & (minima[left] < values[rows])
        hits.append((rows[hit], left[hit]))
        climbing = ~hit & (nodes > 1)
        rows, nodes = rows[climbing], nodes[climbing] >> 1
    found = np.full(len(values), -1, np.int64)
    rows, nodes = rows[:0], nodes[:0]
    for level in reversed(range(len(levels))):
        if level + 1 < len(levels):
            nodes = 2 * nodes + 1
            nodes -= levels[level][nodes] >= values[rows]
        rows = np.concatenate([rows, hits[level][0]])
        nodes = np.concatenate([nodes, hits[level][1]])
    found[rows] = nodes
    return found


def _minima(values: Ints) -> list[Ints]:
    """The values, then the minima of their pairs, of pairs of those, … up to one."""
    levels = [_even(values)]
    while len(levels[-1]) > 2:
        levels.append(_even(np.minimum(levels[-1][::2], levels[-1][1::2])))
    return levels


def _even(values: Ints) -> Ints:
    if len(values) % 2 == 0:
        return values
    return np.append(values, np.int64(2**63 - 1))


def walked(starts: Ints, steps: Ints) -> Mask:
    """Every index on the paths from `starts`; a step to `len(steps)` ends a path.

    Paths must be disjoint.
    """
    count = len(steps)
    jumps = np.append(steps, count)
    on_path = np.zeros(count, np.bool_)
    members = starts
    while len(members):
        on_path[members] = True
        members = jumps[np.flatnonzero(on_path)]
        members = members[members < count]
        jumps = jumps[jumps]
    return on_path


def _words(times: Ints) -> Words:
    return times.view(np.uint64)
