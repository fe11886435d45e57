"""Random schemas and records for the conformance tests: most are alike, some are unusual."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from random import Random

Type = Any
Fields = list[tuple[str, Type, bool]]

SCALARS = (
    "boolean", "byte", "short", "int", "long", "float", "double", "string", "binary", "date",
    "timestamp", "timestamp_ntz",
)  # fmt: skip
NAMES = ("a", "b", "price", "ts", "naïve", "a b", "x.y", "quite_a_long_name_for_a_column", "A", "")
NASTY = (
    b"5", b"5.5", b"1.0", b"1e3", b"-0", b"-0.0", b"0.0", b"1e400", b"-1e400", b"1e-400", b"01",
    b"-01", b"+1", b".5", b"5.", b"1.e1", b"-", b"--1", b"1-", b"0x10", b"1_0", b"1e", b"1e+",
    b"00", b"0e0", b"9223372036854775807", b"9223372036854775808", b"-9223372036854775808",
    b"-9223372036854775809", b"99999999999999999999", b"1" * 30, b"1" * 400, b"127", b"128",
    b"-128", b"-129", b"32768", b"2147483648", b"3.4028235e38", b"3.5e38", b"16777217",
    b"9007199254740993", b"0.1000000000000000055511151231257827", b"123456789012345.678",
    b"2.2250738585072011e-308", b"4.9e-324", b"1.7976931348623159e308", b"true", b"false",
    b"null", b"True", b"nul", b"nulll", b"NaN", b"Infinity", b"-Infinity", b'"NaN"',
    b'"Infinity"', b'"-Infinity"', b'"inf"', b'"5"', b'"5.50"', b'"-1.2e1"', b'" 5"', b'""',
    b'"\\u0000"', b'"\\ud800"', b'"\\ude00\\ud83d"', b'"\\ud83d\\ude00"', b'"\\x"', b'"\\u12"',
    b'"\\u12g4"', b'"\\"', b'"\\\\"', b'"\\\\\\""', b'"a\\/b"', b'"a\nb"', b'"a\x00b"',
    b'"\x7f"', b'"\xc3\xa9"', b'"\xff"', b'"\xed\xa0\x80"', b'"\xc0\x80"', b'"\xf4\x90\x80\x80"',
    b'"\xe2\x82"', b'":"', b'"{"', b'"},{"', b'"\\u00e9"', b"'a'", b"[]", b"[1,2]", b"[null]",
    b'["a"]', b"{}", b'{"a":1}', b'{"a":1,"a":2}', b'{"q":[1,{"z":[]}]}', b"[" * 101 + b"]" * 101,
    b"[" * 99 + b"]" * 99, b'"2026-01-01T00:00:00Z"', b'"2026-01-01 00:00:00"',
    b'"2026-01-01T00:00"', b'"2026-01-01"', b'"2026-01-01T00:00:00.1234567Z"',
    b'"2026-01-01T00:00:00.1234560Z"', b'"2026-01-01T00:00:00.123456000Z"',
    b'"2026-01-01T00:00:00.Z"', b'"2026-01-01T24:00:00Z"', b'"2026-01-01T23:59:60Z"',
    b'"2026-02-29T00:00:00Z"', b'"2024-02-29T23:59:59.999999+14:00"', b'"1900-02-29"',
    b'"2000-02-29"', b'"0000-01-01T00:00:00Z"', b'"0001-01-01T00:00:00Z"',
    b'"0001-01-01T00:00:00+00:01"', b'"9999-12-31T23:59:59.999999Z"',
    b'"9999-12-31T23:59:59-00:01"', b'"2026-01-01T00:00:00+0100"', b'"2026-01-01T00:00:00-01"',
    b'"2026-01-01T00:00:00+24:00"', b'"2026-01-01T00:00:00+23:59"', b'"2026-01-01T00:00:00-00:60"',
    b'"2026-01-01t00:00:00z"', b'"2026-1-1"', b'"2026-13-01"', b'"2026-00-10"', b'"2026-01-00"',
    b'"20260101"', b'"1767225600000"', b'"2026-01-01T00:00:00.5"', b'"2026-01-01T00:00:00,5Z"',
    b'"2026-01-01T00:00:00.5+01:00"', b'"2026-01-01T00:00:00 Z"', b'"2026-01-01T00:00:00ZZ"',
    b'"\xd9\xa2026-01-01"', b"1767225600000", b"-62135596800000", b"-62135596800001",
    b"253402300799999", b"253402300800000", b"1767225600000.0", b'"QQ=="', b'"QR=="', b'"QQ"',
    b'"QUJD"', b'"QU JD"', b'"QUJ\\u0044"', b'"-_-_"', b'"\\u0051Q=="', b"-5", b"0.10", b"12.345",
    b"1e-2", b"1E+2", b"0e99999999999", b"1e00000000000000000001", b"1e99999999999999999999",
    b"12345678901234567890123456789.123456789", b"9999999999.99", b"10000000000.00",
    b"0.000", b"1.12345678901", b"-0.0000000000001", b"100.", b"1 2", b'"a" "b"', b"",
)  # fmt: skip
MARKS = b'{}[]:,"\\ \t\n\r\x00\x1f+-.0123456789eEtrufalsn\x7f\x80\xc3\xa9\xff'


def random_type(random: Random, depth: int = 0) -> Type:
    """Mostly scalars; nested ones up to two levels."""
    choice = random.random()
    if depth < 2 and choice < 0.08:
        return ("array", random_type(random, depth + 1))
    if depth < 2 and choice < 0.14:
        return ("map", random_type(random, depth + 1))
    if depth < 2 and choice < 0.26:
        return ("struct", random_fields(random, depth + 1))
    if choice < 0.36:
        precision = random.choice((1, 4, 12, 18, 19, 38))
        return ("decimal", precision, random.randint(0, precision))
    return random.choice(SCALARS)


def random_fields(random: Random, depth: int = 0) -> Fields:
    names = random.sample(NAMES[: 8 if depth == 0 else 5], random.randint(1, 5))
    return [(name, random_type(random, depth), random.random() < 0.8) for name in names]


def good(random: Random, type_: Type) -> bytes:
    """The text of a valid value, in one of the forms that producers write."""
    if isinstance(type_, str):
        return bytes(_GOOD[type_](random))
    if type_[0] == "decimal":
        digits = str(random.randrange(10 ** random.randint(1, type_[1]))).zfill(type_[2] + 1)
        cut = len(digits) - type_[2]
        text = digits[:cut] + ("." + digits[cut:] if type_[2] else "")
        text = random.choice(("", "-")) + text
        return (f'"{text}"' if random.random() < 0.5 else text).encode()
    if type_[0] == "array":
        parts = [good(random, type_[1]) for _ in range(random.randrange(3))]
        return b"[" + b",".join(parts) + b"]"
    if type_[0] == "map":
        pairs = [
            b'"k%d":' % number + good(random, type_[1]) for number in range(random.randrange(3))
        ]
        return b"{" + b",".join(pairs) + b"}"
    return record(random, [(name, good(random, part)) for name, part, _ in type_[1]])


def _time(random: Random) -> bytes:
    text = (
        f"{random.randint(1, 9999):04}-{random.randint(1, 12):02}-{random.randint(1, 28):02}"
        f"{random.choice('T ')}{random.randrange(24):02}:{random.randrange(60):02}"
        f":{random.randrange(60):02}"
    )
    if random.random() < 0.6:
        size = random.randint(1, 6)
        text += "." + "".join(random.choices("0123456789", k=size))
    return text.encode()


def _text(random: Random) -> bytes:
    alphabet = random.choice(('abc :,{}[]"\\', "é€😀abc\n\t\u2028", "abcdefghij0123456789"))
    text = "".join(random.choices(alphabet, k=random.randrange(24)))
    return json.dumps(text, ensure_ascii=random.random() < 0.5).encode()


def _real(random: Random) -> bytes:
    number = random.choice((random.random(), random.gauss(0, 1e9), random.randrange(10**6) / 100))
    return repr(random.choice((number, number * 1e-12, float(int(number))))).encode()


_GOOD: dict[str, Any] = {
    "boolean": lambda random: random.choice((b"true", b"false")),
    "byte": lambda random: b"%d" % random.randint(-128, 127),
    "short": lambda random: b"%d" % random.randint(-(2**15), 2**15 - 1),
    "int": lambda random: b"%d" % random.randint(-(2**31), 2**31 - 1),
    "long": lambda random: b"%d" % random.randint(-(2**63), 2**63 - 1),
    "float": _real,
    "double": _real,
    "string": _text,
    "binary": lambda random: random.choice((b'"QUJD"', b'"QQ=="', b'"AAE="', b'""')),
    "date": lambda random: b'"' + _time(random)[:10] + b'"',
    "timestamp": lambda random: random.choice(
        (
            b'"' + _time(random) + random.choice((b"Z", b"", b"+01:00", b"-08:30")) + b'"',
            b"%d" % random.randint(0, 2 * 10**12),
        )
    ),
    "timestamp_ntz": lambda random: b'"' + _time(random) + b'"',
}


def record(
    random: Random, pairs: list[tuple[str, bytes]], style: tuple[bytes, bytes] = (b",", b":")
) -> bytes:
    """An object with these names and texts, written in one style."""
    comma, colon = style
    parts = [json.dumps(name, ensure_ascii=False).encode() + colon + text for name, text in pairs]
    return b"{" + comma.join(parts) + b"}"


def mutated(random: Random, raw: bytes) -> bytes:
    """The record with one to three bytes changed, added, removed or repeated."""
    made = bytearray(raw)
    for _ in range(random.randint(1, 3)):
        at = random.randrange(len(made) + 1)
        what = random.randrange(4)
        if what == 0:
            made.insert(at, random.choice(MARKS))
        elif what == 1 and at < len(made):
            made[at] = random.choice(MARKS)
        elif what == 2:
            del made[at : at + random.randint(1, 3)]
        else:
            size = random.randint(1, 12)
            made[at:at] = made[max(at - size, 0) : at]
    return bytes(made)


def records(random: Random, fields: Fields, count: int) -> list[bytes | None]:
    """Records of one producer; some have unusual, missing or extra fields, or damaged bytes."""
    style = random.choice(((b",", b":"), (b", ", b": "), (b" ,\n", b"\t: ")))
    trouble = random.choice((0.02, 0.2))
    always_extra = random.random() < 0.3
    made: list[bytes | None] = []
    for _ in range(count):
        pairs = [(name, good(random, type_)) for name, type_, _ in fields]
        if always_extra:
            pairs.insert(1, ("more", random.choice((b"1", b'"x"', b"null", b'{"deep":true}'))))
        if random.random() < trouble:
            place = random.randrange(len(pairs))
            pairs[place] = (pairs[place][0], random.choice(NASTY))
        if random.random() < trouble:
            random.shuffle(pairs)
        if random.random() < trouble:
            del pairs[random.randrange(len(pairs))]
        if random.random() < trouble:
            pairs.append((random.choice(NAMES), random.choice(NASTY)))
        raw: bytes | None = record(random, pairs, style)
        if random.random() < trouble and raw:
            raw = random.choice((mutated(random, raw), raw + raw, b" " + raw + b"\n", None, b""))
        made.append(raw)
    return made


def ddl(fields: Fields) -> str:
    """Spark's text for the fields."""
    return ", ".join(
        f"`{name}` {type_text(type_)}{'' if nullable else ' not null'}"
        for name, type_, nullable in fields
    )


def type_text(type_: Type) -> str:
    if isinstance(type_, str):
        return type_
    if type_[0] == "decimal":
        return f"decimal({type_[1]},{type_[2]})"
    if type_[0] == "array":
        return f"array<{type_text(type_[1])}>"
    if type_[0] == "map":
        return f"map<string,{type_text(type_[1])}>"
    return f"struct<{ddl(type_[1])}>"
