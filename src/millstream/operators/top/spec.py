"""The spec of `.top`: of the rows of each window, the largest."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.errors import InvalidSpec


@dataclass(frozen=True, slots=True)
class Top:
    """Of the results of a window, of all keys, the `n` rows with the largest `by`.

    Null is smaller than any value, NaN larger than any number; of equal ones the first in
    order of origin.
    """

    n: int
    by: str

    def __post_init__(self) -> None:
        if not isinstance(self.n, int) or isinstance(self.n, bool) or not 0 < self.n < 2**31:
            raise InvalidSpec(
                f"top needs a number of rows from 1 to {2**31 - 1}",
                got=repr(self.n),
                do='write top(10, by="total")',
            )
        if not isinstance(self.by, str) or not self.by.strip():
            raise InvalidSpec(
                "the `by` of top needs the name of a column",
                got=repr(self.by),
                do='write top(10, by="total")',
            )

    def __str__(self) -> str:
        return f'top({self.n}, by="{self.by}")'


def top(n: int, *, by: str) -> Top:
    """The spec from what a user writes.

    >>> print(top(10, by="total"))
    top(10, by="total")

    Raises:
        InvalidSpec: no number of rows, or no name of a column.
    """
    return Top(n, by)
