"""Windows of a number of rows: a frozen value, checked when it is made."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.errors import InvalidSpec

LARGEST = 2**31  # rows: what a window adds up stays within 64 bits


@dataclass(frozen=True, slots=True)
class Rows:
    """Windows of `n` rows of a key, in order of origin; a new one begins every `every` rows.

    Window j of a key has its rows j × `every` up to j × `every` + `n`. It closes with its
    last row; those that never get it leave at the finish with the rows they have.
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
        InvalidSpec: a number is not a whole one above zero, or `every` is above `n`.
    """
    return Rows(n, n if every is None else every)


def _require_count(value: object, need: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < LARGEST:
        raise InvalidSpec(
            f"{need} from 1 to {LARGEST - 1}", got=repr(value), do="write rows(100, every=10)"
        )
