"""Which commits stay: all of ten minutes, one a minute of an hour, one an hour of the history."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from millstream.engine.checkpoint.records.thinning import (
    HOUR,
    MINUTE,
    RECENT_COMMITS,
    SECOND,
    Commit,
    Kept,
    kept,
    within,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

DAY = 24 * HOUR
START = 1_767_225_600 * SECOND + 17 * SECOND


def every(gap: int, count: int) -> list[Commit]:
    return [Commit(n + 1, START + n * gap) for n in range(count)]


def stays(chosen: Kept) -> list[int]:
    return [*chosen.thinned, *chosen.recent]


def test_a_day_of_five_batches_a_second() -> None:
    commits = every(SECOND // 5, 5 * 26 * 3600)
    chosen = kept(commits, DAY)
    clocks, now = dict(commits), commits[-1].clock

    assert len(chosen.recent) == RECENT_COMMITS
    assert chosen.recent == [batch for batch, _ in commits[-RECENT_COMMITS:]]
    ages = [now - clocks[batch] for batch in chosen.thinned]
    assert sum(age <= HOUR for age in ages) in (50, 51)
    assert sum(HOUR < age <= DAY for age in ages) in (23, 24)
    assert sum(age > DAY for age in ages) == 1


def test_thinning_again_and_again_keeps_what_thinning_once_keeps() -> None:
    commits, step = every(7 * SECOND, 20_000), 37
    left: list[Commit] = []
    clocks = dict(commits)
    for first in range(0, len(commits), step):
        left += commits[first : first + step]
        left = [Commit(batch, clocks[batch]) for batch in stays(kept(left, DAY))]

    once = kept(commits, DAY)
    assert [commit.batch for commit in left][-len(once.recent) :] == once.recent
    for limit, most in ((HOUR, 60 * SECOND), (DAY, HOUR)):
        now = commits[-1].clock
        ages = [now - commit.clock for commit in left if now - commit.clock <= limit]
        gaps = [a - b for a, b in pairwise(ages)]
        assert max(gaps) <= 2 * most


@pytest.mark.parametrize("history", [0, MINUTE, 20 * MINUTE, 3 * HOUR, 40 * DAY])
def test_every_moment_of_the_history_can_be_reached(history: int) -> None:
    commits = every(11 * MINUTE + 3 * SECOND, 6_000)
    chosen = stays(kept(commits, history))
    clocks, now = dict(commits), commits[-1].clock

    assert chosen[-1] == commits[-1].batch
    assert chosen == sorted(set(chosen))
    assert now - clocks[chosen[0]] >= min(history, now - START)
    assert sum(now - clocks[batch] > history for batch in chosen) == 1


def test_a_fast_job_keeps_a_bounded_number_of_recent_commits() -> None:
    chosen = kept(every(SECOND // 50, 60_000), DAY)

    assert len(chosen.recent) == RECENT_COMMITS
    assert len(stays(chosen)) <= RECENT_COMMITS + 25


def test_a_clock_that_does_not_move_keeps_a_bounded_number() -> None:
    assert len(stays(kept(every(0, 10_000), DAY))) == RECENT_COMMITS + 1


def test_what_is_too_large_is_thinned_further() -> None:
    commits = every(SECOND, 200_000)

    def size(batches: Sequence[int]) -> int:
        return 1000 * len(batches)

    free = within(commits, DAY, size, 10**9)
    tight = within(commits, DAY, size, 60_000)

    assert stays(free) == stays(kept(commits, DAY))
    assert size(stays(tight)) <= 60_000
    assert tight.recent == [batch for batch, _ in commits[-len(tight.recent) :]]
    assert len(tight.recent) >= 16
    ages = [commits[-1].clock - dict(commits)[batch] for batch in tight.thinned]
    assert max(ages) > 20 * HOUR, "what is left reaches back as far"
