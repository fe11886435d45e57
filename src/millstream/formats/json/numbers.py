"""Parses columns of JSON numbers, eight digits at a time.

A word holds eight characters, the first in its lowest byte. Digits are combined in pairs, then
fours, then eights. Text that is not certainly a plain number is left to the caller (`ok` is False),
so that nothing is accepted that JSON does not allow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from millstream.formats.block import Block, Flags, Ints, Words

_ZEROS = np.uint64(0x3030303030303030)
_ABOVE_NINE = np.uint64(0x7676767676767676)
_HIGH = np.uint64(0x8080808080808080)
_LOW7 = np.uint64(0x7F7F7F7F7F7F7F7F)
_DOTS = np.uint64(0x2E2E2E2E2E2E2E2E)
_TENS = np.array([10**power for power in range(20)], np.uint64)
_FLOAT_TENS = np.array([10.0**power for power in range(23)])
_GRAMMAR = r"^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?$"
_MINUS, _ZERO, _POINT = 0x2D, 0x30, 0x2E
_FIRST = np.uint64(0xFF)
_BEHIND = np.array([7 - bits // 8 for bits in range(64)] + [0], np.int64)
"""The characters after a point, by the number of bits before it; 64 bits: there is no point."""


def keep_last(word: Words, count: Ints) -> Words:
    """The last `count` (0 to 8) characters of a word, zero bytes before them."""
    drop = ((8 - count) << 3).astype(np.uint64)
    return (word >> drop) << drop


def parse_eight_digits(word: Words, count: Ints) -> tuple[Words, Words]:
    """The number in the last `count` characters; non-zero errors where they are not digits."""
    return _parse_digits_word(keep_last(word ^ _ZEROS, count))


def _parse_digits_word(digits: Words) -> tuple[Words, Words]:
    """The number of eight digits (values, not characters); non-zero errors for other values."""
    wrong = ((digits + _ABOVE_NINE) | digits) & _HIGH
    pairs = (digits * np.uint64(10) + (digits >> np.uint64(8))) & np.uint64(0x00FF00FF00FF00FF)
    fours = (pairs * np.uint64(100) + (pairs >> np.uint64(16))) & np.uint64(0x0000FFFF0000FFFF)
    value = (fours * np.uint64(10000) + (fours >> np.uint64(32))) & np.uint64(0xFFFFFFFF)
    return value, wrong


def parse_digits(words: tuple[Words, ...], count: Ints, most: int) -> tuple[Words, Words]:
    """As `parse_eight_digits`, for three words that end the text; at most 19 characters."""
    value, wrong = parse_eight_digits(words[-1], count if most <= 8 else _digits_in_word(count, 0))
    for step in (1, 2):
        if most <= 8 * step:
            break
        more, odd = parse_eight_digits(words[-1 - step], _digits_in_word(count, step))
        value = value + more * _TENS[8 * step]
        wrong = wrong | odd
    return value, wrong


@dataclass(frozen=True, slots=True)
class Number:
    """Texts as ± `mantissa` · 10^-`places`; the values are arbitrary where `ok` is False.

    `minus` is None if no text has a sign.
    """

    minus: Flags | None
    mantissa: Words
    places: Ints
    ok: Flags


@dataclass(frozen=True, slots=True)
class _Short:
    """Texts of one to eight characters without a sign, as `digits` with leading zeros."""

    count: Ints
    lead: Words
    digits: Words


def _short_texts(block: Block, start: Ints, end: Ints) -> _Short | None:
    """The texts, one load each, if all are short and none has a sign."""
    count = end - start
    if not count.size or count.min() < 1 or count.max() > 8:
        return None
    word = block.word(start)
    lead = word & _FIRST
    if (lead == _MINUS).any():
        return None
    return _Short(count, lead, (word ^ _ZEROS) << ((8 - count) << 3).astype(np.uint64))


def parse_integers(block: Block, start: Ints, end: Ints) -> Number:
    """Parse integers of up to 19 digits."""
    none = np.zeros(0, np.int64)
    short = _short_texts(block, start, end)
    if short is not None:
        mantissa, wrong = _parse_digits_word(short.digits)
        ok = wrong == 0
        zero = short.lead == _ZERO
        if zero.any():
            ok &= ~zero | (short.count == 1)
        return Number(None, mantissa, none, ok)
    minus, first, lead = _strip_signs(block, start)
    count = end - first
    most = _max(count)
    words = block.wide(end - 32) if most > 8 else (block.word(end - 8),)
    used = np.clip(count, 0, 19)
    mantissa, wrong = parse_digits(words, used[:1] if (used == used[:1]).all() else used, most)
    ok = (wrong == 0) & (count >= 1) & (count <= 19)
    ok &= (lead != _ZERO) | (count == 1)
    return Number(minus, mantissa, none, ok)


def _strip_signs(block: Block, start: Ints) -> tuple[Flags | None, Ints, np.ndarray]:
    """Which texts have a sign (None: none), where their digits begin, and the first character."""
    lead = block.bytes[start]
    minus = lead == _MINUS
    if not minus.any():
        return None, start, lead
    first = start + minus
    return minus, first, block.bytes[first]


def _parse_short_decimals(block: Block, start: Ints, end: Ints) -> Number | None:
    """As `parse_decimals`, if all texts are short and unsigned, with points only between digits.

    The digits before the point are shifted by one character, over the point.
    """
    short = _short_texts(block, start, end)
    if short is None or (short.lead == _POINT).any():
        return None
    other = short.digits ^ (_DOTS ^ _ZEROS)
    points = ~(((other & _LOW7) + _LOW7) | other | _LOW7)
    if (points >> np.uint64(63)).any():
        return None
    before = (points >> np.uint64(7)) - np.uint64(1)
    behind = ~((points << np.uint64(1)) - np.uint64(1))
    dotted = points != 0
    moved = (short.digits & before) << (dotted.astype(np.uint64) << np.uint64(3))
    mantissa, wrong = _parse_digits_word(moved | (short.digits & behind))
    places = _BEHIND.take(np.bitwise_count(before), mode="clip")
    ok = wrong == 0
    zero = short.lead == _ZERO
    if zero.any():
        ok &= ~zero | (short.count - places - dotted == 1)
    return Number(None, mantissa, places, ok)


def parse_decimals(block: Block, start: Ints, end: Ints) -> Number:
    """Parse numbers without an exponent, of up to 19 digits and 24 characters."""
    short = _parse_short_decimals(block, start, end)
    if short is not None:
        return short
    minus, first, lead = _strip_signs(block, start)
    count = end - first
    ok = (count >= 1) & (count <= 24)
    if not ok.all():
        count = np.clip(count, 0, 24)
    words = block.wide(end - 32)
    after = _digits_after_point(words, count)
    dotted = after >= 0
    after = np.maximum(after, 0)
    before = count - after - dotted
    ok &= (before >= 1) & (before + after <= 19) & ((after >= 1) | ~dotted)
    ok &= (lead != _ZERO) | (before == 1)
    if not ok.all():
        before, after = np.clip(before, 0, 19), np.minimum(after, 19)
    left, odd_left = parse_digits(block.wide(end - after - dotted - 32), before, _max(before))
    right, odd_right = parse_digits(words, after, _max(after))
    ok &= (odd_left | odd_right) == 0
    return Number(minus, left * _TENS[after] + right, after, ok)


def _max(count: Ints) -> int:
    return int(count.max()) if count.size else 0


def _digits_after_point(words: tuple[Words, ...], count: Ints) -> Ints:
    """The number of characters after the point, -1 without a point.

    Of several points any one is used: the others are not digits, and so the text is refused.
    """
    after = np.full(count.size, -1, np.int64)
    for step in range(3):
        other = words[-1 - step] ^ _DOTS
        found = keep_last(
            ~(((other & _LOW7) + _LOW7) | other | _LOW7), _digits_in_word(count, step)
        )
        here = 7 - (np.bitwise_count(found - np.uint64(1)).astype(np.int64) >> 3)
        after = np.where((here >= 0) & (after < 0), here + 8 * step, after) if step else here
        if ((after >= 0) | (count <= 8 * step + 8)).all():
            break
    return after


def _digits_in_word(count: Ints, step: int) -> Ints:
    """How many of a text's last `count` characters are in word number `step` from the end."""
    return np.minimum(count, 8) if step == 0 else np.clip(count - 8 * step, 0, 8)


def to_int64(number: Number, limit: int) -> tuple[Ints, Flags]:
    """Integers as int64, and which of them are in -limit … limit - 1."""
    value = number.mantissa.view(np.int64)
    if number.minus is None:
        return value, number.ok & (number.mantissa <= np.uint64(limit - 1))
    bound = number.minus.astype(np.uint64) + np.uint64(limit - 1)
    return np.where(number.minus, -value, value), number.ok & (number.mantissa <= bound)


def parse_doubles(block: Block, start: Ints, end: Ints) -> tuple[np.ndarray, Flags]:
    """Parse the nearest double of each text; return also which are finite JSON numbers.

    A mantissa below 2^53 and a power of ten up to 10^22 are exact doubles, so their
    quotient is the nearest one (Clinger); Arrow's parser handles the others.
    """
    number = parse_decimals(block, start, end)
    simple = number.ok & (number.mantissa < np.uint64(2**53))
    size = number.mantissa.astype(np.float64) / _FLOAT_TENS[number.places]
    value = size if number.minus is None else np.where(number.minus, -size, size)
    if simple.all():
        return value, simple
    hard = np.flatnonzero(~simple)
    value[hard], simple[hard] = _parse_others(block, start[hard], end[hard])
    return value, simple


def _parse_others(block: Block, start: Ints, end: Ints) -> tuple[np.ndarray, Flags]:
    texts = block.slices(start, end, pa.binary())
    ok = np.asarray(pc.match_substring_regex(texts, _GRAMMAR).to_numpy(zero_copy_only=False))
    value = np.zeros(ok.size)
    if ok.any():
        value[ok] = [float(text) for text in texts.filter(pa.array(ok)).to_pylist()]
    return value, ok & np.isfinite(value)
