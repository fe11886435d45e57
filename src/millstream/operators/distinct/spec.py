"""The spec of `.distinct`, which drops repeated rows."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.duration import Duration, micros, text
from millstream.errors import InvalidSpec

LONGEST = 2**60  # microseconds, 36 000 years: four of them stay within 64 bits


@dataclass(frozen=True, slots=True)
class Distinct:
    """Rows are repeats if they agree in `by` and, with `within`, are at most that far apart.

    `within` is in microseconds of event time; None means without limit.
    """

    by: tuple[str, ...]
    within: int | None = None

    def __post_init__(self) -> None:
        if not self.by:
            raise InvalidSpec(
                "distinct needs at least one column", got="none", do='write distinct(by=["id"])'
            )
        twice = sorted({name for name in self.by if self.by.count(name) > 1})
        if twice:
            raise InvalidSpec(
                "distinct needs each column once", got=", ".join(twice), do="name it once"
            )
        if self.within is not None and not 0 <= self.within < LONGEST:
            raise InvalidSpec(
                f"distinct needs a `within` from zero up to {text(LONGEST)}",
                got=text(self.within),
                do='write distinct(by=["id"], within="1 hour")',
            )

    def __str__(self) -> str:
        within = "" if self.within is None else f', within="{text(self.within)}"'
        return f"distinct(by={list(self.by)!r}{within})"


def distinct(by: str | list[str] | tuple[str, ...], within: Duration | None = None) -> Distinct:
    """The spec from the user's arguments: one column or several, a duration or none.

    >>> print(distinct("id", within="1 hour"))
    distinct(by=['id'], within="1 hour")

    Raises:
        InvalidSpec: no column, a column twice, or an invalid duration.
    """
    columns = (by,) if isinstance(by, str) else tuple(by)
    if not all(isinstance(name, str) and name.strip() for name in columns):
        raise InvalidSpec(
            "distinct needs names of columns", got=repr(by), do='write distinct(by=["id"])'
        )
    if within is None:
        return Distinct(columns)
    return Distinct(columns, micros(within, what="the `within` of distinct"))
