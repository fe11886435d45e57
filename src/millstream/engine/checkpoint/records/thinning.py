"""Which commits of a job stay: fewer, the older they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

SECOND = 1_000_000
MINUTE, HOUR = 60 * SECOND, 3600 * SECOND
RECENT, RECENT_COMMITS = 10 * MINUTE, 3_000
_FEWEST = 16


class Commit(NamedTuple):
    """A commit and its batch clock."""

    batch: int
    clock: int


class Kept(NamedTuple):
    """The commits that stay, ascending: `recent` are the last of them, without one left out."""

    thinned: list[int]
    recent: list[int]


def kept(commits: Sequence[Commit], history: int, *, recent: int = RECENT_COMMITS) -> Kept:
    """Choose from the commits of a job, which are in order.

    Within the last ten minutes all stay (at most `recent`), within an hour the last one of each
    minute, within the history the last one of each hour. Of the older ones the newest stays, so
    that every moment of the history can be reached.
    """
    if not commits:
        return Kept([], [])
    now = commits[-1].clock
    first = max(0, len(commits) - recent)
    while commits[first].clock < now - min(RECENT, history):
        first += 1
    slots: dict[tuple[int, int], int] = {}
    for commit in commits[:first]:
        age = now - commit.clock
        if age > history:
            slots[0, 0] = commit.batch
            continue
        slot = MINUTE if age <= HOUR else HOUR
        slots[slot, commit.clock // slot] = commit.batch
    return Kept(sorted(set(slots.values())), [commit.batch for commit in commits[first:]])


def within(
    commits: Sequence[Commit], history: int, size: Callable[[Sequence[int]], int], limit: int
) -> Kept:
    """`kept`, and fewer if what only they need is larger than the limit.

    The recent ones take at most half of it. Of the others those go first whose neighbours are the
    closest, measured by their age.
    """
    recent = RECENT_COMMITS
    chosen = kept(commits, history, recent=recent)
    while len(chosen.recent) > _FEWEST and size(chosen.recent) > limit // 2:
        recent = len(chosen.recent) // 2
        chosen = kept(commits, history, recent=recent)
    thinned, clocks = list(chosen.thinned), dict(commits)
    while thinned and size([*thinned, *chosen.recent]) > limit:
        thinned.remove(_least(thinned, clocks, commits[-1].clock))
    return Kept(thinned, chosen.recent)


def _least(batches: Sequence[int], clocks: Mapping[int, int], now: int) -> int:
    """The commit that is missed least; the oldest one is the last to go."""

    def missed(place: int) -> float:
        after = clocks[batches[place + 1]] if place + 1 < len(batches) else now
        return (after - clocks[batches[place - 1]]) / (now - clocks[batches[place]] + 1)

    return batches[min(range(1, len(batches)), key=missed, default=0)]
