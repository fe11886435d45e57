"""The size of a batch, learned from previous ones."""

from __future__ import annotations

import pytest

from millstream.engine.lanes.planner import Sizing, choose_ranges

MB = 1 << 20
RECORD = 200


def after(sizing: Sizing, size: int, seconds: float, *, limited: bool = True) -> float:
    sizing.learn({"bids": (size, size // RECORD)}, seconds, limited=limited)
    return sizing.budget


def test_a_backlog_is_read_in_full_batches_from_the_third_one_on() -> None:
    """At 100 MB a second and 0.1 s for each batch, whatever it holds."""
    sizing, sizes = Sizing(3.0), []
    for _ in range(4):
        sizes.append(round(sizing.budget / MB))
        after(sizing, int(sizing.budget), 0.1 + sizing.budget / (100 * MB))
    assert sizes == [4, 32, 192, 192]


def test_batches_are_sized_to_take_the_target_time() -> None:
    sizing = Sizing(0.5)
    assert after(sizing, 4 * MB, 0.1) == 20 * MB
    assert after(sizing, 20 * MB, 1.0) == 10 * MB


def test_one_slow_batch_does_not_make_the_next_ones_tiny() -> None:
    sizing = Sizing(1.0, budget=64 * MB)
    assert after(sizing, 64 * MB, 600.0) == 32 * MB
    for _ in range(20):
        after(sizing, int(sizing.budget), 600.0)
    assert sizing.budget == 4 * MB


@pytest.mark.parametrize(("seconds", "budget"), [(0.001, 16 * MB), (0.5, 8 * MB)])
def test_a_batch_below_its_budget_only_lowers_it(seconds: float, budget: float) -> None:
    sizing = Sizing(1.0, budget=16 * MB)
    assert after(sizing, 2 * MB, seconds, limited=False) == budget


def test_partitions_give_the_same_share_of_their_records() -> None:
    sizing = Sizing(1.0, budget=4 * MB)
    rows = 4 * MB // RECORD
    chosen, limited = choose_ranges({"bids": {0: (0, 3 * rows), 1: (7, 7 + rows)}}, sizing)
    taken = {partition: b - a for partition, (a, b) in chosen["bids"].items()}
    assert limited
    assert taken == pytest.approx({0: 3 * rows / 4, 1: rows / 4}, abs=1)
    assert [a for a, _ in chosen["bids"].values()] == [0, 7]
