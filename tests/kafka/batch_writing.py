"""Writes Kafka's record batches, independently of `src`, from the description of their format."""

from __future__ import annotations

import gzip
import struct
from dataclasses import dataclass, field

import google_crc32c
import pyarrow as pa

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "snappy blocks": 2, "lz4": 3, "zstd": 4}


@dataclass(frozen=True)
class Written:
    """One record; its offset and timestamp are relative to those of its batch."""

    delta: int
    value: bytes | None
    key: bytes | None = None
    stamp: int = 0
    headers: tuple[tuple[bytes, bytes | None], ...] = ()

    def raw(self) -> bytes:
        """Its bytes in the batch."""
        return _record(self)


@dataclass(frozen=True)
class Whole:
    """One batch: `control` is the type of its marker (0 abort, 1 commit), None for records.

    `claimed` is the number of records its header says, where that is not the true one.
    """

    base: int
    records: tuple[Written, ...]
    codec: str = "none"
    first_stamp: int = 1_000
    appended_at: int | None = None
    producer: int | None = None
    control: int | None = None
    extra_delta: int = field(default=0)
    claimed: int | None = None

    def bytes(self) -> bytes:
        """Its bytes in the log."""
        records = b"".join(map(_record, self.records))
        if self.control is not None:
            mark = Written(0, b"\0\0\0\0\0\0", key=struct.pack(">hh", 0, self.control))
            records = _record(mark)
        attributes = CODECS[self.codec]
        attributes |= 8 if self.appended_at is not None else 0
        attributes |= 16 if self.producer is not None else 0
        attributes |= 32 if self.control is not None else 0
        deltas = [record.delta for record in self.records]
        count = 1 if self.control is not None else len(self.records)
        count = count if self.claimed is None else self.claimed
        last = max([0, *deltas]) + self.extra_delta
        inside = packed(records, self.codec) if records else b""
        head = struct.pack(
            ">hiqqqhii", attributes, last, self.first_stamp,
            self.first_stamp if self.appended_at is None else self.appended_at,
            -1 if self.producer is None else self.producer, 0, 0, count,
        )  # fmt: skip
        size = 4 + 1 + 4 + len(head) + len(inside)
        checksum = google_crc32c.value(head + inside)
        return struct.pack(">qiibI", self.base, size, 0, 2, checksum) + head + inside


def varint(number: int) -> bytes:
    zigzag = number << 1 if number >= 0 else ((-number) << 1) - 1
    made = bytearray()
    while zigzag >= 128:
        made.append(zigzag & 127 | 128)
        zigzag >>= 7
    return bytes([*made, zigzag])


def _record(record: Written) -> bytes:
    body = b"\0" + varint(record.stamp) + varint(record.delta)
    body += _sized(record.key) + _sized(record.value)
    body += varint(len(record.headers))
    for name, value in record.headers:
        body += _sized(name) + _sized(value)
    return varint(len(body)) + body


def _sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def packed(data: bytes, codec: str) -> bytes:
    """Records compressed by one of the codecs."""
    if codec == "gzip":
        return gzip.compress(data)
    if codec == "snappy":
        return bytes(pa.compress(data, codec="snappy", asbytes=True))
    if codec == "snappy blocks":
        made = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
        for first in range(0, len(data), 40):
            block = pa.compress(data[first : first + 40], codec="snappy", asbytes=True)
            made += struct.pack(">i", len(block)) + block
        return made
    if codec in ("lz4", "zstd"):
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, codec) as stream:
            stream.write(data)
        return bytes(sink.getvalue())
    return data
