"""The spec of `.ordered()`: rows in order of event time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ordered:
    """Rows are held until the watermark has passed their time, then leave in its order.

    Rows of the same time stay in order of origin. It has no options: the order is that of
    the whole stream, so that it holds for every key chosen after it.
    """

    def __str__(self) -> str:
        return "ordered()"


def ordered() -> Ordered:
    """The spec from what a user writes.

    >>> print(ordered())
    ordered()
    """
    return Ordered()
