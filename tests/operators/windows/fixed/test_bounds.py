"""Starts and ends against Python's integers, which do not wrap."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.event_time.batch_time import END_OF_TIME, MIN_TIME
from millstream.operators.windows.fixed.bounds import ends_of, first_open, starts_of
from millstream.operators.windows.spec import LONGEST, Tumbling

times = st.integers(MIN_TIME, END_OF_TIME) | st.integers(-100, 100)
times |= st.integers(MIN_TIME, MIN_TIME + 50) | st.integers(END_OF_TIME - 50, END_OF_TIME)
windows = st.builds(
    Tumbling,
    st.integers(1, 60) | st.integers(1, LONGEST - 1) | st.just(86_400_000_000),
    st.integers(-100, 100) | st.integers(-LONGEST, LONGEST),
)


@given(times, windows)
def test_a_time_is_between_its_bounds_which_are_a_size_apart(time: int, window: Tumbling) -> None:
    [start] = starts_of(np.array([time]), window).tolist()
    [end] = ends_of(np.array([start]), window).tolist()

    true_start = (time - window.offset) // window.size * window.size + window.offset
    assert start == min(max(true_start, MIN_TIME), END_OF_TIME - 1)
    assert end == min(true_start + window.size, END_OF_TIME)
    assert start < end


@pytest.mark.parametrize(
    ("time", "window", "start", "end"),
    [
        (END_OF_TIME, Tumbling(1), END_OF_TIME - 1, END_OF_TIME),
        (END_OF_TIME - 1, Tumbling(1), END_OF_TIME - 1, END_OF_TIME),
        (END_OF_TIME - 2, Tumbling(1), END_OF_TIME - 2, END_OF_TIME - 1),
        (END_OF_TIME, Tumbling(10), END_OF_TIME - 7, END_OF_TIME),
        (MIN_TIME, Tumbling(10), MIN_TIME, MIN_TIME + 8),
        (MIN_TIME + 8, Tumbling(10), MIN_TIME + 8, MIN_TIME + 18),
        (MIN_TIME, Tumbling(1), MIN_TIME, MIN_TIME + 1),
    ],
)
def test_the_first_and_last_windows_end_with_time_itself(
    time: int, window: Tumbling, start: int, end: int
) -> None:
    assert starts_of(np.array([time]), window).tolist() == [start]
    assert ends_of(np.array([start]), window).tolist() == [end]


@given(times, windows, times)
def test_the_first_open_window_separates_those_that_have_ended_from_the_others(
    watermark: int, window: Tumbling, time: int
) -> None:
    [start] = starts_of(np.array([time]), window).tolist()
    [end] = ends_of(np.array([start]), window).tolist()

    gone = watermark == END_OF_TIME or (end != END_OF_TIME and end <= watermark)
    assert (start < first_open(watermark, window)) == gone


@pytest.mark.parametrize("watermark", [MIN_TIME, -1, 0, 9, 10, END_OF_TIME - 1])
def test_the_first_open_window_contains_the_watermark(watermark: int) -> None:
    start = first_open(watermark, Tumbling(10))
    assert start <= watermark < start + 10
