"""The spec of session windows: rows of a key with small gaps between them."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.duration import Duration, positive_micros, text
from millstream.errors import InvalidSpec

LONGEST = 2**60  # microseconds, 36 000 years: four of them stay within 64 bits


@dataclass(frozen=True, slots=True)
class Session:
    """Windows `[first, last + gap)`: a row at most `gap` (microseconds) from another joins it."""

    gap: int

    def __post_init__(self) -> None:
        if not 0 < self.gap < LONGEST:
            raise InvalidSpec(
                f"session needs a gap above zero and below {text(LONGEST)}",
                got=text(self.gap),
                do='write session(gap="30 minutes")',
            )

    def __str__(self) -> str:
        return f'session(gap="{text(self.gap)}")'


def session(*, gap: Duration) -> Session:
    """Windows that grow as long as rows of a key are at most `gap` apart.

    A row exactly `gap` after the last one still belongs. Two sessions become one when a row
    between them is within `gap` of both.

    >>> print(session(gap="30 minutes"))
    session(gap="30 minutes")

    Raises:
        InvalidSpec: the gap is not a duration above zero.
    """
    return Session(positive_micros(gap, what="the gap of session"))
