"""The pieces of a `like` pattern between its %, found in text in steps that can be ended.

A piece without _ is looked for as it is, which Python does in linear time. One with _ is compared
with thousands of positions at once, one of its characters after the other, so that no pattern
keeps an interpreter busy for long without a pause.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

_SHORT = 1_024  # characters of text that are looked through in one go
_FIRST, _LARGEST, _FURTHER = 1_024, 65_536, 4  # positions that are compared together
_FEW = 32  # one position in so many is left: they are compared by themselves


class OutOfTime(Exception):
    """Looking for a piece took longer than the record's filter may."""


class Text:
    """A text that is looked through, and until when."""

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
        """Raise OutOfTime where time is up."""
        if time.monotonic() > self.until:
            raise OutOfTime


@dataclass(frozen=True, slots=True)
class Piece:
    """Text without %; `pattern` stands for it where it has a _, which fits any character."""

    text: str
    pattern: re.Pattern[str] | None
    fixed: tuple[tuple[int, int], ...]
    """Where its characters other than _ stand, and which they are."""

    @classmethod
    def of(cls, text: str) -> Piece:
        """The piece that is written so."""
        if "_" not in text:
            return cls(text, None, ())
        pattern = re.compile(".".join(map(re.escape, text.split("_"))), re.DOTALL)
        fixed = tuple((at, ord(one)) for at, one in enumerate(text) if one != "_")
        return cls(text, pattern, fixed)

    def at(self, text: str, place: int) -> bool:
        """Whether it stands there."""
        if self.pattern is None:
            return text.startswith(self.text, place)
        return self.pattern.match(text, place) is not None

    def find(self, where: Text, begin: int, end: int) -> int:
        """The first place from `begin` on where it stands, with its end no later than `end`.

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
    """The first of so many positions at which these characters stand; -1 if there is none."""
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
