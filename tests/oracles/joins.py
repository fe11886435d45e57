"""The join of two streams said again in plain Python, row by row, from DESIGN §3 alone.

A batch first takes its rows in, then lets go what its watermarks allow. A left and a right row
match if their keys are equal, none of them null, and lower <= right - left <= upper. A row is
kept until the other side's watermark is beyond the last time it could match. It is late when
all times it could match are forgotten on the other side, and none of them can still come on
time. The oracle looks at every pair there is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

GREATEST = 2**63 - 1
Row = dict[str, Any]


@dataclass
class Batch:
    """The rows of both sides (with `_time`), and each side's watermark before and after."""

    rows: tuple[list[Row], list[Row]]
    marks: tuple[tuple[int, int], tuple[int, int]]


@dataclass
class Left:
    """What must leave in one batch: pairs (None where a side has nothing), late rows."""

    pairs: list[tuple[Row | None, Row | None]] = field(default_factory=list)
    late: tuple[list[Row], list[Row]] = field(default_factory=lambda: ([], []))


@dataclass
class Kept:
    """A row that was taken in, and what has become of it."""

    row: Row
    matched: bool = False
    left: bool = False


def beyond(watermark: int, time: int) -> bool:
    """Whether a watermark is beyond a time; at the end of time it is beyond all."""
    return watermark > time or watermark == GREATEST


def joined(
    batches: list[Batch],
    *,
    on: list[tuple[str, str]],
    within: tuple[int, int] | None,
    how: str = "inner",
) -> list[Left]:
    """Everything that leaves, batch by batch."""
    known: tuple[list[Kept], list[Kept]] = ([], [])
    lefts = []
    for batch in batches:
        left = Left()
        new = [taken_in(batch, side, within, left) for side in (0, 1)]
        old = [
            [kept for kept in known[side] if within is None or
             not beyond(batch.marks[1 - side][0], last_match(kept.row, side, within))]
            for side in (0, 1)
        ]  # fmt: skip
        for ours in new[0]:
            for theirs in [*new[1], *old[1]]:
                meet(ours, theirs, on, within, left)
        for theirs in new[1]:
            for ours in old[0]:
                meet(ours, theirs, on, within, left)
        for side in (0, 1):
            known[side].extend(new[side])
            if how == "full" or how == ("left", "right")[side]:
                let_go(known[side], side, on, within, batch, left)
        lefts.append(left)
    return lefts


def taken_in(batch: Batch, side: int, within: tuple[int, int] | None, left: Left) -> list[Kept]:
    """The rows of one side that are not late."""
    found = []
    for row in batch.rows[side]:
        if within is not None and is_late(row, side, within, batch.marks):
            left.late[side].append(row)
        else:
            found.append(Kept(row))
    return found


def last_match(row: Row, side: int, within: tuple[int, int]) -> int:
    """The last time of the other side that a row can match."""
    return int(row["_time"] + (within[1] if side == 0 else -within[0]))


def is_late(row: Row, side: int, within: tuple[int, int], marks: Any) -> bool:
    """Whether the last time a row can match is forgotten, and can no longer come on time."""
    last = last_match(row, side, within)
    return beyond(marks[1 - side][0], last) and beyond(
        marks[side][0], last_match({"_time": last}, 1 - side, within)
    )


def meet(ours: Kept, theirs: Kept, on: Any, within: tuple[int, int] | None, left: Left) -> None:
    """Add the pair if the two match."""
    keys = [(sane(ours.row[a]), sane(theirs.row[b])) for a, b in on]
    if any(a is None or b is None or a != b for a, b in keys):
        return
    if within and not within[0] <= theirs.row["_time"] - ours.row["_time"] <= within[1]:
        return
    ours.matched = theirs.matched = True
    left.pairs.append((ours.row, theirs.row))


def let_go(
    rows: list[Kept], side: int, on: Any, within: tuple[int, int] | None, batch: Batch, left: Left
) -> None:
    """Rows of an outer side that nothing can match any more, those without a key at once."""
    assert within is not None
    for kept in rows:
        if kept.matched or kept.left:
            continue
        keyless = any(kept.row[pair[side]] is None for pair in on)
        if keyless or beyond(batch.marks[1 - side][1], last_match(kept.row, side, within)):
            kept.left = True
            left.pairs.append((kept.row, None) if side == 0 else (None, kept.row))


def sane(value: Any) -> Any:
    """A value that equals its equals: one NaN, nested ones comparable."""
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    if isinstance(value, dict):
        return tuple((name, sane(inner)) for name, inner in value.items())
    if isinstance(value, list):
        return [sane(inner) for inner in value]
    return value
