"""The pieces of a `like` pattern between its %, searched in steps that can be interrupted.

A piece without _ is searched by `str.find`, in linear time. A piece with _ is compared with
thousands of positions at once, one character after the other, so that no pattern blocks the
interpreter for long.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

_SHORT = 1_024  # texts up to this length are searched by one regular expression
_FIRST, _LARGEST, _FURTHER = 1_024, 65_536, 4  # positions that are compared at once
_FEW = 32  # if one position in so many is left, they are compared individually


class OutOfTime(Exception):
    """The search for a piece took longer than allowed."""


class Text:
    """A text to search, and the deadline."""

    def __init__(self, text: str, until: float) -> None:
        self.text, self.until = text, until

    @cached_property
    def characters(self) -> Any:
        """The text as an array of numbers."""
        import numpy as np

        if self.text.isascii():
            return np.frombuffer(self.text.encode("ascii"), np.uint8)
        return np.frombuffer(self.text.encode("utf-32-le", "surrogatepass"), np.uint32)

    def check(self) -> None:
        """Raise OutOfTime after the deadline."""
        if time.monotonic() > self.until:
            raise OutOfTime


@dataclass(frozen=True, slots=True)
class Piece:
    """Text without %; `pattern` is set if it has a _, which matches any character."""

    text: str
    pattern: re.Pattern[str] | None
    fixed: tuple[tuple[int, int], ...]
    """The positions and code points of its characters other than _."""

    @classmethod
    def of(cls, text: str) -> Piece:
        """Parse a piece."""
        if "_" not in text:
            return cls(text, None, ())
        pattern = re.compile(".".join(map(re.escape, text.split("_"))), re.DOTALL)
        fixed = tuple((at, ord(one)) for at, one in enumerate(text) if one != "_")
        return cls(text, pattern, fixed)

    def matches_at(self, text: str, place: int) -> bool:
        """Whether the text has the piece at that position."""
        if self.pattern is None:
            return text.startswith(self.text, place)
        return self.pattern.match(text, place) is not None

    def find(self, where: Text, begin: int, end: int) -> int:
        """The first match from `begin` on that ends at `end` or before; -1 if there is none.

        Raises:
            OutOfTime: it was not found in time.
        """
        where.check()
        if self.pattern is None:
            return where.text.find(self.text, begin, end)
        last = end - len(self.text)
        if end - begin <= _SHORT:
            found = self.pattern.search(where.text, begin, end)
            return -1 if found is None else found.start()
        return self._find(where, begin, last)

    def _find(self, where: Text, begin: int, last: int) -> int:
        together = _FIRST
        while begin <= last:
            many = min(together, last - begin + 1)
            found = _first(where.characters, begin, many, self.fixed)
            if found >= 0:
                return found
            begin, together = begin + many, min(together * _FURTHER, _LARGEST)
            where.check()
        return -1


def _first(characters: Any, begin: int, many: int, fixed: Sequence[tuple[int, int]]) -> int:
    """The first of `many` positions that match these characters; -1 if there is none."""
    import numpy as np

    fits = np.ones(many, bool)
    for number, (at, one) in enumerate(fixed):
        place = begin + at
        fits &= characters[place : place + many] == one
        if number % 4 == 3 and np.count_nonzero(fits) * _FEW < many:
            return _one_of(characters, begin + np.flatnonzero(fits), fixed[number + 1 :])
    left = np.flatnonzero(fits)
    return begin + int(left[0]) if left.size else -1


def _one_of(characters: Any, places: Any, fixed: Sequence[tuple[int, int]]) -> int:
    for at, one in fixed:
        if not places.size:
            return -1
        places = places[characters[places + at] == one]
    return int(places[0]) if places.size else -1
