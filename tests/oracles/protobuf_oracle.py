"""One Protobuf record by Protobuf's own parser and its own JSON form: slow and independent."""

from __future__ import annotations

import base64
import struct
from datetime import datetime
from decimal import Decimal
from typing import Any

from google.protobuf import json_format, message_factory
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

LONGS = (3, 4, 6, 16, 18)
UNSIGNED = (4, 6)


class Bad(Exception):
    """The bytes are no message, or one whose values have no column."""


def read(raw: bytes | None, descriptor: Any) -> tuple[dict[str, Any], bool]:
    """The message as Arrow would show it and whether it held unknown fields, or Bad."""
    if raw is None:
        raise Bad("null")
    try:
        message = message_factory.GetMessageClass(descriptor).FromString(raw)
    except DecodeError:
        raise Bad("parse") from None
    if not message.IsInitialized():
        raise Bad("required")
    try:
        found = json_format.MessageToDict(
            message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
        )
    except (json_format.Error, ValueError, UnicodeDecodeError):
        raise Bad("json") from None
    return _message(found, descriptor), _unknown(message)


def _unknown(message: Any) -> bool:
    if len(UnknownFieldSet(message)):
        return True
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if field.message_type.GetOptions().map_entry:
            inner = field.message_type.fields_by_name["value"].message_type
            parts = list(value.values()) if inner is not None else []
        else:
            parts = list(value) if field.is_repeated else [value]
        if any(_unknown(part) for part in parts):
            return True
    return False


def _message(found: dict[str, Any], descriptor: Any) -> dict[str, Any]:
    return {field.name: _field(found.get(field.name), field) for field in descriptor.fields}


def _field(found: Any, field: Any) -> Any:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        key, value = field.message_type.fields
        pairs = [(_value(_key(k, key), key), _value(v, value)) for k, v in (found or {}).items()]
        return sorted(pairs, key=lambda pair: pair[0])
    if field.is_repeated:
        return [_value(one, field) for one in found or []]
    return None if found is None else _value(found, field)


def _key(text: str, field: Any) -> Any:
    return text == "true" if field.type == 8 else text


def _value(found: Any, field: Any) -> Any:
    kind = field.type
    if kind == 11:
        if field.message_type.full_name == "google.protobuf.Timestamp":
            return _instant(found)
        return _message(found, field.message_type)
    if kind == 14:
        if not isinstance(found, str):
            raise Bad("enum")
        return found
    if kind in UNSIGNED:
        return Decimal(found)
    if kind in LONGS or kind in (5, 7, 13, 15, 17):
        return int(found)
    if kind == 2:
        return struct.unpack("f", struct.pack("f", float(found)))[0]
    if kind == 1:
        return float(found)
    return base64.b64decode(found) if kind == 12 else found


def _instant(text: str) -> datetime:
    if "." in text and len(text.partition(".")[2]) > 7:
        raise Bad("nanoseconds")
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise Bad("time") from None
