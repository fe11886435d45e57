"""Records as JSON for the page: bounded in size, with control characters escaped.

The value is a text, not nested JSON: a browser would round its large numbers, and parsing deeply
nested values is expensive.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from millstream.errors import InvalidInput
from millstream.viewing.escape import harmless, shortened
from millstream.viewing.fields import strict_json
from millstream.viewing.points_in_time import iso

if TYPE_CHECKING:
    from millstream.kafka.records import Record
    from millstream.viewing.binary_values import ValueDecoder

Form = Literal["auto", "json", "text", "hex"]


@dataclass(frozen=True)
class Sizes:
    """How much of a record is shown: characters of its parts, and how many headers."""

    value: int
    key: int
    header: int
    headers: int


_LARGE = 65_536
IN_A_LIST = Sizes(value=4_096, key=1_024, header=256, headers=32)
ALONE = Sizes(value=1_048_576, key=65_536, header=16_384, headers=500)


def parse_form(text: str) -> Form:
    """The format in which values are shown.

    Raises:
        InvalidInput: there is no such format.
    """
    for form in get_args(Form):
        if text == form:
            return form  # type: ignore[no-any-return]
    raise InvalidInput("format needs auto, json, text or hex", got=shortened(text))


def record_to_json(
    record: Record,
    form: Form = "auto",
    sizes: Sizes = IN_A_LIST,
    decoder: ValueDecoder | None = None,
    until: float = math.inf,
) -> dict[str, Any]:
    """The record as JSON; `decoder` reads a binary value, if its format is known.

    After `until` (`time.monotonic`) large values are shown as text without checking for JSON.
    """
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": iso(record.timestamp),
        "key": body_to_json(record.key, "hex" if form == "hex" else "text", sizes.key),
        "value": _value(record.value, _in_time(record.value, form, until), sizes.value, decoder),
        "headers": [
            {
                "name": harmless(name[: sizes.header]),
                "value": body_to_json(value, "text", sizes.header),
            }
            for name, value in record.headers[: sizes.headers]
        ],
        "headers_total": len(record.headers),
    }


def _in_time(raw: bytes | None, form: Form, until: float) -> Form:
    late = raw is not None and len(raw) > _LARGE and time.monotonic() > until
    return "text" if late and form in ("auto", "json") else form


def _value(
    raw: bytes | None, form: Form, most: int, decoder: ValueDecoder | None
) -> dict[str, Any]:
    if raw is not None and decoder is not None and form == "auto":
        text = decoder.to_json(raw)
        if text is not None:
            return {**body_to_json(text, "json", most), "kind": decoder.name, "size": len(raw)}
    return body_to_json(raw, form, most)


def body_to_json(raw: bytes | None, form: Form, most: int) -> dict[str, Any]:
    """Bytes as text of at most `most` characters; `kind` is the format that applied.

    Bytes that are not UTF-8 are always hexadecimal; text that is not JSON is text.
    """
    if raw is None:
        return {"kind": "none", "text": "", "size": 0, "cut": False}
    if form == "hex":
        return _hexadecimal(raw, most)
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return _hexadecimal(raw, most)
    written = harmless(text[:most])
    return {"kind": "json" if form != "text" and _is_json(text) else "text",
            "text": written[:most], "size": len(raw),
            "cut": len(text) > most or len(written) > most}  # fmt: skip


def bound_json(value: Any, most: int = 1_024, depth: int = 8) -> Any:
    """A JSON value with its texts escaped and cut, and deep nesting replaced by `…`.

    >>> bound_json({"name": "a\\x1b", "rows": [[1.5, None]]}, depth=2)
    {'name': 'a\\\\u001b', 'rows': ['…']}
    """
    if isinstance(value, str):
        written = harmless(value[:most])
        return written if len(value) <= most else f"{written}…"
    if isinstance(value, dict | list | tuple) and depth == 0:
        return "…"
    if isinstance(value, dict):
        return {bound_json(str(name), most): bound_json(one, most, depth - 1)
                for name, one in value.items()}  # fmt: skip
    if isinstance(value, list | tuple):
        return [bound_json(one, most, depth - 1) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _hexadecimal(raw: bytes, most: int) -> dict[str, Any]:
    return {"kind": "bytes", "text": raw[: most // 2].hex(), "size": len(raw),
            "cut": len(raw) > most // 2}  # fmt: skip


def _is_json(text: str) -> bool:
    try:
        strict_json(text)
    except ValueError:
        return False
    return True
