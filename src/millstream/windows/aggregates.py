"""What a window remembers of its rows: frozen values, and the functions that make them.

A value here names an aggregate and its column. How it is computed is an accumulator
(`windows/accumulators.py`), found by the value's type when a kernel is made, so that
building a pipeline needs no Arrow.

Nulls are ignored; an aggregate over no value is null, a count of none is 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

from millstream.errors import InvalidSpec


@runtime_checkable
class Aggregate(Protocol):
    """One aggregate of a window.

    `column` is the input column it reads (None: the rows themselves);
    `supports_retraction` says whether a row can be taken back out of it.
    """

    supports_retraction: ClassVar[bool]

    @property
    def column(self) -> str | None:
        """The input column it reads."""


@dataclass(frozen=True, slots=True)
class Count:
    """How many rows, or how many of `column` are not null: a long."""

    column: str | None = None
    supports_retraction: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.column is not None:
            _require_column("count", self.column)


@dataclass(frozen=True, slots=True)
class Sum:
    """The sum: a long of integers, a double of floats, a decimal of 10 digits more of decimals.

    Integers and decimals are exact, a sum that does not fit is an error. Floats are added
    in twice the precision of a double, so batches do not show in the answer; an infinity
    or NaN that is taken back leaves NaN.
    """

    column: str
    supports_retraction: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _require_column("sum", self.column)


@dataclass(frozen=True, slots=True)
class Mean:
    """The exact sum divided by the count: a double, of decimals a decimal of 4 digits more."""

    column: str
    supports_retraction: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _require_column("mean", self.column)


@dataclass(frozen=True, slots=True)
class Min:
    """The smallest value, of the column's own type; NaN is the largest float."""

    column: str
    supports_retraction: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _require_column("min", self.column)


@dataclass(frozen=True, slots=True)
class Max:
    """The largest value, of the column's own type; NaN is the largest float."""

    column: str
    supports_retraction: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _require_column("max", self.column)


def count(column: str | None = None) -> Count:
    """How many rows the window has; with a column, how many of its values are not null."""
    return Count(column)


def sum(column: str) -> Sum:
    """The sum of a column of integers, floats or decimals."""
    return Sum(column)


def mean(column: str) -> Mean:
    """The arithmetic mean of a column of integers, floats or decimals."""
    return Mean(column)


def min(column: str) -> Min:
    """The smallest value of a column of any ordered type."""
    return Min(column)


def max(column: str) -> Max:
    """The largest value of a column of any ordered type."""
    return Max(column)


def _require_column(name: str, column: object) -> None:
    if not isinstance(column, str) or not column.strip():
        raise InvalidSpec(
            f"{name} needs the name of a column", got=repr(column), do=f'write {name}("price")'
        )
