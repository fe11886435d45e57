"""For each value the first one after it that is far away, for all rows at once.

A tree of the smallest and largest values of pairs, pairs of pairs, … is climbed to the first
subtree on the right that holds a value far away, then descended to the first such value in
it. Array operations follow the logarithm of the distance, whatever the values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Mask = NDArray[np.bool_]
    Values = NDArray[Any]


class Far(Protocol):
    """Whether a span of values, given by its smallest and largest, has one far from a value."""

    def __call__(self, least: Values, most: Values, value: Values) -> Mask:
        """True where it has."""


def first_beyond(values: Values, far: Far) -> Ints:
    """For each place the first one after it that is far away; `len(values)` if there is none."""
    count = len(values)
    found = np.full(count, count, np.int64)
    if count < 2:
        return found
    levels = _spans(values)
    rows, nodes = np.arange(count, dtype=np.int64), np.arange(count, dtype=np.int64)
    hits: list[tuple[Ints, Ints]] = []
    for least, most in levels:
        right = np.where(nodes & 1 == 0, nodes + 1, nodes)
        hit = (nodes & 1 == 0) & far(least[right], most[right], values[rows])
        hits.append((rows[hit], right[hit]))
        climbing = ~hit & (right + 1 < len(least))
        rows, nodes = rows[climbing], nodes[climbing] >> 1
    rows, nodes = rows[:0], nodes[:0]
    for level in reversed(range(len(levels))):
        least, most = levels[level]
        if level + 1 < len(levels):
            nodes = 2 * nodes
            nodes += ~far(least[nodes], most[nodes], values[rows])
        rows = np.concatenate([rows, hits[level][0]])
        nodes = np.concatenate([nodes, hits[level][1]])
    found[rows] = np.minimum(nodes, count)
    return found


def far_integers(by: int) -> Far:
    """Integers at least `by` apart, over the whole range of 64 bits."""

    def far(least: Values, most: Values, value: Values) -> Mask:
        if by >= 2**64:
            return np.zeros(len(value), np.bool_)
        # Unsigned differences are exact over the whole range of 64-bit values.
        words = value.view(np.uint64)
        above = (most > value) & (most.view(np.uint64) - words >= np.uint64(by))
        below = (least < value) & (words - least.view(np.uint64) >= np.uint64(by))
        return np.asarray(above | below)

    return far


def far_floats(by: float) -> Far:
    """Floats whose rounded difference is at least `by`; a difference that is NaN is not."""

    def far(least: Values, most: Values, value: Values) -> Mask:
        with np.errstate(invalid="ignore", over="ignore"):
            return np.asarray((most - value >= by) | (value - least >= by))

    return far


def _spans(values: Values) -> list[tuple[Values, Values]]:
    """The values, then the spans of their pairs, of pairs of those, … up to one pair."""
    levels = [(_even(values), _even(values))]
    while len(levels[-1][0]) > 2:
        least, most = levels[-1]
        levels.append(
            (
                _even(np.minimum(least[::2], least[1::2])),
                _even(np.maximum(most[::2], most[1::2])),
            )
        )
    return levels


def _even(values: Values) -> Values:
    """An even number of values: the last one twice, where it hides behind itself."""
    return values if len(values) % 2 == 0 else np.append(values, values[-1:])
