"""The exact path for Avro: reads a datum value by value.

This slow path defines the format: whatever the fast path accepts, this path accepts with the same
values. Values have the types that Arrow takes: integers for times (microseconds) and dates (days),
`decimal.Decimal` for decimals, lists of pairs for maps, tuples for records and arrays (equal ones
may be the same object).
"""

from __future__ import annotations

import decimal
import struct
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

from millstream.formats import times
from millstream.formats.avro.schema import Enum, Fixed, Items, Maybe, Node, Pairs, Plain, Record
from millstream.formats.decoding import NULL_VALUE, BadRecord, BadValue
from millstream.schema import Decimal, Scalar

if TYPE_CHECKING:
    from collections.abc import Callable

_Item = TypeVar("_Item")
_DATE = Scalar("date")
LEAST_DAY, GREATEST_DAY = times.LEAST // 86_400_000_000, times.GREATEST // 86_400_000_000


def read(raw: bytes | None, schema: Record) -> list[object]:
    """Return a record's values in the schema's order.

    Raises:
        BadRecord: `str(error)` is the reason.
    """
    if raw is None:
        raise BadRecord(NULL_VALUE)
    datum = _Datum(raw)
    row = []
    for name, node in schema.parts:
        try:
            row.append(datum.value(node))
        except BadValue as refused:
            raise refused.inside(name) from None
    if datum.at != len(raw):
        raise BadRecord(f"not Avro: {len(raw) - datum.at} bytes after the end of the record")
    return row


class _Datum:
    """The bytes of one datum and the current position."""

    def __init__(self, raw: bytes) -> None:
        self.raw, self.at = raw, 0

    def value(self, node: Node) -> object:
        if isinstance(node, Plain):
            return self._plain(node)
        if isinstance(node, Maybe):
            place = self._long()
            if not 0 <= place < node.size:
                raise BadValue(f"needs a branch below {node.size}; got {place}")
            return None if place == node.null else self.value(node.inner)
        if isinstance(node, Record):
            return self._record(node)
        if isinstance(node, Items):
            element = node.element
            return tuple(self._blocks(lambda: self.value(element)))
        if isinstance(node, Pairs):
            return self._pairs(node)
        if isinstance(node, Enum):
            place = self._long()
            if not 0 <= place < len(node.symbols):
                raise BadValue(f"needs a symbol below {len(node.symbols)}; got {place}")
            return node.symbols[place]
        return _decimal(self._take(node.size), node)

    def _plain(self, node: Plain) -> object:
        kind = node.kind
        if kind in ("int", "long"):
            return _number(self._long(), node)
        if kind == "string":
            try:
                return self._take(self._long()).decode()
            except UnicodeDecodeError:
                raise BadValue("needs a string; got invalid UTF-8") from None
        if kind == "bytes":
            return _decimal(self._take(self._long()), node)
        if kind == "boolean":
            byte = self._take(1)[0]
            if byte > 1:
                raise BadValue(f"needs a boolean; got the byte {byte}")
            return byte == 1
        size = 4 if kind == "float" else 8
        return struct.unpack("<f" if size == 4 else "<d", self._take(size))[0]

    def _record(self, node: Record) -> tuple[object, ...]:
        made = []
        empty = True
        for name, part in node.parts:
            try:
                value = self.value(part)
            except BadValue as refused:
                raise refused.inside(name) from None
            empty = empty and value is None
            made.append(value)
        return _nothing(len(made)) if empty else tuple(made)

    def _pairs(self, node: Pairs) -> list[tuple[str, object]]:
        key = Plain("string", node.type)

        def pair() -> tuple[str, object]:
            return str(self._plain(key)), self.value(node.value)

        found = self._blocks(pair)
        seen = set()
        for name, _ in found:
            if name in seen:
                raise BadValue(f"needs different keys; got {name[:40]!r} twice")
            seen.add(name)
        return found

    def _blocks(self, item: Callable[[], _Item]) -> list[_Item]:
        made: list[_Item] = []
        while True:
            count = self._long()
            if count == 0:
                return made
            if count < 0:
                count = -count
                if self._long() < 0:
                    raise BadValue("needs the size of a block; got one below zero")
            if count > len(self.raw) - self.at:
                raise BadValue(f"needs {count} elements; got {len(self.raw) - self.at} bytes")
            for _ in range(count):
                try:
                    made.append(item())
                except BadValue as refused:
                    raise refused.inside(f"[{len(made)}]") from None

    def _long(self) -> int:
        if self.at < len(self.raw) and self.raw[self.at] < 0x80:
            value = self.raw[self.at]
            self.at += 1
            return (value >> 1) ^ -(value & 1)
        value = shift = 0
        while True:
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
            if shift == 70:
                raise BadValue("needs a number; got one of more than ten bytes")
        if value >= 2**64:
            raise BadValue("needs a number; got one beyond 64 bits")
        return (value >> 1) ^ -(value & 1)

    def _take(self, size: int) -> bytes:
        if size < 0:
            raise BadValue(f"needs a length from 0 on; got {size}")
        if size > len(self.raw) - self.at:
            raise BadValue(f"needs {size} more bytes; got {len(self.raw) - self.at}")
        self.at += size
        return self.raw[self.at - size : self.at]


@lru_cache(maxsize=256)
def _nothing(count: int) -> tuple[None, ...]:
    return (None,) * count


def _number(value: int, node: Plain) -> int:
    if node.kind == "int" and not -(2**31) <= value < 2**31:
        raise BadValue(f"needs an int; got {value}, beyond its range")
    if node.unit:
        try:
            return times.check_range(value * node.unit)
        except times.InvalidTime as error:
            raise BadValue(f"needs a timestamp; got {error}") from None
    if node.type == _DATE and not LEAST_DAY <= value <= GREATEST_DAY:
        raise BadValue("needs a date; got a time outside the years 1 to 9999")
    return value


def _decimal(raw: bytes, node: Plain | Fixed) -> object:
    type_ = node.type
    if not isinstance(type_, Decimal):
        return raw
    if not raw:
        raise BadValue(f"needs a {type_.ddl()}; got no byte")
    unscaled = int.from_bytes(raw, "big", signed=True)
    if abs(unscaled) >= 10**type_.precision:
        raise BadValue(f"needs a {type_.ddl()}; got more digits")
    return decimal.Decimal(f"{unscaled}E-{type_.scale}")
