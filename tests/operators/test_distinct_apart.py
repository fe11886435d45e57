"""The rule of keeping apart, against a loop that follows it row by row."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from millstream.operators.distinct.non_overlapping import last_smaller, passing, walked

Ints = NDArray[np.int64]


def one_by_one(groups: Ints, times: Ints, arrivals: Ints, within: int) -> list[bool]:
    passed: dict[int, list[int]] = {}
    answer = [False] * len(times)
    for row in np.argsort(arrivals).tolist():
        earlier = passed.setdefault(int(groups[row]), [])
        if all(abs(int(times[row]) - other) > within for other in earlier):
            earlier.append(int(times[row]))
            answer[row] = True
    return answer


def test_a_row_out_of_reach_of_the_one_that_passed_passes_too() -> None:
    times, arrivals = np.array([0, 5, 10]), np.array([2, 1, 0])
    passes = passing(np.zeros(3, np.int64), times, arrivals, 5)
    assert passes.tolist() == [True, False, True]


@pytest.mark.parametrize("seed", range(5))
def test_crowded_rows_in_any_order_pass_as_in_the_loop(seed: int) -> None:
    random = np.random.default_rng(seed)
    for _ in range(100):
        count, span = int(random.integers(2, 40)), int(random.integers(1, 60))
        rows = sorted(
            zip(random.integers(0, 3, count), random.integers(0, span, count), strict=True)
        )
        groups, times = np.array(rows, np.int64).T.copy()
        arrivals, within = random.permutation(count), int(random.integers(0, 15))
        wanted = one_by_one(groups, times, arrivals, within)
        assert passing(groups, times, arrivals, within).tolist() == wanted


@settings(max_examples=200)
@given(data=st.data())
def test_the_rows_that_pass_are_those_of_the_loop(data: st.DataObject) -> None:
    near = st.integers(0, 30)
    far = st.sampled_from([-(2**63), -(2**63) + 2, 2**63 - 3, 2**63 - 1])
    rows = data.draw(st.lists(st.tuples(st.integers(0, 2), near | far), max_size=40).map(sorted))
    groups, times = np.array(rows, np.int64).reshape(-1, 2).T.copy()
    if data.draw(st.booleans()):
        arrivals = np.array(data.draw(st.permutations(range(len(rows)))), np.int64)
    else:
        arrivals = np.arange(len(rows), dtype=np.int64)
    within = data.draw(st.integers(0, 12) | st.just(2**60 - 1))

    assert passing(groups, times, arrivals, within).tolist() == (
        one_by_one(groups, times, arrivals, within)
    )


@given(st.lists(st.integers(0, 20), max_size=40))
def test_the_last_smaller_value_is_found(values: list[int]) -> None:
    wanted = [
        max((j for j in range(i) if values[j] < value), default=-1)
        for i, value in enumerate(values)
    ]
    assert last_smaller(np.array(values, np.int64)).tolist() == wanted


def test_paths_are_walked_to_their_ends() -> None:
    steps = np.array([1, 2, 8, 4, 5, 6, 7, 8])
    assert np.flatnonzero(walked(np.array([0]), steps)).tolist() == [0, 1, 2]
    assert np.flatnonzero(walked(np.array([1, 3]), steps)).tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert not walked(np.array([], np.int64), steps).any()


@pytest.mark.parametrize("arrival", ["in order", "nearly in order", "in any order", "backwards"])
def test_a_million_rows_of_one_group_are_solved_whatever_their_order(arrival: str) -> None:
    count, random = 1_000_000, np.random.default_rng(3)
    rows = np.arange(count, dtype=np.int64)
    arrivals = {
        "in order": rows,
        "nearly in order": np.argsort(np.argsort(rows + random.integers(0, 50, count))),
        "in any order": random.permutation(rows),
        "backwards": rows[::-1].copy(),
    }[arrival]
    started = time.process_time()
    passes = passing(np.zeros(count, np.int64), rows, arrivals, 1)

    assert time.process_time() - started < 10
    apart = np.diff(rows[passes])
    assert apart.min() >= 2
    assert apart.max() <= 3
