"""The spec of `stream.join(stream)`: pairs of rows with equal keys, near each other in time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from millstream.duration import Duration, micros, not_negative_micros, text
from millstream.errors import InvalidSpec
from millstream.operators.joins.on import On, Pairs, check_how, pairs, said, said_suffix
from millstream.operators.joins.result_columns import check_suffix

LONGEST = 2**60  # microseconds, 36 000 years: sums of two stay within 64 bits
How = Literal["inner", "left", "right", "full"]
Within = Duration | tuple[Duration, Duration]


@dataclass(frozen=True, slots=True)
class Interval:
    """Left and right rows match if they agree in `on` and lower <= right - left <= upper.

    `within` is (lower, upper) in microseconds of event time, both included; None means any
    distance, for inner joins only. `suffix` is added to names of right columns that the left
    has, too.
    """

    on: Pairs
    within: tuple[int, int] | None = None
    how: How = "inner"
    suffix: str | None = None

    def __post_init__(self) -> None:
        check_how(self.how, How, step="join")
        check_suffix(self.suffix, step="join")
        if self.within is None:
            if self.how != "inner":
                raise InvalidSpec(
                    f"a {self.how} join of streams needs a `within`, or a row without a match "
                    "would wait for ever",
                    got="none",
                    do=f'write join(…, within="1 hour", how="{self.how}")',
                )
            return
        lower, upper = self.within
        if lower > upper or not -LONGEST < lower <= upper < LONGEST:
            raise InvalidSpec(
                f"the `within` of join needs its lower bound first and both below {text(LONGEST)}",
                got=f"({text(lower)!r}, {text(upper)!r})",
                do='write join(…, within=("-5 minutes", "1 hour")): from 5 minutes before the '
                "left row to 1 hour after it",
            )

    @property
    def outer(self) -> tuple[bool, bool]:
        """Whether rows of the left and of the right are emitted without a match."""
        return self.how in ("left", "full"), self.how in ("right", "full")

    def __str__(self) -> str:
        how = "" if self.how == "inner" else f', how="{self.how}"'
        return f"join(on={said(self.on)}{self._within()}{how}{said_suffix(self.suffix)})"

    def _within(self) -> str:
        if self.within is None:
            return ""
        lower, upper = self.within
        if lower == -upper:
            return f', within="{text(upper)}"'
        return f', within=("{text(lower)}", "{text(upper)}")'


def interval(
    on: On, within: Within | None = None, how: How = "inner", suffix: str | None = None
) -> Interval:
    """The spec from the user's arguments.

    >>> print(interval("user", within="1 hour"))
    join(on='user', within="1 hour")
    >>> print(interval({"id": "query"}, within=("0 seconds", "1 hour"), how="left"))
    join(on={'id': 'query'}, within=("0 seconds", "1 hour"), how="left")

    Raises:
        InvalidSpec: no columns, invalid durations, bounds in the wrong order, an unknown `how`,
            an outer join without `within`, or an empty suffix.
    """
    columns = pairs(on, step="join")
    if within is None:
        return Interval(columns, None, how, suffix)
    if isinstance(within, tuple | list):
        if len(within) != 2:
            raise InvalidSpec(
                "the `within` of join needs a duration or a pair of them",
                got=repr(within),
                do='write within=("-5 minutes", "1 hour")',
            )
        lower, upper = (micros(bound, what="the `within` of join") for bound in within)
        return Interval(columns, (lower, upper), how, suffix)
    reach = not_negative_micros(within, what="the `within` of join")
    return Interval(columns, (-reach, reach), how, suffix)
