"""The meaning of a Protobuf record: read by Protobuf's own parser, one message at a time."""

from __future__ import annotations

import decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from millstream.formats.json import times
from millstream.formats.json.exact import Refused
from millstream.formats.pieces import NULL_VALUE
from millstream.formats.protobuf.schema import Leaf, Message, Part, descriptor, parsed

if TYPE_CHECKING:
    from collections.abc import Callable


class NotProtobuf(ValueError):
    """The bytes are no such message; the message says why."""


@lru_cache(maxsize=32)
def reader(files: bytes, name: str) -> Callable[[bytes | None], tuple[list[object], bool]]:
    """The function that reads one record: its values, and whether it held unknown fields.

    It raises NotProtobuf or Refused; `str(error)` is the reason.
    """
    from google.protobuf import message_factory
    from google.protobuf.message import DecodeError

    node = parsed(files, name)
    kind = message_factory.GetMessageClass(descriptor(files, name))

    def read(raw: bytes | None) -> tuple[list[object], bool]:
        if raw is None:
            raise NotProtobuf(NULL_VALUE)
        try:
            message = kind.FromString(raw)
        except (DecodeError, RecursionError):
            raise NotProtobuf(f"not Protobuf: no {name}") from None
        return [_field(message, part) for part in node.parts], _more(message)

    return read


def _more(message: Any) -> bool:
    """Whether there were unknown fields, here or in a part."""
    from google.protobuf.unknown_fields import UnknownFieldSet

    if len(UnknownFieldSet(message)):
        return True
    return any(
        _more(one)
        for field, value in message.ListFields()
        if field.message_type is not None
        for one in _messages(field, value)
    )


def _messages(field: Any, value: Any) -> list[Any]:
    if not field.is_repeated:
        return [value]
    if field.message_type.GetOptions().map_entry:
        held = field.message_type.fields_by_name["value"]
        return list(value.values()) if held.message_type is not None else []
    return list(value)


def _field(message: Any, part: Part) -> object:
    try:
        if part.map:
            return _map(getattr(message, part.name), part)
        if part.many:
            return [_inside(value, part, f"[{place}]")
                    for place, value in enumerate(getattr(message, part.name))]  # fmt: skip
        return _once(message, part)
    except UnicodeDecodeError:
        raise Refused("needs a string; got invalid UTF-8").inside(part.name) from None
    except Refused as refused:
        raise refused.inside(part.name) from None


def _once(message: Any, part: Part) -> object:
    if not part.presence or message.HasField(part.name):
        return _value(getattr(message, part.name), part.node)
    if part.required:
        raise Refused("is required; it is missing")
    return None


def _inside(value: Any, part: Part, place: str) -> object:
    try:
        return _value(value, part.node)
    except Refused as refused:
        raise refused.inside(place) from None


def _map(values: Any, part: Part) -> list[tuple[object, object]]:
    """Pairs in the order of their keys: Protobuf keeps none."""
    assert isinstance(part.node, Message)
    key, value = part.node.parts
    return [(_value(name, key.node), _value(values[name], value.node)) for name in sorted(values)]


def _value(value: Any, node: Leaf | Message) -> object:
    if isinstance(node, Message):
        if node.instant:
            return instant(value.seconds, value.nanos)
        return {part.name: _field(value, part) for part in node.parts}
    if node.kind == "enum":
        names = dict(node.symbols)
        if value not in names:
            raise Refused(f"needs a value of the enum; got {value}")
        return names[value]
    if node.kind == "uint64":
        return decimal.Decimal(value)
    if node.kind == "string" and not isinstance(value, str):
        raise Refused("needs a string; got invalid UTF-8")
    return value


def instant(seconds: int, nanos: int) -> int:
    """Microseconds since the epoch; finer times are refused, as everywhere."""
    if not 0 <= nanos < 1_000_000_000:
        raise Refused(f"needs a timestamp; got {nanos} nanoseconds")
    if nanos % 1000:
        raise Refused("needs a timestamp; got a time finer than a microsecond")
    try:
        return times.within(seconds * 1_000_000 + nanos // 1000)
    except times.NotATime as error:
        raise Refused(f"needs a timestamp; got {error}") from None
