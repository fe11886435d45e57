"""Tumbling windows said again in plain Python, row by row, from DESIGN §3 alone.

Bounds beyond 64 bits are the limit, and the last microsecond of all begins no window.
A batch first takes its rows in, then closes what its watermark allows. A row is late for
a window that has already left. Numbers are exact (`int`, `Fraction`, `Decimal`) until the
last step.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from typing import Any

LEAST, GREATEST = -(2**63), 2**63 - 1
Row = dict[str, Any]


@dataclass
class Batch:
    """Rows (with `_time`, perhaps `_sign`), and the watermarks before and after them."""

    rows: list[Row]
    before: int
    after: int


@dataclass
class Expected:
    """What must have left: panes as (start, end, key, aggregates); late as (batch, row, start)."""

    panes: list[tuple[int, int, tuple[Any, ...], dict[str, Any]]] = field(default_factory=list)
    late: list[tuple[int, Row, int]] = field(default_factory=list)


def tumbling(
    batches: list[Batch],
    *,
    size: int,
    offset: int,
    keys: list[str],
    aggregates: dict[str, tuple[str, str | None, int | None]],
) -> Expected:
    """Every pane and late row. An aggregate is (kind, column, scale of a decimal or None)."""
    expected = Expected()
    windows: dict[tuple[int, tuple[Any, ...]], list[Row]] = {}
    for number, batch in enumerate(batches):
        for row in batch.rows:
            start = min((row["_time"] - offset) // size * size + offset, GREATEST - 1)
            if _reached(start + size, batch.before):
                expected.late.append((number, row, max(start, LEAST)))
                continue
            windows.setdefault((start, tuple(sane(row[k]) for k in keys)), []).append(row)
        for start, key in sorted(windows, key=lambda group: group[0]):
            if _reached(start + size, batch.after):
                rows = windows.pop((start, key))
                if sum(_sign(row) for row in rows):
                    answers = {name: answer(rows, *how) for name, how in aggregates.items()}
                    bounds = max(start, LEAST), min(start + size, GREATEST)
                    expected.panes.append((*bounds, key, answers))
    return expected


def _reached(end: int, watermark: int) -> bool:
    return watermark == GREATEST or end <= watermark


def sane(value: Any) -> Any:
    """The value as a key: one NaN, no negative zero, hashable."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if isinstance(value, dict):
        return tuple((name, sane(inner)) for name, inner in value.items())
    return tuple(map(sane, value)) if isinstance(value, list) else value


def _sign(row: Row) -> int:
    return int(row.get("_sign", 1))


def answer(rows: list[Row], kind: str, column: str | None, scale: int | None) -> Any:
    """One aggregate over signed rows; none of them: count 0, others None."""
    if column is None:
        return sum(_sign(row) for row in rows)
    signed = [(row[column], _sign(row)) for row in rows if row[column] is not None]
    number = sum(sign for _, sign in signed)
    if kind == "count":
        return number
    if kind in ("min", "max"):
        order = max if kind == "max" else min
        return order(_left(signed), key=_nan_is_largest, default=None)
    if number <= 0:
        return None
    if scale is not None:
        return _decimal(signed, kind, number, scale)
    total = exact_sum([value * sign for value, sign in signed])
    return float(total) / number if kind == "mean" else total


def _left(signed: list[tuple[Any, int]]) -> list[Any]:
    """The values that came more often than they were retracted."""
    times: Counter[Any] = Counter()
    for value, sign in signed:
        times[sane(value)] += sign
    return [value for value, _ in signed if times[sane(value)] > 0]


def _nan_is_largest(value: Any) -> Any:
    nan = isinstance(value, float) and math.isnan(value)
    return nan, 0 if nan else value


def exact_sum(values: list[Any]) -> Any:
    """The sum, rounded once if the values are floats."""
    if all(isinstance(value, int) for value in values):
        return sum(values)
    special = [value for value in values if not math.isfinite(value)]
    if special:
        return special[0] if len(set(map(str, special))) == 1 else math.nan
    exact = sum(map(Fraction, values), Fraction(0))
    try:
        return float(exact)
    except OverflowError:
        return math.copysign(math.inf, exact)


def _decimal(signed: list[tuple[Any, int]], kind: str, number: int, scale: int) -> Decimal:
    wide = Context(prec=120)
    total = Decimal(0)
    for value, sign in signed:
        total = wide.add(total, wide.multiply(value, Decimal(sign)))
    if kind == "mean":
        total = wide.divide(total, Decimal(number))
    return total.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, wide)
