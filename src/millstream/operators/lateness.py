"""Which rows are late: those whose event time is behind the watermark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.event_time.batch_time import END_OF_TIME
from millstream.state.arrays.numpy_columns import int_values, plain
from millstream.state.row_columns import TIME

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]


def part_late(rows: pa.Table, watermark: int) -> tuple[pa.Table, Ints, Ints]:
    """The rows that are on time, their times, and the indices of the late ones.

    A row at the watermark is on time; at the end of time all rows are late.
    """
    times = int_values(plain(rows[TIME]))
    gone = times < watermark
    if watermark == END_OF_TIME:
        gone[:] = True
    late = np.flatnonzero(gone)
    if len(late):
        kept = np.flatnonzero(~gone)
        rows, times = rows.take(pa.array(kept)), times[kept]
    return rows, times, late
