"""A record as a line: for people, for programs, or only its value."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import TYPE_CHECKING

from millstream.cli.terminal.output import json_text, painted
from millstream.viewing.escape import in_json, one_line, readable
from millstream.viewing.fields import strict_json
from millstream.viewing.points_in_time import iso

if TYPE_CHECKING:
    from millstream.kafka.records import Record


class Format(StrEnum):
    """How the bytes of a value are interpreted."""

    json = "json"
    text = "text"
    hex = "hex"


def for_people(record: Record, form: Format) -> str:
    """`time  partition@offset  key  value`, one line without control characters."""
    when = record.timestamp.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    place = f"{record.partition}@{record.offset}"
    key = "-" if record.key is None else readable(record.key)
    note = painted(f"{when}  {place:<8}", "2", sys.stdout)
    body = _for_people(record.value, form)
    headers = "".join(
        f"  {one_line(name)}={'-' if value is None else readable(value)}"
        for name, value in record.headers
    )
    return f"{note}  {painted(key, '36', sys.stdout)}  {body}{painted(headers, '2', sys.stdout)}"


def _for_people(value: bytes | None, form: Format) -> str:
    if value is None:
        return painted("(null)", "2", sys.stdout)
    return value.hex() if form is Format.hex else readable(value)


def value_alone(record: Record, form: Format) -> bytes:
    """Only the value: escaped at a terminal, byte for byte into a pipe."""
    if record.value is None:
        return b""
    if form is Format.hex:
        return record.value.hex().encode()
    return readable(record.value).encode() if sys.stdout.isatty() else record.value


def for_programs(record: Record, form: Format) -> str:
    """One line of JSON with the whole record, without rounding.

    `value` is the record's JSON with its numbers unchanged; a value that is not JSON is text with
    `"not_json": true`, and bytes that are not UTF-8 are hexadecimal in `value_hex` (also `key_hex`,
    and `value_hex` of a header).
    """
    fields = {
        "topic": json_text(record.topic),
        "partition": str(record.partition),
        "offset": str(record.offset),
        "timestamp": json_text(iso(record.timestamp)),
        **_text("key", record.key),
        **_body(record.value, form),
        "headers": "[" + ", ".join(_header(*header) for header in record.headers) + "]",
    }
    return "{" + ", ".join(f'"{name}": {text}' for name, text in fields.items()) + "}"


def _body(value: bytes | None, form: Format) -> dict[str, str]:
    if value is None or form is Format.text:
        return _text("value", value)
    if form is Format.hex:
        return {"value": json_text(value.hex())}
    try:
        strict_json(value)
        return {"value": _embedded(value.decode())}
    except ValueError:
        return {**_text("value", value), "not_json": "true"}


def _embedded(text: str) -> str:
    """JSON on one line: a raw line break in valid JSON is only whitespace between tokens."""
    return in_json(text.strip().replace("\r", " ").replace("\n", " ").replace("\t", " "))


def _text(name: str, raw: bytes | None) -> dict[str, str]:
    if raw is None:
        return {name: "null"}
    try:
        return {name: json_text(raw.decode())}
    except UnicodeDecodeError:
        return {name: "null", f"{name}_hex": json_text(raw.hex())}


def _header(name: str, value: bytes | None) -> str:
    fields = {"name": json_text(name), **_text("value", value)}
    return "{" + ", ".join(f'"{key}": {text}' for key, text in fields.items()) + "}"
