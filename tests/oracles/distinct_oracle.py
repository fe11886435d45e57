"""Distinct said again in plain Python, row by row, from DESIGN §3 alone.

A row passes unless an earlier row of its key that passed is at most `within` away (ever,
without `within`). It is late when its time + `within` is behind the watermark. The oracle
forgets nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

GREATEST = 2**63 - 1
Row = dict[str, Any]


@dataclass
class Expected:
    """The rows that passed, per batch in order of origin, and those that were late."""

    passed: list[list[Row]] = field(default_factory=list)
    late: list[Row] = field(default_factory=list)


def distinct(
    batches: list[tuple[list[Row], int]], *, by: list[str], within: int | None
) -> Expected:
    """Batches are (rows, watermark before them); rows carry `_time` and their origin."""
    expected = Expected()
    seen: dict[tuple[Any, ...], list[int]] = {}
    for rows, before in batches:
        passed = []
        for row in sorted(rows, key=_origin):
            time = row["_time"]
            if within is not None and (time + within < before or before == GREATEST):
                expected.late.append(row)
                continue
            earlier = seen.setdefault(tuple(_sane(row[name]) for name in by), [])
            if within is None and earlier:
                continue
            if within is not None and any(abs(time - other) <= within for other in earlier):
                continue
            earlier.append(time)
            passed.append(row)
        expected.passed.append(passed)
    return expected


def _origin(row: Row) -> tuple[int, int, int, int]:
    return row["_source"], row["_partition"], row["_offset"], row["_sub"]


def _sane(value: Any) -> Any:
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if isinstance(value, dict):
        return tuple((name, _sane(inner)) for name, inner in value.items())
    return tuple(map(_sane, value)) if isinstance(value, list) else value
