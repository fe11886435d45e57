"""The exact path for JSON: reads a record field by field.

This slow path defines the format: whatever the fast path accepts, this path accepts with the same
values. Values have the types that Arrow takes: integers for times (microseconds) and dates (days),
`decimal.Decimal` for decimals, lists of pairs for maps, tuples for structs. Reading consumes the
parsed value, so that memory holds only one of the two.
"""

from __future__ import annotations

import binascii
import decimal
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from millstream.formats import times
from millstream.formats.decoding import NULL_VALUE, BadRecord, BadValue
from millstream.formats.json.syntax import Real, Whole, parse, preview
from millstream.schema import Array, Decimal, Field, Map, Schema, Struct, Type

LIMITS = {"byte": 2**7, "short": 2**15, "int": 2**31, "long": 2**63}
NON_FINITE = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_NUMBER = re.compile(r"(-?)(0|[1-9]\d*)(?:\.(\d+))?(?:[eE]([+-]?\d+))?", re.ASCII)


@dataclass(slots=True)
class Notes:
    """What a reader found besides the values: whether a field was outside the schema."""

    extra: bool = False


Reader = Callable[[object, Notes], object]


class Records:
    """Reads records of a schema."""

    def __init__(self, schema: Schema) -> None:
        self._fields = _fields_reader(schema.fields)

    def read(self, raw: bytes | None) -> tuple[list[object], bool]:
        """Return the row's values in the schema's order, and whether it had extra fields.

        Raises:
            BadRecord: `str(error)` is the reason.
        """
        if raw is None:
            raise BadRecord(NULL_VALUE)
        try:
            value = parse(raw)
        except BadRecord as error:
            raise BadRecord(f"not JSON: {error}") from None
        if not isinstance(value, dict):
            raise BadRecord(f"needs a JSON object; got {describe(value)}")
        notes = Notes()
        return self._fields(value, notes), notes.extra


@lru_cache(maxsize=256)
def _fields_reader(fields: tuple[Field, ...]) -> Callable[[dict[str, object], Notes], list[object]]:
    plan = [(field.name, field.nullable, field.type.ddl(), reader(field.type)) for field in fields]
    known = frozenset(field.name for field in fields)

    def read_fields(given: dict[str, object], notes: Notes) -> list[object]:
        row: list[object] = []
        for name, nullable, words, read_value in plan:
            value = given.get(name)
            if value is not None:
                try:
                    row.append(read_value(value, notes))
                except BadValue as refused:
                    raise refused.inside(name) from None
            elif nullable:
                row.append(None)
            else:
                lack = "got null" if name in given else "it is missing"
                raise BadValue(f"needs {_with_article(words)}; {lack}").inside(name)
        if not known.issuperset(given):
            notes.extra = True
        return row

    return read_fields


@lru_cache(maxsize=256)
def reader(type_: Type) -> Reader:
    """Return the function that reads a non-null value of a type, or raises `BadValue`."""
    if isinstance(type_, Array):
        return _array(type_)
    if isinstance(type_, Map):
        return _map(type_)
    if isinstance(type_, Struct):
        return _struct(type_)
    if isinstance(type_, Decimal):
        return lambda value, _: _decimal(value, type_)
    if type_.name in LIMITS:
        return lambda value, _: _whole(value, type_.name)
    if type_.name in ("float", "double"):
        return lambda value, _: _real(value, type_.name)
    return _PLAIN[type_.name]


def describe(value: object) -> str:
    """Describe a JSON value for the clause "got …"."""
    if value is None:
        return "null"
    names: dict[type, str] = {
        bool: "a boolean", Whole: "a number", Real: "a number",
        str: "a string", list: "an array", dict: "an object",
    }  # fmt: skip
    return names[type(value)]


def _with_article(words: str) -> str:
    return f"{'an' if words[0] in 'aeiou' else 'a'} {words}"


def _mismatch(value: object, words: str) -> BadValue:
    return BadValue(f"needs {_with_article(words)}; got {describe(value)}")


def _whole(value: object, name: str) -> int:
    if type(value) is not Whole:
        if type(value) is Real:
            raise BadValue(f"needs {_with_article(name)}; got {_short(value)}")
        raise _mismatch(value, name)
    number = int(value) if len(value) <= 20 else None
    if number is None or not -LIMITS[name] <= number < LIMITS[name]:
        raise BadValue(f"needs {_with_article(name)}; got {_short(value)}, beyond its range")
    return number


def _real(value: object, name: str) -> float:
    if type(value) is str and value in NON_FINITE:
        return NON_FINITE[value]
    if type(value) is not Whole and type(value) is not Real:
        raise _mismatch(value, name)
    number = float(value)
    if name == "float":
        number = _single(number)
    if number in (float("inf"), float("-inf")):
        raise BadValue(f"needs {_with_article(name)}; got {_short(value)}, beyond its range")
    return number


def _single(number: float) -> float:
    try:
        return float(struct.unpack("f", struct.pack("f", number))[0])
    except OverflowError:
        return float("inf")


def _decimal(value: object, type_: Decimal) -> decimal.Decimal:
    found = _NUMBER.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        got = f"the text {preview(value)}" if isinstance(value, str) else describe(value)
        raise BadValue(f"needs {_with_article(type_.ddl())}; got {got}")
    text = found.string
    sign, whole, part, exponent = found.groups(default="")
    digits = (whole + part).lstrip("0")
    kept = digits.rstrip("0")
    if not kept:
        return decimal.Decimal(f"0E-{type_.scale}")
    power = _power(exponent) - len(part) + len(digits) - len(kept)
    if power < -type_.scale or len(kept) + power > type_.precision - type_.scale:
        raise BadValue(
            f"needs {_with_article(type_.ddl())}; got {_short(text)}, which does not fit"
        )
    unscaled = kept + "0" * (power + type_.scale)
    return decimal.Decimal(f"{sign}{unscaled}E-{type_.scale}")


def _power(exponent: str) -> int:
    digits = exponent.lstrip("+-").lstrip("0")[:12]
    return int(digits or 0) * (-1 if exponent[:1] == "-" else 1)


def _boolean(value: object, _: Notes) -> bool:
    if type(value) is not bool:
        raise _mismatch(value, "boolean")
    return value


def _string(value: object, _: Notes) -> str:
    if type(value) is not str:
        raise _mismatch(value, "string")
    if not value.isascii() and not _encodable(value):
        raise BadValue("needs a string; got half of a surrogate pair")
    return value


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _binary(value: object, _: Notes) -> bytes:
    if type(value) is not str:
        raise _mismatch(value, "binary")
    return from_base64(value)


def from_base64(text: str) -> bytes:
    """Decode canonical base64: padded, without blanks or stray bits."""
    try:
        made = binascii.a2b_base64(text)
    except ValueError:
        made = None
    if made is None or binascii.b2a_base64(made, newline=False).decode() != text:
        raise BadValue("needs a binary; got text that is not base64")
    return made


def _date(value: object, _: Notes) -> int:
    if type(value) is not str:
        raise _mismatch(value, "date")
    try:
        return times.parse_date(value)
    except times.InvalidTime as error:
        raise BadValue(f"needs a date; got {error}") from None


def _timestamp(value: object, _: Notes) -> int:
    try:
        if type(value) is str:
            return times.parse_timestamp(value, zoned=True)
        if type(value) is Whole:
            return times.from_millis(int(value[:20]))
    except times.InvalidTime as error:
        raise BadValue(f"needs a timestamp; got {error}") from None
    if type(value) is Real:
        raise BadValue(f"needs a timestamp; got {_short(value)}, no whole milliseconds")
    raise _mismatch(value, "timestamp")


def _wall_clock(value: object, _: Notes) -> int:
    if type(value) is not str:
        raise _mismatch(value, "timestamp_ntz")
    try:
        return times.parse_timestamp(value, zoned=False)
    except times.InvalidTime as error:
        raise BadValue(f"needs a timestamp_ntz; got {error}") from None


def _array(type_: Array) -> Reader:
    read_element = reader(type_.element)

    def read_array(value: object, notes: Notes) -> list[object]:
        if type(value) is not list:
            raise _mismatch(value, "array")
        place = 0
        try:
            for place, element in enumerate(value):
                if element is not None:
                    value[place] = read_element(element, notes)
        except BadValue as refused:
            raise refused.inside(f"[{place}]") from None
        return value

    return read_array


def _map(type_: Map) -> Reader:
    read_value = reader(type_.value)

    def read_map(value: object, notes: Notes) -> list[tuple[str, object]]:
        if type(value) is not dict:
            raise _mismatch(value, "map")
        made: list[tuple[str, object]] = []
        for key, part in value.items():
            try:
                name = _string(key, notes)
                made.append((name, None if part is None else read_value(part, notes)))
            except BadValue as refused:
                raise refused.inside(f"[{preview(key)}]") from None
        return made

    return read_map


def _struct(type_: Struct) -> Reader:
    read_fields = _fields_reader(type_.fields)
    nothing = (None,) * len(type_.fields)
    nullable = all(field.nullable for field in type_.fields)

    def read_struct(value: object, notes: Notes) -> tuple[object, ...]:
        if type(value) is not dict:
            raise _mismatch(value, "struct")
        if nullable and not value:
            return nothing
        return tuple(read_fields(value, notes))

    return read_struct


def _short(text: str) -> str:
    return str(text) if len(text) <= 40 else f"{text[:39]}…"


_PLAIN: dict[str, Reader] = {
    "boolean": _boolean,
    "string": _string,
    "binary": _binary,
    "date": _date,
    "timestamp": _timestamp,
    "timestamp_ntz": _wall_clock,
}
