"""What a JSON record means, written a second time from the rules alone.

A recursive-descent reader of RFC 8259 and a reader for each type, by regular expressions,
`datetime` and `decimal`. It imports nothing of `millstream` and is as slow as it is plain.

A type is a word ("long"), or one of ("decimal", precision, scale), ("array", type),
("map", type), ("struct", fields); fields are (name, type, nullable) triples. Values are
those that `pyarrow.Table.to_pylist` shows.
"""

from __future__ import annotations

import base64
import math
import re
import struct
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

Type = Any
Fields = list[tuple[str, Type, bool]]

_BLANKS = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_PLAIN = re.compile(r'[^"\\\x00-\x1f]+')
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_HEX = re.compile(r"[0-9a-fA-F]{4}")
_TIME = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
    r"(?:[T ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?"
    r"(?:(Z)|([+-])([0-9]{2})(?::?([0-9]{2}))?)?)?"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Bad(Exception):
    """The record is a bad row; `field` is the outermost field at fault, None if there is none."""

    def __init__(self, field: str | None = None) -> None:
        super().__init__(field)
        self.field = field


class Number(str):
    """A number's text."""


class Reader:
    """One JSON text."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def document(self) -> Any:
        value = self.value(1)
        self.blanks()
        if self.at != len(self.text):
            raise Bad
        return value

    def blanks(self) -> None:
        self.at = _BLANKS.match(self.text, self.at).end()  # type: ignore[union-attr]

    def take(self, word: str) -> bool:
        found = self.text.startswith(word, self.at)
        self.at += len(word) if found else 0
        return found

    def value(self, depth: int) -> Any:
        self.blanks()
        if self.take("{"):
            return self.object(depth)
        if self.take("["):
            return self.array(depth)
        if self.take('"'):
            return self.string()
        for word, value in (("true", True), ("false", False), ("null", None)):
            if self.take(word):
                return value
        number = _NUMBER.match(self.text, self.at)
        if number is None:
            raise Bad
        self.at = number.end()
        return Number(number.group())

    def object(self, depth: int) -> dict[str, Any]:
        made: dict[str, Any] = {}
        if depth > 100:
            raise Bad
        self.blanks()
        while not self.take("}"):
            if made and not self.take(","):
                raise Bad
            self.blanks()
            if not self.take('"'):
                raise Bad
            name = self.string()
            self.blanks()
            if name in made or not self.take(":"):
                raise Bad
            made[name] = self.value(depth + 1)
            self.blanks()
        return made

    def array(self, depth: int) -> list[Any]:
        made: list[Any] = []
        if depth > 100:
            raise Bad
        self.blanks()
        while not self.take("]"):
            if made and not self.take(","):
                raise Bad
            made.append(self.value(depth + 1))
            self.blanks()
        return made

    def string(self) -> str:
        parts: list[str] = []
        while not self.take('"'):
            if self.take("\\"):
                parts.append(self.escape())
                continue
            plain = _PLAIN.match(self.text, self.at)
            if plain is None:
                raise Bad
            parts.append(plain.group())
            self.at = plain.end()
        units = "".join(parts).encode("utf-16-le", "surrogatepass")
        return units.decode("utf-16-le", "surrogatepass")

    def escape(self) -> str:
        mark = self.text[self.at : self.at + 1]
        self.at += 1
        if mark == "u":
            found = _HEX.match(self.text, self.at)
            if found is None:
                raise Bad
            self.at = found.end()
            return chr(int(found.group(), 16))
        if mark not in _ESCAPES:
            raise Bad
        return _ESCAPES[mark]


def read(raw: bytes | None, fields: Fields) -> tuple[dict[str, Any], bool]:
    """The row and whether it carried fields outside the schema; `Bad` for a bad row."""
    if raw is None:
        raise Bad
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise Bad from None
    value = Reader(text).document()
    if not isinstance(value, dict):
        raise Bad
    return _fields(value, fields)


def _fields(given: dict[str, Any], fields: Fields) -> tuple[dict[str, Any], bool]:
    row: dict[str, Any] = {}
    extra = bool(set(given) - {name for name, _, _ in fields})
    for name, type_, nullable in fields:
        value = given.get(name)
        if value is None and not nullable:
            raise Bad(name)
        try:
            row[name], more = (None, False) if value is None else _value(value, type_)
        except Bad:
            raise Bad(name) from None
        extra = extra or more
    return row, extra


def _value(value: Any, type_: Type) -> tuple[Any, bool]:
    if isinstance(type_, str):
        return _SCALARS[type_](value), False
    word = type_[0]
    if word == "decimal":
        return _decimal(value, type_[1], type_[2]), False
    if word == "struct":
        return _fields(_of(value, dict), type_[1])
    parts: list[tuple[str | None, Any]]
    if word == "array":
        parts = [(None, part) for part in _of(value, list)]
    else:
        parts = [(_string(key), part) for key, part in _of(value, dict).items()]
    extra = False
    made: list[Any] = []
    for key, part in parts:
        one, more = (None, False) if part is None else _value(part, type_[1])
        extra = extra or more
        made.append(one if word == "array" else (key, one))
    return made, extra


def _of(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise Bad
    return value


def _whole(bits: int) -> Any:
    def read_whole(value: Any) -> int:
        text = _of(value, Number)
        if not re.fullmatch(r"-?[0-9]{1,25}", text):
            raise Bad
        number = int(text)
        if not -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
            raise Bad
        return number

    return read_whole


def _double(value: Any) -> float:
    if value in ("NaN", "Infinity", "-Infinity") and type(value) is str:
        return float(value)
    number = float(_of(value, Number))
    if math.isinf(number):
        raise Bad
    return number


def _float(value: Any) -> float:
    number = _double(value)
    if math.isnan(number) or math.isinf(number):
        return number
    try:
        return float(struct.unpack("<f", struct.pack("<f", number))[0])
    except OverflowError:
        raise Bad from None


def _decimal(value: Any, precision: int, scale: int) -> Decimal:
    if type(value) not in (str, Number) or not _NUMBER.fullmatch(value):
        raise Bad
    mantissa, _, exponent = value.lower().partition("e")
    if set(mantissa) <= set("-0."):
        return Decimal((0, (0,), -scale))
    if abs(float(exponent or 0)) > 5000:
        raise Bad
    unscaled = Fraction(mantissa) * Fraction(10) ** (int(exponent or 0) + scale)
    if unscaled.denominator != 1 or abs(unscaled) >= 10**precision:
        raise Bad
    digits = tuple(int(digit) for digit in str(abs(int(unscaled))))
    return Decimal((int(unscaled < 0), digits, -scale))


def _boolean(value: Any) -> bool:
    return bool(_of(value, bool))


def _string(value: Any) -> str:
    text = str(_of(value, str))
    if any(0xD800 <= ord(mark) <= 0xDFFF for mark in text):
        raise Bad
    return text


def _binary(value: Any) -> bytes:
    text = _string(value)
    if not re.fullmatch(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?", text):
        raise Bad
    made = base64.b64decode(text)
    if base64.b64encode(made).decode() != text:
        raise Bad
    return made


def _date(value: Any) -> date:
    text = _of(value, str)
    if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
        raise Bad
    try:
        return datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC).date()
    except ValueError:
        raise Bad from None


def _instant(text: str) -> tuple[datetime, bool]:
    """The moment, and whether the text named a zone."""
    found = _TIME.fullmatch(text)
    if found is None:
        raise Bad
    year, month, day, hour, minute, second, part, zulu, sign, hours, minutes = found.groups()
    nanos = int((part or "").ljust(9, "0"))
    shift = timedelta(hours=int(hours or 0), minutes=int(minutes or 0))
    if nanos % 1000 or int(minutes or 0) > 59 or int(hours or 0) > 23:
        raise Bad
    try:
        local = datetime(
            int(year), int(month), int(day),
            int(hour or 0), int(minute or 0), int(second or 0), nanos // 1000, UTC,
        )  # fmt: skip
        moment = local + shift if sign == "-" else local - shift
    except (ValueError, OverflowError):
        raise Bad from None
    return moment, bool(zulu or sign)


def _timestamp(value: Any) -> datetime:
    if type(value) is Number:
        number = _whole(64)(value)
        try:
            return _EPOCH + timedelta(milliseconds=number)
        except OverflowError:
            raise Bad from None
    return _instant(_of(value, str))[0]


def _wall_clock(value: Any) -> datetime:
    moment, zoned = _instant(_of(value, str))
    if zoned:
        raise Bad
    return moment.replace(tzinfo=None)


_SCALARS: dict[str, Any] = {
    "boolean": _boolean,
    "byte": _whole(8),
    "short": _whole(16),
    "int": _whole(32),
    "long": _whole(64),
    "float": _float,
    "double": _double,
    "string": _string,
    "binary": _binary,
    "date": _date,
    "timestamp": _timestamp,
    "timestamp_ntz": _wall_clock,
}
