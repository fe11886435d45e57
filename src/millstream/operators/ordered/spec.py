"""The spec of `.ordered()`: rows in order of event time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ordered:
    """Rows are held until the watermark has passed their time, then emitted in order of time.

    Rows of the same time stay in order of origin. There are no options: the whole stream is
    sorted, so the order holds for every key chosen after it.
    """

    def __str__(self) -> str:
        return "ordered()"


def ordered() -> Ordered:
    """The spec from the user's arguments.

    >>> print(ordered())
    ordered()
    """
    return Ordered()
