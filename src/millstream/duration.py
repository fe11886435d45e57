"""Durations: `"5 minutes"` or a `timedelta`, kept as whole microseconds."""

from __future__ import annotations

import re
from datetime import timedelta

from millstream.errors import InvalidSpec

_UNITS = {
    "microsecond": 1,
    "us": 1,
    "millisecond": 1_000,
    "ms": 1_000,
    "second": 1_000_000,
    "s": 1_000_000,
    "minute": 60_000_000,
    "min": 60_000_000,
    "hour": 3_600_000_000,
    "h": 3_600_000_000,
    "day": 86_400_000_000,
    "d": 86_400_000_000,
    "week": 604_800_000_000,
}
_TERM = re.compile(r"\s*(-?\d+(?:\.\d+)?)\s*([a-z]+)\s*", re.IGNORECASE)
_NAMES = ((604_800_000_000, "week"), (86_400_000_000, "day"), (3_600_000_000, "hour"),
          (60_000_000, "minute"), (1_000_000, "second"), (1_000, "millisecond"),
          (1, "microsecond"))  # fmt: skip

Duration = str | timedelta


def micros(value: Duration, *, what: str = "duration") -> int:
    """The length in whole microseconds.

    >>> micros("1 minute 30 seconds")
    90000000
    >>> micros("-250 ms")
    -250000

    Raises:
        InvalidSpec: the text is not a duration, or is finer than a microsecond.
    """
    if isinstance(value, timedelta):
        return (value.days * 86_400 + value.seconds) * 1_000_000 + value.microseconds
    if not isinstance(value, str):
        raise _invalid(value, what)
    position, total = 0, 0
    while position < len(value):
        term = _TERM.match(value, position)
        unit = _unit(term.group(2)) if term else None
        if term is None or unit is None:
            raise _invalid(value, what)
        whole, _, fraction = term.group(1).partition(".")
        scaled = int(whole + fraction) * unit
        amount, left = divmod(abs(scaled), 10 ** len(fraction))
        if left:
            raise _invalid(value, what)
        total += amount if scaled >= 0 else -amount
        position = term.end()
    if not value.strip():
        raise _invalid(value, what)
    return total


def positive_micros(value: Duration, *, what: str) -> int:
    """As `micros`, for durations above zero."""
    length = micros(value, what=what)
    if length <= 0:
        raise InvalidSpec(f"{what} needs a duration above zero", got=repr(value))
    return length


def not_negative_micros(value: Duration, *, what: str) -> int:
    """As `micros`, for durations of zero or more."""
    length = micros(value, what=what)
    if length < 0:
        raise InvalidSpec(f"{what} needs a duration of zero or more", got=repr(value))
    return length


def text(length: int) -> str:
    """The shortest exact text for a length.

    >>> text(90_000_000)
    '1 minute 30 seconds'
    """
    if length == 0:
        return "0 seconds"
    sign, rest, words = ("-" if length < 0 else ""), abs(length), []
    for size, name in _NAMES:
        count, rest = divmod(rest, size)
        if count:
            words.append(f"{sign}{count} {name}{'s' if count != 1 else ''}")
    return " ".join(words)


def _unit(word: str) -> int | None:
    lower = word.lower()
    return _UNITS.get(lower) or _UNITS.get(lower.removesuffix("s"))


def _invalid(value: object, what: str) -> InvalidSpec:
    return InvalidSpec(
        f'{what} needs a duration such as "10 seconds" or a timedelta',
        got=repr(value),
        do="write a number and one of microseconds, milliseconds, seconds, minutes, hours, "
        "days, weeks",
    )
