"""The functions that make aggregates: `ms.count()`, `ms.sum("price")`, `ms.largest("price", 3)`.

The semantics of each are documented at the spec it returns (`operators/aggregates/spec.py`).
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from millstream.errors import InvalidSpec
from millstream.operators.aggregates.spec import (
    KINDS,
    Aggregate,
    ApproxDistinct,
    ApproxQuantile,
    Collect,
    Count,
    CountDistinct,
    First,
    Frequent,
    Largest,
    Last,
    Max,
    Mean,
    Min,
    OfColumn,
    Quantile,
    Smallest,
    Stddev,
    Sum,
    Variance,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "Aggregate",
    "ApproxDistinct",
    "ApproxQuantile",
    "Collect",
    "Count",
    "CountDistinct",
    "First",
    "Frequent",
    "Largest",
    "Last",
    "Max",
    "Mean",
    "Min",
    "Quantile",
    "Smallest",
    "Stddev",
    "Sum",
    "Variance",
]


def count(column: str | None = None) -> Count:
    """The number of rows; with a column, the number of its values that are not null."""
    return Count(column)


def sum(column: str) -> Sum:
    """The sum of a column of integers, floats or decimals."""
    return Sum(column)


def mean(column: str) -> Mean:
    """The arithmetic mean of a column of integers, floats or decimals."""
    return Mean(column)


def variance(column: str) -> Variance:
    """The variance of a sample (n - 1), as Spark's `variance`; null for fewer than two values."""
    return Variance(column)


def stddev(column: str) -> Stddev:
    """The standard deviation of a sample (n - 1), as Spark's `stddev`."""
    return Stddev(column)


def min(column: str) -> Min:
    """The smallest value of a column of any ordered type."""
    return Min(column)


def max(column: str) -> Max:
    """The largest value of a column of any ordered type."""
    return Max(column)


def first(column: str) -> First:
    """The first value that is not null, in the order of origin."""
    return First(column)


def last(column: str) -> Last:
    """The last value that is not null, in the order of origin."""
    return Last(column)


def collect(column: str, *, limit: int | None = None) -> Collect:
    """All values in the order of origin as a list, or the first `limit` of them."""
    return Collect(column, limit)


def count_distinct(column: str) -> CountDistinct:
    """The exact number of distinct values of a column."""
    return CountDistinct(column)


def quantile(column: str, p: float) -> Quantile:
    """The exact quantile `p` of a column of numbers: 0.5 is the median."""
    return Quantile(column, p)


def approx_distinct(column: str, *, error: float = 0.02) -> ApproxDistinct:
    """The approximate number of distinct values, with a standard error of at most `error`."""
    return ApproxDistinct(column, error)


def approx_quantile(column: str, p: float, *, error: float = 0.01) -> ApproxQuantile:
    """The approximate quantile `p` of a column of numbers, within the relative `error`."""
    return ApproxQuantile(column, p, error)


def frequent(column: str, n: int) -> Frequent:
    """The `n` most frequent values with their counts, the most frequent first."""
    return Frequent(column, n)


def largest(column: str, n: int) -> Largest:
    """The `n` largest values, the largest first."""
    return Largest(column, n)


def smallest(column: str, n: int) -> Smallest:
    """The `n` smallest values, the smallest first."""
    return Smallest(column, n)


def to_json(aggregate: Aggregate) -> dict[str, Any]:
    """An aggregate as it is stored in a checkpoint: its kind and every option."""
    if not isinstance(aggregate, OfColumn):
        return {"kind": aggregate.kind}
    options = {field.name: getattr(aggregate, field.name) for field in fields(aggregate)}  # type: ignore[arg-type]
    return {"kind": aggregate.kind, **options}


def from_json(kept: Mapping[str, Any]) -> Aggregate:
    """The aggregate that `to_json` described.

    Raises:
        InvalidSpec: this version has no such aggregate, or it is user-defined, which is not
            stored in checkpoints.
    """
    made = KINDS.get(kept.get("kind", ""))
    if made is None:
        raise InvalidSpec(
            "reading state needs a built-in aggregate of this version",
            got=repr(kept.get("kind")),
            do="run the pipeline that wrote it",
        )
    found: Aggregate = made(**{name: value for name, value in kept.items() if name != "kind"})  # type: ignore[assignment]
    return found
