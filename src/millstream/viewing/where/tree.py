"""Conditions: each evaluates to true, false or unknown (`None`) for a record.

Both sides of a comparison must be of one kind (numbers, texts, booleans, times). Otherwise it is
unknown, as it is for a missing field. `and`, `or` and `not` treat unknown as SQL does.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from millstream.viewing.where.pieces import OutOfTime, Piece, Text

if TYPE_CHECKING:
    from collections.abc import Callable

Scalar = bool | int | float | str | datetime | None


class Row(Protocol):
    """The fields of a record; a condition must be evaluated by `until` (`time.monotonic`)."""

    until: float

    def field(self, path: tuple[str, ...]) -> object:
        """The value at a path; None if there is none."""
        ...


class Node(Protocol):
    """A part of a condition."""

    def value(self, row: Row) -> object:
        """Its value for this row; None means unknown."""
        ...


@dataclass(frozen=True, slots=True)
class Constant:
    """`5`, `'de'`, `true`, `null`."""

    constant: Scalar

    def value(self, row: Row) -> object:
        return self.constant


@dataclass(frozen=True, slots=True)
class Field:
    """`price`, `shop.country`, `_partition`."""

    path: tuple[str, ...]

    def value(self, row: Row) -> object:
        return row.field(self.path)


_COMPARE: dict[str, Callable[..., object]] = {
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
SIGNS = frozenset(_COMPARE)


@dataclass(frozen=True, slots=True)
class Comparison:
    """`left SIGN right`, for two values of one kind."""

    left: Node
    sign: str
    right: Node

    def value(self, row: Row) -> object:
        left, right = self.left.value(row), self.right.value(row)
        kind = kind_of(left)
        if kind is None or kind != kind_of(right):
            return None
        return _COMPARE[self.sign](left, right)


@dataclass(frozen=True, slots=True)
class Among:
    """`item in (a, b)`: as `item = a or item = b`."""

    item: Node
    choices: tuple[Node, ...]

    def value(self, row: Row) -> object:
        answers = [Comparison(self.item, "=", choice).value(row) for choice in self.choices]
        return _any(answers)


@dataclass(frozen=True, slots=True)
class Like:
    """`item like 'user-%'`: % matches any text, _ one character.

    The pieces between the % are searched one after the other, each at its first match.
    """

    item: Node
    first: Piece
    rest: tuple[Piece, ...]

    @classmethod
    def of(cls, item: Node, pattern: str) -> Like:
        """Parse a pattern; all characters except % and _ match themselves."""
        first, *rest = (Piece.of(text) for text in pattern.split("%"))
        return cls(item, first, tuple(rest))

    def value(self, row: Row) -> object:
        item = self.item.value(row)
        return self._matches(item, row.until) if isinstance(item, str) else None

    def _matches(self, text: str, until: float) -> bool:
        if not self.rest:
            return len(text) == len(self.first.text) and self.first.matches_at(text, 0)
        *middle, last = self.rest
        begin, end = len(self.first.text), len(text) - len(last.text)
        if begin > end or not self.first.matches_at(text, 0) or not last.matches_at(text, end):
            return False
        where = Text(text, until)
        for piece in middle:
            place = piece.find(where, begin, end)
            if place < 0:
                return False
            begin = place + len(piece.text)
        return True


@dataclass(frozen=True, slots=True)
class IsNull:
    """`item is null`: the field is missing or null; never unknown."""

    item: Node

    def value(self, row: Row) -> object:
        return self.item.value(row) is None


@dataclass(frozen=True, slots=True)
class Not:
    """`not part`."""

    part: Node

    def value(self, row: Row) -> object:
        answer = truth(self.part.value(row))
        return None if answer is None else not answer


@dataclass(frozen=True, slots=True)
class AllOf:
    """`a and b and …`"""

    parts: tuple[Node, ...]

    def value(self, row: Row) -> object:
        answers = [truth(part.value(row)) for part in self.parts]
        if False in answers:
            return False
        return None if None in answers else True


@dataclass(frozen=True, slots=True)
class AnyOf:
    """`a or b or …`"""

    parts: tuple[Node, ...]

    def value(self, row: Row) -> object:
        return _any([truth(part.value(row)) for part in self.parts])


@dataclass(frozen=True, slots=True)
class Condition:
    """A whole filter."""

    root: Node

    def answer(self, row: Row) -> bool | None:
        """True, false, or None if it is unknown or could not be evaluated in time."""
        try:
            return truth(self.root.value(row))
        except OutOfTime:
            return None


def truth(value: object) -> bool | None:
    """Only true is true and only false is false; everything else is unknown."""
    return value if isinstance(value, bool) else None


def kind_of(value: object) -> str | None:
    """The kind of a value; only values of one kind can be compared."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "text"
    return "time" if isinstance(value, datetime) else None


def _any(answers: list[object] | list[bool | None]) -> bool | None:
    if True in answers:
        return True
    return None if None in answers else False
