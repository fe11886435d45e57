"""Parses JSON strictly by RFC 8259, with numbers kept as text.

Stricter than the RFC: bytes are UTF-8 without a byte order mark, names within an object are
distinct, nesting is at most 100 levels deep, and a value with more than a million arrays and
objects has at least eight bytes for each of them.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import TYPE_CHECKING, Never

from millstream.formats.decoding import BadRecord

if TYPE_CHECKING:
    from collections.abc import Callable

DEEPEST = 100
MOST_PARTS = 1_000_000
LEAST_BYTES = 8
_BRACKETS = re.compile(r'"(?:[^"\\]++|\\.)*+"?|([{\[]++)|([}\]]++)', re.DOTALL)


class Whole(str):
    """The text of a JSON number without a point or an exponent."""

    __slots__ = ()


class Real(str):
    """The text of a JSON number with a point or an exponent."""

    __slots__ = ()


def parse(raw: bytes) -> object:
    """Parse one JSON value: None, bool, str, Whole, Real, list or dict.

    Raises:
        BadRecord: the bytes are not a valid JSON value.
    """
    text = _text(raw)
    if text.count("{") + text.count("[") > DEEPEST:
        _check_parts(text)
    try:
        return (_DECODER if len(text) < _LARGE else _FRUGAL).decode(text)
    except json.JSONDecodeError as error:
        message = (error.msg[:1].lower() + error.msg[1:]).removesuffix(" at")
        raise BadRecord(f"{message} at character {error.pos + 1}") from None


def _text(raw: bytes) -> str:
    if not raw:
        raise BadRecord("the value is empty")
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise BadRecord(f"invalid UTF-8 at byte {error.start + 1}") from None
    if text[0] == "\ufeff":
        raise BadRecord("it begins with a byte order mark")
    return text


def _check_parts(text: str) -> None:
    """Refuse arrays and objects that are nested too deep, or too many for the text's size.

    Each takes more than a hundred bytes as a Python object.
    """
    most = max(MOST_PARTS, len(text) // LEAST_BYTES)
    depth = parts = 0
    for found in _BRACKETS.finditer(text):
        opening, closing = found.span(1), found.span(2)
        depth += opening[1] - opening[0] - (closing[1] - closing[0])
        parts += opening[1] - opening[0]
        if depth > DEEPEST:
            raise BadRecord(f"nested deeper than {DEEPEST} levels")
        if parts > most:
            raise BadRecord(f"more than {most} arrays and objects in {len(text)} characters")


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    if not pairs:
        return _EMPTY
    made = dict(pairs)
    if len(made) != len(pairs):
        [(twice, _)] = Counter(name for name, _ in pairs).most_common(1)
        raise BadRecord(f"the name {preview(twice)} occurs twice in one object")
    return made


def _constant(word: str) -> Never:
    raise BadRecord(f"{word} is not a JSON number")


def preview(text: str) -> str:
    """Text for a reason: quoted, escaped, at most 40 characters."""
    return json.dumps(text if len(text) <= 40 else text[:39] + "…")


class _Wholes(dict[str, Whole]):
    """A cache of short numbers by their text; longer ones are not cached."""

    def __missing__(self, text: str) -> Whole:
        return Whole(text)


def _decoder(whole: Callable[[str], Whole]) -> json.JSONDecoder:
    return json.JSONDecoder(
        object_pairs_hook=_object, parse_int=whole, parse_float=Real, parse_constant=_constant
    )


_EMPTY: dict[str, object] = {}
_LARGE = 1 << 16
_DECODER = _decoder(Whole)
_FRUGAL = _decoder(_Wholes((str(number), Whole(number)) for number in range(-99, 1000)).__getitem__)
