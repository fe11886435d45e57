"""JSON scalars as Spark SQL: null if a text is not a value of the type.

Each function takes the SQL of a text and returns the SQL of a value. `formats/json/exact.py`
and `formats/json/times.py` are the definition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.formats.times import GREATEST, LEAST

if TYPE_CHECKING:
    from millstream.schema import Decimal


def text(value: str) -> str:
    """A string as SQL."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def let(name: str, value: str, body: str) -> str:
    """`body` with `name` bound to `value`, which is computed once."""
    return f"element_at(transform(array({value}), {name} -> {body}), 1)"


_DAY = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_CLOCK = r"[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:[.][0-9]{1,9})?)?"
_ZONE = r"Z|[+-][0-9]{2}(?::?[0-9]{2})?"
_WHOLE = text(r"\A-?[0-9]{1,20}\z")
_NUMBER = text(r"\A(-?)(0|[1-9][0-9]*)(?:[.]([0-9]+))?(?:[eE]([+-]?[0-9]+))?\z")
_DATE = text(rf"\A{_DAY}\z")
_INSTANT = text(rf"\A{_DAY}(?:[T ]{_CLOCK}(?:{_ZONE})?)?\z")
_WALL_CLOCK = text(rf"\A{_DAY}(?:[T ]{_CLOCK})?\z")
_LAST_ZONE = text(rf"[T ].*?({_ZONE})\z")
_FRACTION = text("[.]([0-9]+)")
_FAR = 1_000_000_000_000


def whole(digits: str, kind: str) -> str:
    """A number without point and exponent, in the range of the type."""
    return f"if({digits} rlike {_WHOLE}, try_cast({digits} as {kind}), null)"


def real(digits: str, string: str, name: str) -> str:
    """The nearest number, or NaN or an infinity by name; null if out of range."""
    number = f"cast(try_cast({digits} as double) as {name})"
    finite = let("_f", number, "if(abs(_f) = double('Infinity'), null, _f)")
    return (
        f"case when {string} in ('NaN', 'Infinity', '-Infinity') then cast({string} as {name}) "
        f"when {digits} is not null then {finite} end"
    )


def decimal(digits: str, type_: Decimal) -> str:
    """The exact value: null if it had to be rounded."""
    sign, before, after, exponent = (
        f"regexp_extract({digits}, {_NUMBER}, {group})" for group in (1, 2, 3, 4)
    )
    parts = (
        f"struct({sign} as sign, ltrim('0', concat({before}, {after})) as digits, "
        f"bigint(length({after})) as places, {exponent} as exponent)"
    )
    power = (
        "case when _n.exponent = '' then 0 "
        "when try_cast(_n.exponent as int) is not null then bigint(_n.exponent) "
        f"when _n.exponent like '-%' then {-_FAR} else {_FAR} end "
        "- _n.places + length(_n.digits) - length(_k)"
    )
    kind, room = type_.ddl(), type_.precision - type_.scale
    value = f"try_cast(concat(_n.sign, _k, 'E', string(_p)) as {kind})"
    fits = f"_p >= {-type_.scale} and length(_k) + _p <= {room}"
    body = let("_p", power, f"if({fits}, {value}, null)")
    body = let("_k", "rtrim('0', _n.digits)", f"if(_k = '', cast(0 as {kind}), {body})")
    return f"if({digits} rlike {_NUMBER}, {let('_n', parts, body)}, null)"


def binary(string: str) -> str:
    """Canonical base64 only: exactly what encoding the bytes gives."""
    written = "replace(base64(_b), '\\r\\n', '')"
    return let("_b", f"try_to_binary({string}, 'base64')", f"if({written} = {string}, _b, null)")


def date(string: str) -> str:
    """`YYYY-MM-DD`, a day that exists."""
    return f"if({string} rlike {_DATE}, {_day(string)}, null)"


def millis(digits: str) -> str:
    """Whole milliseconds since the epoch."""
    inside = f"_m between {LEAST // 1000} and {GREATEST // 1000}"
    value = let("_m", f"try_cast({digits} as bigint)", f"if({inside}, timestamp_millis(_m), null)")
    return f"if({digits} rlike {_WHOLE}, {value}, null)"


def instant(string: str) -> str:
    """ISO text, in UTC if it has no zone."""
    return f"if({string} rlike {_INSTANT}, {_moment(string)}, null)"


def wall_clock(string: str) -> str:
    """ISO text without a zone."""
    return f"if({string} rlike {_WALL_CLOCK}, cast({_moment(string)} as timestamp_ntz), null)"


def _day(string: str) -> str:
    found = f"try_cast(substr({string}, 1, 10) as date)"
    return let("_day", found, "if(_day >= date'0001-01-01', _day, null)")


def _moment(string: str) -> str:
    """The instant of a text in ISO form."""
    parts = (
        f"struct({_day(string)} as day, {_two(string, 12)} as h, {_two(string, 15)} as m, "
        f"if(substr({string}, 17, 1) = ':', {_two(string, 18)}, 0) as s, "
        f"rpad(regexp_extract({string}, {_FRACTION}, 1), 9, '0') as fraction, "
        f"regexp_extract({string}, {_LAST_ZONE}, 1) as zone)"
    )
    hours = _two("_t.zone", 2)
    minutes = "if(length(_t.zone) > 3, int(right(_t.zone, 2)), 0)"
    offset = f"if(_t.zone like '-%', -60, 60) * ({hours} * 60 + {minutes})"
    exists = (
        "_t.day is not null and _t.h <= 23 and _t.m <= 59 and _t.s <= 59 "
        f"and right(_t.fraction, 3) = '000' and {hours} <= 23 and {minutes} <= 59"
    )
    micros = (
        "(((bigint(unix_date(_t.day)) * 24 + _t.h) * 60 + _t.m) * 60 + _t.s "
        f"- {offset}) * 1000000 + int(left(_t.fraction, 6))"
    )
    inside = f"if(_u between {LEAST} and {GREATEST}, timestamp_micros(_u), null)"
    return let("_t", parts, f"if({exists}, {let('_u', micros, inside)}, null)")


def _two(string: str, place: int) -> str:
    """Two digits at a position as a number; 0 if there are none."""
    return f"coalesce(try_cast(nullif(substr({string}, {place}, 2), '') as int), 0)"
