"""One Avro datum at a time: read by fastavro, where the bytes are a datum by the letter.

fastavro is lenient where values would be lost (numbers beyond their type, keys twice, a
branch below zero), so a walk over the bytes, written from the specification, judges first.
"""

from __future__ import annotations

import io
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import fastavro

EPOCH = datetime(1970, 1, 1)


class Bad(Exception):
    """The bytes are no datum."""


def read(raw: bytes | None, schema: dict[str, Any]) -> dict[str, Any]:
    """The record as Arrow would show it, or Bad."""
    if raw is None:
        raise Bad("null")
    walk = _Walk(raw)
    row = walk.value(schema)
    if walk.at != len(raw):
        raise Bad("bytes after the end")
    decoded = fastavro.schemaless_reader(io.BytesIO(raw), fastavro.parse_schema(schema))
    assert isinstance(decoded, dict)
    assert set(decoded) == set(row)
    for field in schema["fields"]:
        if _simple(field["type"]):
            ours, theirs = row[field["name"]], decoded[field["name"]]
            assert repr(ours) == repr(theirs), (field, ours, theirs)
    assert isinstance(row, dict)
    return row


def _simple(kind: Any) -> bool:
    if isinstance(kind, list):
        return all(_simple(part) for part in kind)
    return kind in ("null", "boolean", "int", "long", "double", "string", "bytes")


class _Walk:
    def __init__(self, raw: bytes) -> None:
        self.raw, self.at = raw, 0

    def take(self, size: int) -> bytes:
        if size < 0 or self.at + size > len(self.raw):
            raise Bad("size")
        self.at += size
        return self.raw[self.at - size : self.at]

    def long(self) -> int:
        found = 0
        for place in range(10):
            byte = self.take(1)[0]
            found += (byte % 128) << 7 * place
            if byte < 128:
                break
        else:
            raise Bad("long")
        if found >= 2**64:
            raise Bad("long")
        return found // 2 if found % 2 == 0 else -(found + 1) // 2

    def value(self, kind: Any) -> Any:
        if isinstance(kind, list):
            place = self.long()
            if not 0 <= place < len(kind):
                raise Bad("branch")
            return self.value(kind[place])
        if isinstance(kind, dict):
            return self.named(kind)
        return self.primitive(kind, {})

    def named(self, kind: dict[str, Any]) -> Any:
        word = kind["type"]
        if word == "record":
            return {field["name"]: self.value(field["type"]) for field in kind["fields"]}
        if word == "array":
            return self.blocks(lambda: self.value(kind["items"]))
        if word == "map":
            pairs = self.blocks(lambda: (self.primitive("string", {}), self.value(kind["values"])))
            if len({key for key, _ in pairs}) != len(pairs):
                raise Bad("keys")
            return pairs
        if word == "enum":
            place = self.long()
            if not 0 <= place < len(kind["symbols"]):
                raise Bad("symbol")
            return kind["symbols"][place]
        if word == "fixed":
            return self.decimal(self.take(kind["size"]), kind)
        return self.primitive(word, kind)

    def blocks(self, item: Any) -> list[Any]:
        made: list[Any] = []
        while count := self.long():
            if count < 0:
                count = -count
                if self.long() < 0:
                    raise Bad("block size")
            if count > len(self.raw) - self.at:
                raise Bad("count")
            made += [item() for _ in range(count)]
        return made

    def primitive(self, kind: str, more: dict[str, Any]) -> Any:
        import struct

        if kind == "null":
            return None
        if kind == "boolean":
            byte = self.take(1)
            if byte not in (b"\0", b"\1"):
                raise Bad("boolean")
            return byte == b"\1"
        if kind in ("float", "double"):
            size = 4 if kind == "float" else 8
            return struct.unpack("<f" if size == 4 else "<d", self.take(size))[0]
        if kind == "string":
            try:
                return self.take(self.long()).decode("utf-8")
            except UnicodeDecodeError:
                raise Bad("utf-8") from None
        if kind == "bytes":
            return self.decimal(self.take(self.long()), more)
        return self.number(kind, more.get("logicalType"))

    def number(self, kind: str, logical: str | None) -> Any:
        value = self.long()
        if kind == "int" and not -(2**31) <= value < 2**31:
            raise Bad("int")
        try:
            if logical == "date":
                return date(1970, 1, 1) + timedelta(days=value)
            if logical and "timestamp" in logical:
                micros = value * 1000 if logical.endswith("millis") else value
                at = EPOCH + timedelta(microseconds=micros)
                return at if logical.startswith("local") else at.replace(tzinfo=UTC)
        except OverflowError:
            raise Bad("time") from None
        return value

    def decimal(self, raw: bytes, more: dict[str, Any]) -> Any:
        if more.get("logicalType") != "decimal":
            return raw
        if not raw:
            raise Bad("decimal")
        whole = int.from_bytes(raw, "big", signed=True)
        if len(str(abs(whole))) > more["precision"]:
            raise Bad("decimal")
        return Decimal(f"{whole}E-{more.get('scale', 0)}")
