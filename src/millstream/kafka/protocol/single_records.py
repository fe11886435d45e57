"""Reads the parts of one record at a time: key, value and headers.

Every size is checked against the end of the record before it is used.
"""

from __future__ import annotations

from millstream.kafka.protocol.record_starts import INT64_BYTES, Malformed, unsigned_varint

NOT_FILLED = "a record whose key, value and headers do not fill it"

Headers = list[tuple[bytes, bytes | None]]


def record_at(raw: memoryview, at: int) -> tuple[int, int, bytes | None, bytes | None, int]:
    """Timestamp, offset delta, key and value of the record that ends with these bytes, and the
    position of its headers."""
    _, at = unsigned_varint(raw, at)
    timestamp, at = unsigned_varint(raw, at + 1, INT64_BYTES)
    delta, at = unsigned_varint(raw, at)
    key, at = _slice(raw, at)
    value, at = _slice(raw, at)
    value_end = at
    headers, at = unsigned_varint(raw, at)
    if headers & 1 or headers > len(raw) - at:
        raise Malformed(NOT_FILLED)
    if headers_end(raw, at, headers >> 1) != len(raw):
        raise Malformed(NOT_FILLED)
    return _signed(timestamp & (1 << 64) - 1), _signed(delta), key, value, value_end


def headers_at(raw: memoryview, at: int) -> Headers:
    """The headers at this position, of a record that has been checked."""
    count, at = unsigned_varint(raw, at)
    found: Headers = []
    for _ in range(count >> 1):
        name, at = _slice(raw, at)
        value, at = _slice(raw, at)
        found.append((name or b"", value))
    return found


def _slice(raw: memoryview, at: int) -> tuple[bytes | None, int]:
    """Bytes led by their size, which is -1 for null, and their end."""
    size, at = unsigned_varint(raw, at)
    stop = _part_end(raw, at, size, least=-1)
    return (None if size & 1 else bytes(raw[at:stop])), stop


def _signed(value: int) -> int:
    return (value >> 1) ^ -(value & 1)


def headers_end(raw: memoryview, at: int, count: int) -> int:
    """The end of so many headers, each of which must be inside the record."""
    for _ in range(count):
        size, at = unsigned_varint(raw, at)
        at = _part_end(raw, at, size, least=0)
        size, at = unsigned_varint(raw, at)
        at = _part_end(raw, at, size, least=-1)
    return at


def _part_end(raw: memoryview, at: int, zigzag: int, *, least: int) -> int:
    """The end of a part of this size, which must be inside the record."""
    size = _signed(zigzag)
    if size < least or at + size > len(raw):
        raise Malformed(f"a key, value or header of {size} bytes", at - 1)
    return at + max(size, 0)
