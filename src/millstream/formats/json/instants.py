"""Parses columns of times in their usual forms.

`YYYY-MM-DD[T ]HH:MM:SS`, up to eight digits of fraction, then nothing, `Z` or `±HH:MM`.
Rarer forms (no seconds, `+0100`, a date alone) take the exact path.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from millstream.formats import times
from millstream.formats.json.numbers import parse_eight_digits, parse_integers, to_int64

if TYPE_CHECKING:
    from millstream.formats.block import Block, Flags, Ints, Words

_MONTHS = np.arange("0001-01", "10000-02", dtype="datetime64[M]").astype("datetime64[D]")
_FIRST_DAYS = _MONTHS.astype(np.int64)
_LENGTHS = np.diff(_FIRST_DAYS)
_TENS = np.array([10**power for power in range(9)], np.int64)
_PLUS, _MINUS, _ZULU, _DOT = 0x2B, 0x2D, 0x5A, 0x2E
_BYTE = np.uint64(0xFF)


def _pattern(form: str) -> tuple[np.uint64, np.uint64, np.uint64]:
    """For eight characters: which bytes are digits, which are fixed, and the fixed bytes.

    `0` is a digit, `?` any character; other characters are fixed.
    """
    digit = sum(0xFF << 8 * place for place, mark in enumerate(form) if mark == "0")
    fixed = sum(0xFF << 8 * place for place, mark in enumerate(form) if mark not in "0?")
    marks = sum(ord(mark) << 8 * place for place, mark in enumerate(form) if mark not in "0?")
    return np.uint64(digit), np.uint64(fixed), np.uint64(marks)


_YEAR_MONTH = _pattern("0000-00-")
_DAY_CLOCK = _pattern("00?00:00")
_SECOND = _pattern(":00?????")
_DAY = _pattern("00??????")
_ZONE = _pattern("???00:00")


def _pairs(word: Words, form: tuple[np.uint64, np.uint64, np.uint64]) -> tuple[Words, Flags]:
    """At each byte, ten times its digit plus the next one; and whether the pattern matches."""
    digit, fixed, marks = form
    values = (word ^ np.uint64(0x3030303030303030)) & digit
    wrong = ((values + np.uint64(0x7676767676767676)) | values) & np.uint64(0x8080808080808080)
    met = (wrong == 0) & ((word & fixed) == marks)
    return values * np.uint64(10) + (values >> np.uint64(8)), met


def _pair(pairs: Words, place: int) -> Ints:
    return ((pairs >> np.uint64(8 * place)) & _BYTE).astype(np.int64)


def _days(text: Words, day: Ints) -> tuple[Ints, Flags]:
    """Days since the epoch from `YYYY-MM-` and the day, and whether that day exists."""
    if text.size and (text == text[0]).all():
        text = text[:1]
    year_month, met = _pairs(text, _YEAR_MONTH)
    year = _pair(year_month, 0) * 100 + _pair(year_month, 2)
    month = _pair(year_month, 5)
    met &= (year >= 1) & (month >= 1) & (month <= 12)
    place = np.where(met, year * 12 + month - 13, 0)
    return _FIRST_DAYS[place] + day - 1, met & (day >= 1) & (day <= _LENGTHS[place])


def parse_dates(block: Block, start: Ints, end: Ints) -> tuple[Ints, Flags]:
    """Parse `YYYY-MM-DD` as days since the epoch; return also which texts are valid."""
    first, second, _, _ = block.wide(start)
    day, met = _pairs(second, _DAY)
    value, exists = _days(first, _pair(day, 0))
    return value, met & exists & (end - start == 10)


def parse_timestamps(block: Block, start: Ints, end: Ints, *, zoned: bool) -> tuple[Ints, Flags]:
    """Parse microseconds since the epoch; return also which texts have one of the usual forms."""
    first, second, third, _ = block.wide(start)
    clock, ok = _pairs(second, _DAY_CLOCK)
    seconds, met = _pairs(third, _SECOND)
    ok &= met
    between = second & np.uint64(0xFF0000)
    ok &= (between == np.uint64(0x540000)) | (between == np.uint64(0x200000))
    day, exists = _days(first, _pair(clock, 0))
    hour, minute, second_ = _pair(clock, 3), _pair(clock, 6), _pair(seconds, 1)
    ok &= exists & (hour <= 23) & (minute <= 59) & (second_ <= 59)
    offset, tail, met = _zones(block, start, end, zoned=zoned)
    ok &= met
    fraction, met = _fractions(block, start, end - tail)
    value = (((day * 24 + hour) * 60 + minute) * 60 + second_ - offset) * 1_000_000 + fraction
    return value, ok & met & (value >= times.LEAST) & (value <= times.GREATEST)


def _zones(block: Block, start: Ints, end: Ints, *, zoned: bool) -> tuple[Ints, Ints, Flags]:
    """Seconds east of UTC, the length of the zone's text, and whether it is valid."""
    zulu = block.bytes[end - 1] == _ZULU
    offset = np.zeros(1, np.int64)
    if zoned and zulu.all():
        return offset, np.ones(1, np.int64), zulu
    sign = block.bytes[np.maximum(end - 6, start)]
    shifted = ((sign == _PLUS) | (sign == _MINUS)) & ~zulu
    ok = np.ones(start.size, np.bool_)
    if not zoned:
        ok = ~(zulu | shifted)
    elif shifted.any():
        pairs, met = _pairs(block.word(end - 8), _ZONE)
        hours, minutes = _pair(pairs, 3), _pair(pairs, 6)
        ok = ~shifted | (met & (hours <= 23) & (minutes <= 59))
        size = (hours * 60 + minutes) * 60
        offset = np.where(shifted, np.where(sign == _MINUS, -size, size), 0)
    return offset, np.where(shifted, 6, zulu), ok


def _fractions(block: Block, start: Ints, end: Ints) -> tuple[Ints, Flags]:
    """The microseconds after the point; the text before it has 19 characters."""
    count = end - start - 20
    none = count == -1
    if none.all():
        return np.zeros(start.size, np.int64), none
    known = (count >= 1) & (count <= 8)
    used = np.where(known, count, 0)
    value, wrong = parse_eight_digits(block.word(end - 8), used)
    scaled = value.astype(np.int64) * 1_000_000
    unit = _TENS[used]
    amount = scaled // unit
    ok = known & (wrong == 0) & (amount * unit == scaled) & (block.bytes[start + 19] == _DOT)
    return np.where(none, 0, amount), ok | none


def parse_millis(block: Block, start: Ints, end: Ints) -> tuple[Ints, Flags]:
    """Parse integer milliseconds as microseconds since the epoch; return also which are valid."""
    value, ok = to_int64(parse_integers(block, start, end), 2**63)
    ok &= (value >= times.LEAST // 1000) & (value <= times.GREATEST // 1000)
    return (value if ok.all() else np.where(ok, value, 0)) * 1000, ok
