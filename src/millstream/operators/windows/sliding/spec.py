"""The spec of sliding windows, which end with each row."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.duration import Duration, positive_micros, text
from millstream.errors import InvalidSpec

LONGEST = 2**60  # microseconds, 36 000 years


@dataclass(frozen=True, slots=True)
class Sliding:
    """For each row at time t, the rows of its key in (t - size, t], rows at t included.

    The size is in microseconds of event time.
    """

    size: int

    def __post_init__(self) -> None:
        if not 0 < self.size < LONGEST:
            raise InvalidSpec(
                f"sliding needs a size above zero and below {text(LONGEST)}",
                got=text(self.size),
                do='write sliding("10 seconds")',
            )

    def __str__(self) -> str:
        return f'sliding("{text(self.size)}")'


def sliding(size: Duration) -> Sliding:
    """One window per row: the rows of its key in the time `size` up to it.

    >>> print(sliding("1 minute"))
    sliding("1 minute")

    Raises:
        InvalidSpec: the size is not a duration above zero.
    """
    return Sliding(positive_micros(size, what="the size of sliding"))
