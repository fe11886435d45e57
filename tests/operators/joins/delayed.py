"""Batches of two sides whose rows are at most a delay behind the largest time of their side."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from millstream.event_time.batch_time import END_OF_TIME, MIN_TIME

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    Row = dict[str, Any]
    Marks = tuple[tuple[int, int], tuple[int, int]]


def batches(
    rows: Sequence[tuple[int, Row]], places: Sequence[int], delay: int
) -> Iterator[tuple[list[Row], list[Row], Marks]]:
    """The rows (side and row) cut at these places: those of both sides, and the watermarks before
    and after. The last batch is empty and ends at the end of time."""
    before = [MIN_TIME, MIN_TIME]
    for low, high in pairwise([0, *places, len(rows), len(rows)]):
        seen = [[row["_time"] - delay for s, row in rows[:high] if s == side] for side in (0, 1)]
        after = [max([before[side], *seen[side]]) for side in (0, 1)]
        if low == len(rows):
            after = [END_OF_TIME, END_OF_TIME]
        left, right = ([row for s, row in rows[low:high] if s == side] for side in (0, 1))
        yield left, right, ((before[0], after[0]), (before[1], after[1]))
        before = after
