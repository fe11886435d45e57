"""Sliding windows and `.ordered()` said again in plain Python, from DESIGN §3 alone.

A row at t is late when t is behind the watermark before its batch. It leaves when the
watermark is beyond t: for sliding with all rows of its key in (t - size, t], ordered with the
others by (time, origin). Nothing is forgotten.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

Row = dict[str, Any]
GREATEST = 2**63 - 1
ORIGIN = ("_source", "_partition", "_offset", "_sub")


@dataclass
class Expected:
    """Per batch the rows that leave, for sliding each with the rows of its window."""

    left: list[list[tuple[Row, list[Row]]]] = field(default_factory=list)
    late: list[Row] = field(default_factory=list)


def sliding(
    batches: list[tuple[list[Row], int, int]], size: int, key: Callable[[Row], Hashable]
) -> Expected:
    """Batches are (rows, watermark before, watermark after)."""
    expected, seen, waiting = Expected(), [], []
    for rows, before, after in batches:
        for row in rows:
            if row["_time"] < before or before == GREATEST:
                expected.late.append(row)
            else:
                seen.append(row)
                waiting.append(row)
        ready = [row for row in waiting if row["_time"] < after or after == GREATEST]
        waiting = [row for row in waiting if not (row["_time"] < after or after == GREATEST)]
        ready.sort(key=_place)
        expected.left.append([(row, _window(row, seen, size, key)) for row in ready])
    return expected


def ordered(batches: list[tuple[list[Row], int, int]]) -> Expected:
    """As `sliding`, where nothing but the order matters."""
    return sliding(batches, 1, id)


def _window(row: Row, seen: list[Row], size: int, key: Callable[[Row], Hashable]) -> list[Row]:
    end = row["_time"]
    return [r for r in seen if key(r) == key(row) and end - size < r["_time"] <= end]


def _place(row: Row) -> tuple[int, ...]:
    return (row["_time"], *(row[name] for name in ORIGIN))
