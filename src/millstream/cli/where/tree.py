"""Conditions as values: each answers true, false or unknown (`None`) for a record.

Both sides of a comparison must be of one kind (numbers, texts, booleans, times); anything
else is unknown, as is whatever touches a missing field. Logic over unknown is SQL's.
"""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

Scalar = bool | int | float | str | datetime | None


class Row(Protocol):
    """Where names find their values."""

    def field(self, path: tuple[str, ...]) -> object:
        """The value at that path, `None` when there is none."""
        ...


class Node(Protocol):
    """A part of a condition."""

    def value(self, row: Row) -> object:
        """What it is for this row; `None` means unknown."""
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
    """`item like 'user-%'`: % stands for any text, _ for one character."""

    item: Node
    pattern: re.Pattern[str]

    @classmethod
    def of(cls, item: Node, pattern: str) -> Like:
        """Compiled from SQL's wildcards; every other character means itself."""
        parts = {"%": ".*", "_": "."}
        compiled = "".join(parts.get(character, re.escape(character)) for character in pattern)
        return cls(item, re.compile(re.sub(r"(?:\.\*)+", ".*", compiled), re.DOTALL))

    def value(self, row: Row) -> object:
        item = self.item.value(row)
        return self.pattern.fullmatch(item) is not None if isinstance(item, str) else None


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
        """True, false, or `None` where the row cannot say."""
        return truth(self.root.value(row))


def truth(value: object) -> bool | None:
    """Only true is true and only false is false; everything else is unknown."""
    return value if isinstance(value, bool) else None


def kind_of(value: object) -> str | None:
    """The kind within which values compare."""
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
