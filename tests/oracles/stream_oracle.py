"""A source through its batches, said again in plain Python from DESIGN §3 alone.

W is the smallest, over the partitions, of (largest time seen - delay); it never goes back;
a partition that has shown no row holds it at the beginning. A batch first takes its rows
in, then closes what its watermark allows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

BEGINNING, END = -(2**63), 2**63 - 1
Row = dict[str, Any]


@dataclass
class Arrival:
    """One record: where it lies, its time (None: a bad row), and its columns."""

    partition: int
    offset: int
    time: int | None
    row: Row = field(default_factory=dict)


def in_order(records: list[tuple[int, int | None, Row]]) -> list[Arrival]:
    """Records (partition, time, row) with the offsets they get."""
    ends: dict[int, int] = {}
    arrivals = []
    for partition, time, row in records:
        offset = ends.get(partition, 0)
        ends[partition] = offset + 1
        arrivals.append(Arrival(partition, offset, time, row))
    return arrivals


def cut(arrivals: list[Arrival], batches: int) -> list[list[Arrival]]:
    """So many batches of about the same size, in order of arrival."""
    edges = [round(len(arrivals) * n / batches) for n in range(batches + 1)]
    return [arrivals[a:b] for a, b in pairwise(edges)]


def watermarks(
    batches: list[list[Arrival]], *, partitions: int, delay: int
) -> list[tuple[int, int]]:
    """W before and after each batch."""
    largest: dict[int, int] = {}
    marks, before = [], BEGINNING
    for batch in batches:
        for arrival in batch:
            if arrival.time is not None:
                known = largest.get(arrival.partition, arrival.time)
                largest[arrival.partition] = max(known, arrival.time)
        after = before
        if len(largest) == partitions:
            after = max(before, min(largest.values()) - delay)
        marks.append((before, after))
        before = after
    return marks
