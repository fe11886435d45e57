"""Aggregates said again in plain Python, over one group's rows, from DESIGN §2 and §3 alone.

A row is (origin, value, sign). A row with sign -1 takes back the one with the same origin and
value. Nulls are ignored; numbers are exact (`Fraction`) until the last step.
"""

from __future__ import annotations

import math
from collections import Counter
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

Origin = tuple[int, ...]
Row = tuple[Origin, Any, int]


def order(value: Any) -> Any:
    """What values are sorted and compared by: one NaN above all, no negative zero."""
    if value is None:
        return (0,)
    if isinstance(value, float):
        return (1, math.isnan(value), 0.0 if math.isnan(value) else value + 0.0)
    if isinstance(value, dict):
        return (1, *(order(inner) for inner in value.values()))
    if isinstance(value, list):
        return (1, tuple(order(inner) for inner in value))
    return (1, value)


def standing(rows: list[Row]) -> list[tuple[Origin, Any]]:
    """The rows with a value that have not been retracted, in the order of origin."""
    net: Counter[Any] = Counter()
    known: dict[Any, tuple[Origin, Any]] = {}
    for origin, value, sign in rows:
        if value is not None:
            entry = (origin, order(value))
            net[entry] += sign
            known[entry] = (origin, value)
    left = [known[entry] for entry, count in net.items() for _ in range(count)]
    return sorted(left, key=lambda row: (row[0], order(row[1])))


def answer(kind: str, rows: list[Row], **options: Any) -> Any:
    """The aggregate of a kind over a group's rows."""
    return _KINDS[kind]([value for _, value in standing(rows)], **options)


def _ascending(values: list[Any]) -> list[Any]:
    return sorted(values, key=order)


def _variance(values: list[Any]) -> float | None:
    if len(values) < 2:
        return None
    if any(isinstance(value, float) and not math.isfinite(value) for value in values):
        return math.nan
    exact = list(map(Fraction, values))
    mean = sum(exact, Fraction(0)) / len(exact)
    return float(sum(((x - mean) ** 2 for x in exact), Fraction(0)) / (len(exact) - 1))


def _stddev(values: list[Any]) -> float | None:
    found = _variance(values)
    return None if found is None else math.sqrt(found)


def _quantile(values: list[Any], p: float) -> float | None:
    if not values:
        return None
    ascending = _ascending(values)
    place = p * (len(values) - 1)
    low, high = ascending[math.floor(place)], ascending[math.ceil(place)]
    if order(low) == order(high):
        return float(low)
    if not all(math.isfinite(value) for value in (low, high)):
        return float(low) + float(high)
    into = Fraction(place) - math.floor(place)
    return float((1 - into) * Fraction(low) + into * Fraction(high))


def at_place(values: list[Any], p: float) -> Any:
    """The value at place floor(p * (n - 1)), which an approximation has to be near."""
    return _ascending(values)[math.floor(p * (len(values) - 1))]


def _frequent(values: list[Any], n: int) -> list[dict[str, Any]] | None:
    counts = Counter(map(order, values))
    some = {order(value): value for value in values}
    ranked = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    return [{"value": some[key], "count": count} for key, count in ranked[:n]] or None


_KINDS: dict[str, Callable[..., Any]] = {
    "count": len,
    "variance": _variance,
    "stddev": _stddev,
    "min": lambda values: _ascending(values)[0] if values else None,
    "max": lambda values: _ascending(values)[-1] if values else None,
    "first": lambda values: values[0] if values else None,
    "last": lambda values: values[-1] if values else None,
    "collect": lambda values, limit=None: values[:limit],
    "count_distinct": lambda values: len(set(map(order, values))),
    "quantile": _quantile,
    "frequent": _frequent,
    "largest": lambda values, n: _ascending(values)[::-1][:n] or None,
    "smallest": lambda values, n: _ascending(values)[:n] or None,
}


def same(one: Any, other: Any, *, relative: float = 0.0) -> bool:
    """Whether two answers are the same; floats may differ by a share of themselves."""
    if isinstance(one, float) and isinstance(other, float) and relative:
        if math.isnan(one) or math.isnan(other):
            return math.isnan(one) and math.isnan(other)
        return math.isclose(one, other, rel_tol=relative, abs_tol=0.0)
    if isinstance(one, Decimal) and isinstance(other, Decimal):
        return one == other
    return type(one) is type(other) and order(one) == order(other)
