"""The spec of `.top`: the largest rows of each window."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.errors import InvalidSpec


@dataclass(frozen=True, slots=True)
class Top:
    """The `n` rows with the largest `by` among the results of a window, over all keys.

    Null is smaller than any value, NaN larger than any number; of equal rows, the first in
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
    """The spec from the user's arguments.

    >>> print(top(10, by="total"))
    top(10, by="total")

    Raises:
        InvalidSpec: an invalid number of rows, or not the name of a column.
    """
    return Top(n, by)
