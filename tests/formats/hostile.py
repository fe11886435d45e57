"""Expensive records of any size, as a hostile producer may send them, for each decoder."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from google.protobuf import descriptor_pb2
from tests.formats.protobuf_files import field

from millstream.formats.avro.format import Avro
from millstream.formats.choice import format_of
from millstream.formats.framing import BARE, Framing
from millstream.formats.protobuf.format import Protobuf
from millstream.schema import Schema

if TYPE_CHECKING:
    from millstream.formats.spec import Format

Maker = Callable[[int], bytes]


@dataclass(frozen=True)
class Target:
    """One decoder with its schema, an ordinary record, and factories of expensive records."""

    format: Format
    schema: Schema
    normal: bytes
    hostile: dict[str, Maker]


def varint(number: int) -> bytes:
    made = bytearray()
    while number > 0x7F:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*made, number])


def _long(number: int) -> bytes:
    return varint((number << 1) ^ (number >> 63))


def _filled(unit: bytes, *, before: bytes = b"", after: bytes = b"") -> Maker:
    return lambda size: before + unit * (size // len(unit)) + after


def _numbered(form: str, join: str, *, before: str, after: str) -> Maker:
    """Parts that differ by their number."""

    def make(size: int) -> bytes:
        count = max(1, size // (len(form) + 6))
        return (
            before + join.join(form.replace("#", str(n)) for n in range(count)) + after
        ).encode()

    return make


# -- JSON ----------------------------------------------------------------------------

_JSON = Schema.parse(
    "id long, text string, more array<long>, deep array<array<long>>, "
    "parts array<struct<a long, b string>>, names map<string,long>, exact decimal(38,10), "
    "real double, raw binary, at timestamp"
)


def _text(unit: bytes) -> Maker:
    return _filled(unit, before=b'{"id":1,"text":"', after=b'"}')


def _value(unit: bytes, *, name: bytes = b"more", before: bytes = b"", after: bytes = b"") -> Maker:
    return _filled(unit, before=b'{"id":1,"' + name + b'":' + before, after=after + b"}")


def _listed(unit: bytes, last: bytes, name: bytes = b"more") -> Maker:
    return _value(unit + b",", name=name, before=b"[", after=last + b"]")


def _many_slots(size: int) -> bytes:
    """Objects with as many scalars as a shape may have, each with a different name."""
    count = min(500, max(1, size // 16))
    return b'{"id":1,' + b",".join(b'"x%d_%d":%d' % (size, n, n) for n in range(count)) + b"}"


JSON = {
    "brackets in a text": _text(b"["),
    "braces in a text": _text(b'{}'),
    "escapes in a text": _text(b"\\n"),
    "escaped quotes in a text": _text(b'\\"'),
    "backslashes in a text": _text(b"\\\\"),
    "code points in a text": _text(b"\\u00e9"),
    "letters in a text": _text(b"x"),
    "signs beyond ascii in a text": _text("é€".encode()),
    "invalid bytes in a text": _text(b"\xff"),
    "half an escape": _filled(b"\\", before=b'{"id":1,"text":"', after=b'"}'),
    "brackets in another field": _filled(b"[", before=b'{"id":1,"other":"', after=b'"}'),
    "escapes in another field": _filled(b"\\t", before=b'{"id":1,"other":"', after=b'"}'),
    "brackets that open": _filled(b"["),
    "objects that open": _filled(b'{"a":'),
    "brackets that open in a field": _value(b"["),
    "quotes": _filled(b'"'),
    "backslashes": _filled(b"\\"),
    "blanks": _filled(b" ", before=b'{"id":1}'),
    "commas": _value(b",", before=b"[", after=b"]"),
    "digits of a long": _value(b"7", name=b"id2", before=b"1"),
    "digits for a long": _filled(b"7", before=b'{"id":1'),
    "digits for a double": _value(b"7", name=b"real", before=b"1."),
    "zeros for a double": _value(b"0", name=b"real", before=b"0.", after=b"1"),
    "whole digits for a double": _value(b"7", name=b"real", before=b"1"),
    "digits for a decimal": _value(b"7", name=b"exact", before=b"1."),
    "zeros for a decimal": _value(b"0", name=b"exact", before=b"1."),
    "an exponent for a decimal": _value(b"9", name=b"exact", before=b"1e"),
    "an exponent for a double": _value(b"9", name=b"real", before=b"1e-"),
    "a quoted decimal": _value(b"0", name=b"exact", before=b'"1.', after=b'"'),
    "digits for a timestamp": _value(b"1", name=b"at"),
    "digits in a timestamp text": _value(b"1", name=b"at", before=b'"2026-01-01T00:00:00.',
                                         after=b'"'),
    "base64": _value(b"QUJD", name=b"raw", before=b'"', after=b'"'),
    "short numbers": _listed(b"1", b"1"),
    "longer numbers": _listed(b"12345", b"1"),
    "nulls": _listed(b"null", b"null"),
    "short numbers in another field": _listed(b"1", b"1", b"other"),
    "empty arrays": _listed(b"[]", b"[]", b"deep"),
    "empty arrays in another field": _listed(b"[]", b"[]", b"other"),
    "empty objects": _listed(b"{}", b"{}", b"parts"),
    "empty objects in another field": _listed(b"{}", b"{}", b"other"),
    "small objects": _listed(b'{"a":1}', b"{}", b"parts"),
    "wrong at the end": _listed(b"1", b'"x"'),
    "short texts in another field": _listed(b'"a"', b'"a"', b"other"),
    "many names": _numbered('"n#":1', ",", before='{"id":1,', after="}"),
    "many keys": _numbered('"n#":1', ",", before='{"id":1,"names":{', after="}}"),
    "one name again and again": _filled(b'"a":1,', before=b'{"id":1,', after=b'"b":1}'),
    "a long name": _filled(b"n", before=b'{"id":1,"', after=b'":1}'),
    "a long name twice": lambda size: b'{"%b":1,"%b":1}' % (b"n" * (size // 2), b"n" * (size // 2)),
    "a long name with escapes": _filled(b"\\n", before=b'{"id":1,"', after=b'":1}'),
    "many scalars": _many_slots,
    "nested a hundred deep": lambda size: b'{"id":1,"o":[%b]}' % b",".join(
        [b"[" * 98 + b"]" * 98] * max(1, size // 200)),
}  # fmt: skip

# -- CSV -----------------------------------------------------------------------------

_CSV = Schema.parse("id long, text string, exact decimal(38,10), real double, at timestamp")


def _cell(place: int, unit: bytes, *, before: bytes = b"", after: bytes = b"") -> Maker:
    head, tail = b"," * place, b"," * (4 - place)
    return _filled(unit, before=b"1" * (place > 0) + head + before, after=after + tail)


CSV = {
    "commas": _filled(b","),
    "short cells": _filled(b"1,"),
    "quotes": _filled(b'"'),
    "empty quoted cells": _filled(b'"",'),
    "doubled quotes": _cell(1, b'""', before=b'"', after=b'"'),
    "quotes that do not end": _cell(1, b'"",', before=b'"x'),
    "an odd quote after many": _filled(b'"a",', after=b'"'),
    "letters and a quote": _filled(b'a"'),
    "line breaks": _filled(b"\n"),
    "line breaks in quotes": _cell(1, b"\r\n", before=b'"', after=b'"'),
    "letters": _cell(1, b"x"),
    "invalid bytes": _cell(1, b"\xff"),
    "digits for a long": _filled(b"7", after=b",,,,"),
    "digits for a decimal": _cell(2, b"7", before=b"1."),
    "an exponent for a decimal": _cell(2, b"9", before=b"1e"),
    "digits for a double": _cell(3, b"7", before=b"1."),
    "digits for a timestamp": _cell(4, b"1"),
    "blanks": _filled(b" "),
    "no text": _filled(b"\0"),
}  # fmt: skip

# -- Avro ----------------------------------------------------------------------------

_AVRO = {"type": "record", "name": "r", "fields": [
    {"name": "id", "type": "long"},
    {"name": "text", "type": ["null", "string"]},
    {"name": "more", "type": {"type": "array", "items": "int"}},
    {"name": "texts", "type": {"type": "array", "items": "string"}},
    {"name": "deep", "type": {"type": "array", "items": {
        "type": "array", "items": {"type": "array", "items": "int"}}}},
    {"name": "parts", "type": {"type": "array", "items": {
        "type": "record", "name": "p", "fields": [{"name": "a", "type": ["null", "long"]},
                                                  {"name": "b", "type": ["null", "string"]}]}}},
    {"name": "names", "type": {"type": "map", "values": "int"}},
    {"name": "exact", "type": {"type": "bytes", "logicalType": "decimal", "precision": 38,
                               "scale": 10}},
]}  # fmt: skip
_NAMES = [part["name"] for part in _AVRO["fields"]]  # type: ignore[index]
_PLAIN: dict[str, bytes] = {"id": b"\2", "text": b"\0", "exact": b"\2\1"}


def _datum(name: str, body: bytes, after: bytes = b"") -> bytes:
    """A record with data in one field; the other fields are small or empty."""
    parts = [body if part == name else _PLAIN.get(part, b"\0") for part in _NAMES]
    return b"".join(parts) + after


def _items(name: str, unit: bytes) -> Maker:
    return lambda size: _datum(name, _long(max(1, size // len(unit)))
                               + unit * max(1, size // len(unit)) + b"\0")  # fmt: skip


def _cubes(size: int) -> bytes:
    """Arrays of arrays of arrays, each of the maximum length for the fast path."""
    line = _long(60) + b"\2" * 60 + b"\0"
    plane = _long(60) + line * 60 + b"\0"
    count = max(1, size // len(plane))
    return _datum("deep", _long(count) + plane * count + b"\0")


def _keys(size: int) -> bytes:
    pairs = [_long(len(key)) + key + b"\2" for key in (b"%d" % n for n in range(size // 8 + 1))]
    return _datum("names", _long(len(pairs)) + b"".join(pairs) + b"\0")


AVRO = {
    "many numbers": _items("more", b"\2"),
    "many empty texts": _items("texts", b"\0"),
    "many blocks of one": _filled(b"\2\2", before=_datum("", b"")[:2], after=b"\0" * 8),
    "blocks with sizes": lambda size: _datum("more", b"\1\2\2" * (size // 3) + b"\0"),
    "empty arrays": _items("deep", b"\0"),
    "arrays in arrays in arrays": _cubes,
    "records of nulls": _items("parts", b"\0\0"),
    "many keys": _keys,
    "one key again and again": _items("names", b"\2k\2"),
    "a claim of 2^60 numbers": lambda size: _datum("more", _long(2**60) + b"\2" * size),
    "a claim of -2^60 numbers": lambda size: _datum("more", _long(-(2**60)) + b"\2" + b"\2" * size),
    "a claim of -2^63 numbers": lambda size: _datum("more", b"\xff" * 9 + b"\1" + b"\2" * size),
    "a text beyond the data": lambda size: _datum("text", b"\2" + _long(2**62) + b"x" * size),
    "a text of less than nothing": lambda size: _datum("text", b"\2" + _long(-5) + b"x" * size),
    "a long text": lambda size: _datum("text", b"\2" + _long(size) + b"x" * size),
    "an invalid text": lambda size: _datum("text", b"\2" + _long(size) + b"\xff" * size),
    "a long decimal": lambda size: _datum("exact", _long(size) + b"\x7f" * size),
    "a decimal of zeros": lambda size: _datum("exact", _long(size) + b"\0" * (size - 1) + b"\1"),
    "numbers without an end": _filled(b"\xff"),
    "bytes after the end": lambda size: _datum("", b"", b"\0" * size),
}  # fmt: skip

# -- Protobuf ------------------------------------------------------------------------


def _files() -> bytes:
    file = descriptor_pb2.FileDescriptorProto(
        name="hostile.proto", package="h", syntax="proto3",
        dependency=["google/protobuf/timestamp.proto"])  # fmt: skip
    entry_field = [field("key", 1, "string"), field("value", 2, "int64")]
    part = file.message_type.add(name="Part")
    part.field.extend([field("a", 1, "int64"), field("b", 2, "string")])
    outer = file.message_type.add(name="Outer")
    outer.field.append(field("parts", 1, ".h.Part", many=True))
    record = file.message_type.add(name="Record")
    entry = record.nested_type.add(name="NamesEntry")
    entry.field.extend(entry_field)
    entry.options.map_entry = True
    record.field.extend([
        field("id", 1, "int64"), field("text", 2, "string"),
        field("more", 3, "int64", many=True), field("texts", 4, "string", many=True),
        field("parts", 5, ".h.Part", many=True), field("outers", 6, ".h.Outer", many=True),
        field("names", 7, ".h.Record.NamesEntry", many=True),
        field("at", 8, ".google.protobuf.Timestamp"),
    ])  # fmt: skip
    return descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()


def _sized(number: int, body: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(body)) + body


def _packs(size: int) -> bytes:
    """Packed numbers in many pieces, each of the maximum length for the fast path."""
    return _sized(3, b"\1" * 250) * max(1, size // 253)


def _unknown(size: int) -> bytes:
    """Undeclared fields, each with a different number."""
    return b"".join(varint((1000 + n * 7) << 3) + b"\1" for n in range(max(1, size // 4)))


def _entries(size: int) -> bytes:
    return b"".join(_sized(7, _sized(1, b"%d" % n)) for n in range(max(1, size // 10)))


PROTOBUF = {
    "empty messages": _filled(b"\x2a\0"),
    "messages with a number": _filled(_sized(5, b"\x08\1")),
    "messages in messages": _filled(_sized(6, b"\x0a\0" * 60)),
    "empty messages in one message": lambda size: _sized(6, b"\x0a\0" * (size // 2)),
    "packed numbers": lambda size: _sized(3, b"\1" * size),
    "numbers that are not packed": _filled(b"\x18\1"),
    "packed in pieces": _packs,
    "empty texts": _filled(b"\x22\0"),
    "a field again and again": _filled(b"\x08\1"),
    "a text again and again": _filled(b"\x12\0"),
    "a time again and again": _filled(b"\x42\0"),
    "unknown fields": _filled(b"\xa0\6\1"),
    "unknown fields of all numbers": _unknown,
    "unknown fields in messages": _filled(_sized(5, b"\xa0\6\1")),
    "groups": _filled(b"\xa3\6\xa4\6"),
    "groups that open": _filled(b"\xa3\6"),
    "unknown messages in each other": _filled(b"\xa2\6"),
    "map entries": _entries,
    "one map entry again and again": _filled(b"\x3a\0"),
    "a long text": lambda size: _sized(2, b"x" * size),
    "an invalid text": lambda size: _sized(2, b"\xff" * size),
    "a text beyond the data": lambda size: b"\x12" + varint(2**31 - 1) + b"x" * size,
    "numbers without an end": _filled(b"\x80"),
    "long forms of small numbers": _filled(b"\x88\x80\x80\x80\0\x81\x80\x80\x80\x80\x80\x80\x80\0"),
    "unknown doubles": _filled(b"\xa1\6" + struct.pack("<d", 1.0)),
}  # fmt: skip

_ANY = {
    "letters": _filled(b"x"), "zeros": _filled(b"\0"), "invalid bytes": _filled(b"\xff"),
    "invalid at the end": _filled("é".encode(), after=b"\xc3"),
}  # fmt: skip
_FRAME = b"\0\0\0\0\7"


def _framed(makers: dict[str, Maker], more: bytes) -> dict[str, Maker]:
    def framed(make: Maker) -> Maker:
        return lambda size: _FRAME + more + make(size)

    return {name: framed(make) for name, make in makers.items()}


def targets() -> dict[str, Target]:
    """Every decoder with its hostile records."""
    avro, files = json.dumps(_AVRO), _files()
    bare, either = Avro(avro, BARE), Avro(avro)
    messages = Protobuf(files, "h.Record")
    framed = Protobuf(files, "h.Record", Framing.of("confluent"))
    datum, message = _datum("text", b"\2\2x"), b"\x08\1\x12\1x\x18\1\x2a\2\x08\1"
    schema = bare.row_schema()
    assert schema is not None
    text, raw = Schema.parse("value string"), Schema.parse("value binary")
    indexes = {
        "a claim of many indexes": lambda size: _FRAME + varint(2**40) + b"\2" * size,
        "many indexes": lambda size: _FRAME + varint(2 * size) + b"\2" * size,
        "an index without an end": lambda size: _FRAME + b"\xff" * size,
    }
    some = {name: AVRO[name] for name in ("records of nulls", "a long text")}
    few = {name: PROTOBUF[name] for name in ("empty messages", "a long text")}
    return {
        "json": Target(format_of("json"), _JSON, b'{"id":17,"text":"apple","real":1.5}', JSON),
        "csv": Target(format_of("csv"), _CSV, b"17,apple,1.5,2.5,2026-01-01T00:00:00Z", CSV),
        "avro": Target(bare, schema, datum, AVRO),
        "avro, framed or not": Target(either, schema, datum, some | _framed(some, b"")),
        "protobuf": Target(messages, messages.row_schema(), message, PROTOBUF),
        "protobuf, framed": Target(framed, framed.row_schema(), _FRAME + b"\2\4" + message,
                                   _framed(few, b"\2\4") | indexes),
        "text": Target(format_of("text"), text, b"apple", _ANY),
        "bytes": Target(format_of("bytes"), raw, b"apple", _ANY),
    }  # fmt: skip
