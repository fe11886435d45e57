"""Bytes to JSON values, strictly by RFC 8259, with numbers kept as their text.

Beyond the RFC: bytes are UTF-8 without a byte order mark, a name stands once in its
object, and nothing is nested deeper than 100 levels.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Never

DEEPEST = 100
_NO_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*"?|[^"{}\[\]]+', re.DOTALL)


class NotJson(ValueError):
    """The bytes are no JSON value; the message says where and why."""


class Whole(str):
    """The text of a JSON number without point and exponent."""

    __slots__ = ()


class Real(str):
    """The text of a JSON number with a point or an exponent."""

    __slots__ = ()


def parse(raw: bytes) -> object:
    """One JSON value: None, bool, str, Whole, Real, list or dict.

    Raises:
        NotJson: the bytes are anything else.
    """
    text = _text(raw)
    if text.count("{") + text.count("[") > DEEPEST and _depth(text) > DEEPEST:
        raise NotJson(f"nested deeper than {DEEPEST} levels")
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError as error:
        message = (error.msg[:1].lower() + error.msg[1:]).removesuffix(" at")
        raise NotJson(f"{message} at character {error.pos + 1}") from None


def _text(raw: bytes) -> str:
    if not raw:
        raise NotJson("the value is empty")
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise NotJson(f"invalid UTF-8 at byte {error.start + 1}") from None
    if text[0] == "\ufeff":
        raise NotJson("it begins with a byte order mark")
    return text


def _depth(text: str) -> int:
    deepest = depth = 0
    for mark in _NO_BRACKETS.sub("", text):
        depth += 1 if mark in "{[" else -1
        deepest = max(deepest, depth)
    return deepest


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    made = dict(pairs)
    if len(made) != len(pairs):
        [(twice, _)] = Counter(name for name, _ in pairs).most_common(1)
        raise NotJson(f"the name {shown(twice)} stands twice in one object")
    return made


def _constant(word: str) -> Never:
    raise NotJson(f"{word} is no JSON number")


def shown(text: str) -> str:
    """Text for a reason: quoted, escaped, at most 40 characters of it."""
    return json.dumps(text if len(text) <= 40 else text[:39] + "…")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=Whole, parse_float=Real, parse_constant=_constant
)
