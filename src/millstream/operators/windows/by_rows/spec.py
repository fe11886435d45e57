"""Windows whose bounds depend on rows: a count, a change of a value, or a punctuation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal

from millstream.duration import micros, text
from millstream.errors import InvalidSpec

LARGEST = 2**31  # rows; sums over a window stay within 64 bits


@dataclass(frozen=True, slots=True)
class Rows:
    """Windows of `n` rows of a key, in order of origin; a new one begins every `every` rows.

    Window j of a key has its rows j × `every` up to j × `every` + `n`. It closes with its
    last row; incomplete windows are emitted at the finish with the rows they have.
    """

    n: int
    every: int

    def __post_init__(self) -> None:
        _require_count(self.n, "rows needs a number of rows")
        _require_count(self.every, "the `every` of rows needs a number of rows")
        if self.every > self.n:
            raise InvalidSpec(
                "rows needs an `every` of at most its number of rows",
                got=f"rows({self.n}, every={self.every}), which leaves rows between windows",
                do=f"write rows({self.n}), or rows({self.n}, every=…) with fewer",
            )

    def __str__(self) -> str:
        return f"rows({self.n})" if self.every == self.n else f"rows({self.n}, every={self.every})"


def rows(n: int, *, every: int | None = None) -> Rows:
    """Windows of `n` rows per key; with a smaller `every` they overlap.

    >>> print(rows(100, every=10))
    rows(100, every=10)

    Raises:
        InvalidSpec: a number is not an integer above zero, or `every` is above `n`.
    """
    return Rows(n, n if every is None else every)


def _require_count(value: object, need: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < LARGEST:
        raise InvalidSpec(
            f"{need} from 1 to {LARGEST - 1}", got=repr(value), do="write rows(100, every=10)"
        )


Distance = int | float | Decimal | timedelta


@dataclass(frozen=True, slots=True)
class Delta:
    """The row whose `column` is at least `by` away from the window's opening row opens the next.

    Distance is the absolute difference: a number for columns of numbers, a `timedelta` for
    times. Rows are taken per key in order of origin. A null or NaN never closes a window: it
    belongs to the open one. A window that begins with such values is measured from its first
    other value.
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
    """Windows that end when a column has changed by `by` since the window began.

    >>> print(delta("price", by=10))
    delta("price", by=10)
    >>> print(delta("ts", by="5 seconds"))
    delta("ts", by="5 seconds")

    Raises:
        InvalidSpec: not a column, or not a number or duration above zero.
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


PUNCTUATION = "_punctuation"  # the column with the flag whether a row closes a window


@dataclass(frozen=True, slots=True)
class Punctuated:
    """A row for which `sql` is true closes its key's window, in order of origin.

    With `member` the row is the last of the window it closes; without, it is a marker that
    belongs to no window. With `all_keys` it closes the windows of all keys, at its position in
    order of origin. Null is not true.
    """

    sql: str
    member: bool = True
    all_keys: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.sql, str) or not self.sql.strip():
            raise InvalidSpec(
                "punctuated needs an SQL expression",
                got=repr(self.sql),
                do="write punctuated(\"kind = 'end'\")",
            )
        for name in ("member", "all_keys"):
            value = getattr(self, name)
            if not isinstance(value, bool):
                raise InvalidSpec(
                    f"the `{name}` of punctuated needs to be True or False",
                    got=repr(value),
                    do=f"write {name}=True, or leave it out",
                )

    def __str__(self) -> str:
        member = "" if self.member else ", member=False"
        all_keys = ", all_keys=True" if self.all_keys else ""
        return f'punctuated("{self.sql}"{member}{all_keys})'


def punctuated(sql: str, *, member: bool = True, all_keys: bool = False) -> Punctuated:
    """Windows that end with the row for which `sql` is true, per key or for all keys.

    >>> print(punctuated("kind = 'end'", member=False))
    punctuated("kind = 'end'", member=False)

    Raises:
        InvalidSpec: not an expression, or an option that is not a boolean.
    """
    return Punctuated(sql, member, all_keys)
