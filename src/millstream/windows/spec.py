"""Where in event time a row belongs: frozen values, checked when they are made."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.duration import Duration, micros, positive_micros, text
from millstream.errors import InvalidSpec

LONGEST = 2**62  # microseconds, 146 000 years: sums of two stay within 64 bits


@dataclass(frozen=True, slots=True)
class Tumbling:
    """Windows `[start, start + size)`, one after the other, aligned to the epoch + `offset`.

    Both are microseconds. The offset is kept within one size, so equal windows compare
    equal: `Tumbling(10, 12) == Tumbling(10, 2)`.
    """

    size: int
    offset: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.size < LONGEST:
            raise InvalidSpec(
                f"tumbling needs a size above zero and below {text(LONGEST)}",
                got=text(self.size),
                do='write tumbling("10 seconds")',
            )
        object.__setattr__(self, "offset", self.offset % self.size)

    def __str__(self) -> str:
        offset = f', offset="{text(self.offset)}"' if self.offset else ""
        return f'tumbling("{text(self.size)}"{offset})'


def tumbling(size: Duration, *, offset: Duration = "0 seconds") -> Tumbling:
    """Windows of one size, none overlapping, every row in exactly one.

    >>> print(tumbling("1 hour", offset="-15 minutes"))
    tumbling("1 hour", offset="45 minutes")

    Raises:
        InvalidSpec: the size is not above zero, or a text is no duration.
    """
    return Tumbling(
        positive_micros(size, what="the size of tumbling"),
        micros(offset, what="the offset of tumbling"),
    )
