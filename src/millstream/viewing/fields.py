"""A record as a filter sees it: the fields of its value, and metadata such as `_key`."""

from __future__ import annotations

import json
import math
from functools import cached_property
from typing import TYPE_CHECKING, NoReturn

from millstream.viewing.escape import decoded

if TYPE_CHECKING:
    from millstream.kafka.records import Record
    from millstream.viewing.binary_values import ValueDecoder

MOST_DIGITS = 4_000
"""Longer whole numbers become floats: Python limits the conversion of digits to `int`."""


def strict_json(raw: bytes | str) -> object:
    """Parse JSON text; `NaN` and `Infinity` are refused.

    Raises:
        ValueError: it is not JSON, or nested too deeply.
    """
    text = raw if isinstance(raw, str) else raw.decode()
    try:
        return json.loads(text, parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except json.JSONDecodeError:
        raise
    except ValueError:  # a whole number with more digits than Python converts
        return json.loads(text, parse_constant=_no_constant, parse_int=_whole)


def _whole(digits: str) -> int | float:
    return int(digits) if len(digits) < MOST_DIGITS else float(digits)


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")


class RecordRow:
    """The fields of a record's value, which is JSON or of a known format, and its metadata."""

    def __init__(
        self, record: Record, decoder: ValueDecoder | None = None, until: float = math.inf
    ) -> None:
        self.record, self._decoder, self.until = record, decoder, until

    @cached_property
    def json(self) -> object:
        """The decoded value; None if it is neither JSON nor of the known format."""
        value = self.record.value or b""
        if self._decoder is not None:
            value = self._decoder.to_json(value) or value
        try:
            return strict_json(value)
        except ValueError:
            return None

    @cached_property
    def key(self) -> str | None:
        """The key as text."""
        return _decoded(self.record.key)

    @cached_property
    def headers(self) -> dict[str, str | None]:
        """The first header of each name, as text."""
        return {name: _decoded(raw) for name, raw in reversed(self.record.headers)}

    def field(self, path: tuple[str, ...]) -> object:
        """The value at a path; None if there is none."""
        record = self.record
        match path:
            case ("_key",):
                return self.key
            case ("_topic",):
                return record.topic
            case ("_partition",):
                return record.partition
            case ("_offset",):
                return record.offset
            case ("_timestamp",):
                return record.timestamp
            case ("_headers", name):
                return self.headers.get(name)
        found = self.json
        for part in path:
            found = _inside(found, part)
        return found


def _decoded(raw: bytes | None) -> str | None:
    return None if raw is None else decoded(raw)


def _inside(found: object, part: str) -> object:
    if isinstance(found, dict):
        return found.get(part)
    if isinstance(found, list) and part.isascii() and part.isdigit() and len(part) < 10:
        place = int(part)
        return found[place] if place < len(found) else None
    return None
