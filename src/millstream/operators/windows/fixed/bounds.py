"""Starts and ends of tumbling windows over arrays, correct up to the limits of 64 bits.

The first window of a 64-bit time may begin before `MIN_TIME`, and the last may end after
`END_OF_TIME`: such a bound is clipped to the limit. `END_OF_TIME` itself is never a start, so
"all starts below `END_OF_TIME`" are all starts. Nothing wraps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from millstream.event_time.batch_time import END_OF_TIME, MIN_TIME

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from millstream.operators.windows.spec import Tumbling


def starts_of(times: NDArray[np.int64], window: Tumbling) -> NDArray[np.int64]:
    """The start of the window each time is in: the last boundary at or before it."""
    into = _into(times, window)
    starts = np.where(times < MIN_TIME + into, MIN_TIME, times - into)
    return np.minimum(starts, END_OF_TIME - 1)


def ends_of(starts: NDArray[np.int64], window: Tumbling) -> NDArray[np.int64]:
    """The end of the window with each start: the first boundary after it."""
    left = window.size - _into(starts, window)
    return np.where(starts > END_OF_TIME - left, END_OF_TIME, starts + left)


def first_open(watermark: int, window: Tumbling) -> int:
    """The smallest start whose window has not ended at a watermark.

    Windows with a smaller start have end <= watermark. At the end of time none is left, and the
    result is `END_OF_TIME`.
    """
    if watermark == END_OF_TIME:
        return END_OF_TIME
    return int(starts_of(np.array([watermark], np.int64), window)[0])


def _into(times: NDArray[np.int64], window: Tumbling) -> NDArray[np.int64]:
    """The distance of each time from the last boundary, from 0 to size − 1."""
    into = times % window.size
    return (into - window.offset) % window.size if window.offset else into
