"""The exact path for Protobuf: Protobuf's own parser, one message at a time."""

from __future__ import annotations

import decimal
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from millstream.formats import times
from millstream.formats.decoding import NULL_VALUE, BadRecord, BadValue
from millstream.formats.protobuf.schema import (
    Leaf,
    Message,
    Part,
    message_descriptor,
    parse_message,
)

Reader = Callable[[Any], object]


@lru_cache(maxsize=32)
def reader(files: bytes, name: str) -> Callable[[bytes | None], tuple[list[object], bool]]:
    """Return the function that reads a record: its values, and whether it has unknown fields.

    It raises BadRecord; `str(error)` is the reason.
    """
    from google.protobuf import message_factory
    from google.protobuf.message import DecodeError

    kind = message_factory.GetMessageClass(message_descriptor(files, name))
    fields = [_field(part) for part in parse_message(files, name).parts]

    def read(raw: bytes | None) -> tuple[list[object], bool]:
        if raw is None:
            raise BadRecord(NULL_VALUE)
        try:
            message = kind.FromString(raw)
        except (DecodeError, RecursionError):
            raise BadRecord(f"not Protobuf: no {name}") from None
        row = [read_field(message) for read_field in fields]
        size = message.ByteSize()
        message.DiscardUnknownFields()
        return row, message.ByteSize() != size

    return read


def _field(part: Part) -> Reader:
    """Return the function that reads a field of a message."""
    name = part.name
    read_field = _map(part) if part.map else _many(part) if part.many else _once(part)

    def read(message: Any) -> object:
        try:
            return read_field(message)
        except UnicodeDecodeError:
            raise BadValue("needs a string; got invalid UTF-8").inside(name) from None
        except BadValue as refused:
            raise refused.inside(name) from None

    return read


def _once(part: Part) -> Reader:
    name, required, read_value = part.name, part.required, _value(part.node)
    if not part.presence:
        return lambda message: read_value(getattr(message, name))

    def read(message: Any) -> object:
        if message.HasField(name):
            return read_value(getattr(message, name))
        if required:
            raise BadValue("is required; it is missing")
        return None

    return read


def _many(part: Part) -> Reader:
    name, read_value = part.name, _value(part.node)

    def read(message: Any) -> list[object]:
        made: list[object] = []
        try:
            for value in getattr(message, name):
                made.append(read_value(value))
        except BadValue as refused:
            raise refused.inside(f"[{len(made)}]") from None
        return made

    return read


def _map(part: Part) -> Reader:
    """Pairs in the order of their keys, because Protobuf defines no order."""
    assert isinstance(part.node, Message)
    key, value = part.node.parts
    name, read_key, read_value = part.name, _value(key.node), _value(value.node)

    def read(message: Any) -> list[tuple[object, object]]:
        values = getattr(message, name)
        return [(read_key(one), read_value(values[one])) for one in sorted(values)]

    return read


def _value(node: Leaf | Message) -> Reader:
    """Return the function that reads a value; all empty messages of a type share one value."""
    if isinstance(node, Leaf):
        return _leaf(node)
    if node.instant:
        return lambda value: instant(value.seconds, value.nanos)
    fields = [_field(part) for part in node.parts]
    nothing: list[tuple[object, ...]] = []

    def read(value: Any) -> tuple[object, ...]:
        if value.ByteSize():
            return tuple([read_field(value) for read_field in fields])
        if not nothing:
            nothing.append(tuple([read_field(value) for read_field in fields]))
        return nothing[0]

    return read


def _leaf(node: Leaf) -> Reader:
    if node.kind == "enum":
        return _enum(dict(node.symbols))
    if node.kind == "uint64":
        return decimal.Decimal
    return _text if node.kind == "string" else lambda value: value


def _enum(names: dict[int, str]) -> Reader:
    def read(value: int) -> str:
        if value not in names:
            raise BadValue(f"needs a value of the enum; got {value}")
        return names[value]

    return read


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise BadValue("needs a string; got invalid UTF-8")
    return value


def instant(seconds: int, nanos: int) -> int:
    """Microseconds since the epoch; finer times are refused, as in all formats."""
    if not 0 <= nanos < 1_000_000_000:
        raise BadValue(f"needs a timestamp; got {nanos} nanoseconds")
    if nanos % 1000:
        raise BadValue("needs a timestamp; got a time finer than a microsecond")
    try:
        return times.check_range(seconds * 1_000_000 + nanos // 1000)
    except times.InvalidTime as error:
        raise BadValue(f"needs a timestamp; got {error}") from None
