"""Windows that end when a value has moved: a frozen value, checked when it is made."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal

from millstream.duration import micros, text
from millstream.errors import InvalidSpec

Distance = int | float | Decimal | timedelta


@dataclass(frozen=True, slots=True)
class Delta:
    """The row whose `column` is `by` or more away from the window's opening row opens the next.

    Away is the absolute difference, of columns of numbers as a number, of times as a
    `timedelta`. Rows are taken per key in order of origin. A null or NaN is away from
    nothing: it belongs to the window that is open, and a window that begins with some is
    measured from its first other value.
    """

    column: str
    by: Distance

    def __post_init__(self) -> None:
        if not isinstance(self.column, str) or not self.column.strip():
            raise InvalidSpec(
                "delta needs the name of a column",
                got=repr(self.column),
                do='write delta("price", by=10)',
            )
        if not _is_distance(self.by):
            raise InvalidSpec(
                "the `by` of delta needs a number or a duration above zero",
                got=repr(self.by),
                do='write delta("price", by=10) or delta("ts", by="5 seconds")',
            )

    def __str__(self) -> str:
        if isinstance(self.by, timedelta):
            return f'delta("{self.column}", by="{text(micros(self.by))}")'
        return f'delta("{self.column}", by={self.by})'


def delta(column: str, by: Distance | str) -> Delta:
    """Windows that end when a column has moved by `by` from where the window began.

    >>> print(delta("price", by=10))
    delta("price", by=10)
    >>> print(delta("ts", by="5 seconds"))
    delta("ts", by="5 seconds")

    Raises:
        InvalidSpec: no column, or no number or duration above zero.
    """
    if not isinstance(by, str):
        return Delta(column, by)
    length = micros(by, what="the `by` of delta")
    try:
        return Delta(column, timedelta(microseconds=length))
    except OverflowError as error:
        raise InvalidSpec(
            "the `by` of delta needs a duration below a million years", got=repr(by)
        ) from error


def _is_distance(by: object) -> bool:
    if isinstance(by, timedelta):
        return by > timedelta(0)
    if isinstance(by, bool) or not isinstance(by, int | float | Decimal):
        return False
    return bool(math.isfinite(by) and by > 0)
