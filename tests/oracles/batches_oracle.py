"""Record batches read one after the other, byte by byte, from the description of their format.

Slow and plain: it decides whether fetched bytes are well formed, and what records they hold.
"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

import pyarrow as pa


class Malformed(Exception):
    """The bytes are no record batch."""


class OldFormat(Exception):
    """The bytes are of the format before 2017."""


class Row(NamedTuple):
    offset: int
    stamp: int
    key: bytes | None
    value: bytes | None


class _Header(NamedTuple):
    base: int
    attributes: int
    last: int
    first_stamp: int
    last_stamp: int
    number: int
    records: bytes


def _table() -> list[int]:
    found = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        found.append(value)
    return found


_TABLE = _table()


def crc32c(data: bytes) -> int:
    value = 0xFFFFFFFF
    for byte in data:
        value = _TABLE[(value ^ byte) & 0xFF] ^ value >> 8
    return value ^ 0xFFFFFFFF


def rows(fetched: bytes) -> list[Row]:
    """The records of all whole batches up to the first that is damaged or of the old format.

    Raises:
        Malformed: the first batch is damaged, or the records of one that has the right checksum.
        OldFormat: the first batch is of the old format.
    """
    headers: list[_Header] = []
    place, after = 0, -1
    while len(fetched) - place >= 61:
        try:
            header, place = _header(fetched, place, after)
        except (Malformed, OldFormat):
            if not headers:
                raise
            break
        if header is None:
            break
        headers.append(header)
        after = header.last
    found: list[Row] = []
    for header in headers:
        found += _records(header)
    return found


def _header(fetched: bytes, place: int, after: int) -> tuple[_Header | None, int]:
    (base, size, _, magic, checksum, attributes, delta, first_stamp, last_stamp, _, _, _,
     count) = struct.unpack_from(">qiibIhiqqqhii", fetched, place)  # fmt: skip
    if magic in (0, 1):
        raise OldFormat
    if magic != 2 or size < 49:
        raise Malformed
    stop = place + 12 + size
    if stop > len(fetched):
        return None, place
    if crc32c(fetched[place + 21 : stop]) != checksum:
        raise Malformed
    records = fetched[place + 61 : stop]
    if base <= after or delta < 0 or base + delta >= 2**63 or not 0 <= count <= delta + 1:
        raise Malformed
    if count == 0 and records:
        raise Malformed
    if attributes & 7 == 0 and count * 7 > len(records):
        raise Malformed
    return _Header(base, attributes, base + delta, first_stamp, last_stamp, count, records), stop


def _records(header: _Header) -> list[Row]:
    if header.attributes & 32:
        _mark(header)
        return []
    if header.number == 0:
        return []
    data = _unpacked(header.records, header.attributes & 7)
    found, at, before = [], 0, -1
    for _ in range(header.number):
        size, at = _number(data, at, 5)
        record = data[at : at + size]
        if size < 0 or len(record) != size:
            raise Malformed
        at += size
        stamp, delta, key, value = _record(record)
        if not before < delta <= header.last - header.base:
            raise Malformed
        before = delta
        stamp = header.last_stamp if header.attributes & 8 else header.first_stamp + stamp
        found.append(Row(header.base + delta, (stamp + 2**63) % 2**64 - 2**63, key, value))
    if at != len(data):
        raise Malformed
    return found


def _mark(header: _Header) -> None:
    if header.number == 0:
        return
    if header.attributes & 7:
        raise Malformed
    size, at = _number(header.records, 0, 5)
    record = header.records[at : at + size]
    if size < 0 or len(record) != size:
        raise Malformed
    _, at = _number(record, 1, 10)
    _, at = _number(record, at, 5)
    size, at = _number(record, at, 5)
    if size < 4 or at + size > len(record):
        raise Malformed


def _record(record: bytes) -> tuple[int, int, bytes | None, bytes | None]:
    stamp, at = _number(record, 1, 10)
    delta, at = _number(record, at, 5)
    key, at = _part(record, at)
    value, at = _part(record, at)
    headers, at = _number(record, at, 5)
    if not 0 <= headers <= len(record):
        raise Malformed
    for _ in range(headers):
        name, at = _part(record, at)
        if name is None:
            raise Malformed
        _, at = _part(record, at)
    if at != len(record):
        raise Malformed
    return stamp, delta, key, value


def _part(data: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = _number(data, at, 5)
    if size < -1 or at + size > len(data):
        raise Malformed
    return (None, at) if size == -1 else (data[at : at + size], at + size)


def _number(data: bytes, at: int, most: int) -> tuple[int, int]:
    bits = 32 if most == 5 else 64
    value = 0
    for place in range(most):
        if at + place >= len(data):
            raise Malformed
        byte = data[at + place]
        value += (byte % 128) * 128**place
        if byte < 128:
            if bits == 32 and value >= 2**32:
                raise Malformed
            value %= 2**bits
            return (value // 2 if value % 2 == 0 else -(value // 2) - 1), at + place + 1
    raise Malformed


def _unpacked(packed: bytes, codec: int) -> bytes:
    if codec == 0:
        return packed
    if codec == 1:
        return _gunzipped(packed)
    if codec == 2:
        return _unsnapped(packed)
    if codec in (3, 4):
        try:
            packed_in = pa.BufferReader(packed)
            with pa.CompressedInputStream(packed_in, {3: "lz4", 4: "zstd"}[codec]) as stream:
                found, some = bytearray(), bytearray(1 << 16)
                while count := stream.readinto(some):  # `read` leaks memory where it fails
                    found += some[:count]
                return bytes(found)
        except OSError:
            raise Malformed from None
    raise Malformed


def _gunzipped(packed: bytes) -> bytes:
    found = b""
    while True:
        member = zlib.decompressobj(31)
        try:
            found += member.decompress(packed)
        except zlib.error:
            raise Malformed from None
        if not member.eof:
            raise Malformed
        if not member.unused_data:
            return found
        packed = member.unused_data


def _unsnapped(packed: bytes) -> bytes:
    if not packed.startswith(b"\x82SNAPPY\x00"):
        return _snappy_block(packed)
    found, at = b"", 16
    while at < len(packed):
        if at + 4 > len(packed):
            raise Malformed
        (size,) = struct.unpack_from(">i", packed, at)
        if size <= 0 or at + 4 + size > len(packed):
            raise Malformed
        found += _snappy_block(packed[at + 4 : at + 4 + size])
        at += 4 + size
    return found


def _snappy_block(packed: bytes) -> bytes:
    size = shift = at = 0
    while True:
        if at >= len(packed) or at == 5:
            raise Malformed
        byte = packed[at]
        size |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            break
    found = bytearray()
    while at < len(packed):
        at = _snappy_element(packed, at, found)
        if len(found) > size:
            raise Malformed
    if len(found) != size:
        raise Malformed
    return bytes(found)


def _snappy_element(packed: bytes, at: int, found: bytearray) -> int:
    """A literal, or a copy of what has come before."""
    tag, at = packed[at], at + 1
    kind, more = tag & 3, tag >> 2
    if kind == 0:
        if more >= 60:
            width = more - 59
            more = int.from_bytes(_taken(packed, at, width), "little")
            at += width
        found += _taken(packed, at, more + 1)
        return at + more + 1
    width = {1: 1, 2: 2, 3: 4}[kind]
    back = int.from_bytes(_taken(packed, at, width), "little")
    length = more + 1
    if kind == 1:
        back |= (tag >> 5) << 8
        length = (more & 7) + 4
    if not 0 < back <= len(found):
        raise Malformed
    for _ in range(length):
        found.append(found[-back])
    return at + width


def _taken(data: bytes, at: int, size: int) -> bytes:
    if at + size > len(data):
        raise Malformed
    return data[at : at + size]
