"""Decompresses record batches into a buffer that the next fetch reuses.

A few kilobytes can decompress to gigabytes, so records are decompressed in pieces: a piece ends
after the batch that makes it large enough, or after a complete record inside a batch.
"""

from __future__ import annotations

import struct
import threading
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa

from millstream.kafka.protocol.record_starts import Malformed, unsigned_varint

if TYPE_CHECKING:
    from collections.abc import Iterator

PIECE = 16 << 20  # bytes of decompressed records with which a piece is large enough
MAX_RECORD = 256 << 20  # bytes of a record, or of a block that decompresses only as a whole
_KEPT_BYTES = 2 * PIECE  # of each thread's buffer
_GZIP_OUTPUT = 1 << 20  # bytes per call
_GZIP_INPUT = 16 << 10
_GZIP, _SNAPPY, _LZ4, _ZSTD = 1, 2, 3, 4
_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEAD = 16
_SNAPPY_RATIO = 22  # bytes that one byte of snappy can decompress to


class _ThreadBuffer(threading.local):
    """This thread's memory: fresh pages cost more than decompression."""

    def __init__(self) -> None:
        self.data: np.ndarray | None = np.empty(_KEPT_BYTES, np.uint8)


_THREAD_BUFFER = _ThreadBuffer()


class Buffer:
    """Memory for decompressed records, one after the other."""

    def __init__(self, data: np.ndarray) -> None:
        self.data, self.used = data, 0

    def add(self, part: bytes | memoryview) -> None:
        self.grow(self.used + len(part))
        self.data[self.used : self.used + len(part)] = np.frombuffer(part, np.uint8)
        self.used += len(part)

    def free(self, limit: int) -> np.ndarray:
        """The unused memory up to `limit`."""
        self.grow(limit)
        return self.data[self.used : limit]

    def keep(self, start: int) -> None:
        """Drop the bytes before `start`; the rest moves to the front."""
        rest = self.used - start
        self.data[:rest] = self.data[start : self.used].copy()
        self.used = rest

    def grow(self, size: int) -> None:
        """Grow to at least `size` bytes."""
        if size > self.data.size:
            larger = np.empty(max(size, 2 * self.data.size), np.uint8)
            larger[: self.used] = self.data[: self.used]
            self.data = larger


@contextmanager
def reused_buffer() -> Iterator[Buffer]:
    """This thread's buffer, or a new one while it is in use."""
    data, _THREAD_BUFFER.data = _THREAD_BUFFER.data, None
    try:
        yield Buffer(np.empty(_KEPT_BYTES, np.uint8) if data is None else data)
    finally:
        if data is not None:
            _THREAD_BUFFER.data = data


class Decompressor(Protocol):
    """Decompresses the records of one batch."""

    def read_into(self, buffer: Buffer, limit: int) -> bool:
        """Decompress until the buffer has `limit` bytes; returns whether that was all.

        Raises:
            Malformed: the bytes are not valid for the codec.
        """


def decompressor(compressed: memoryview, codec: int) -> Decompressor:
    """For a batch with this codec; 0 is none.

    Raises:
        Malformed: there is no such codec.
    """
    if codec == 0:
        return _Blocks(iter([compressed]))
    if codec == _GZIP:
        return _Gzip(compressed)
    if codec == _SNAPPY:
        return _Blocks(_snappy(compressed))
    if codec in (_LZ4, _ZSTD):
        return _Stream(compressed, "lz4" if codec == _LZ4 else "zstd")
    raise Malformed(f"an unknown codec {codec}")


def _broken(name: str, why: object) -> Malformed:
    return Malformed(f"records that {name} cannot decompress ({' '.join(str(why).split())})")


class _Blocks:
    """Codecs that decompress block by block."""

    def __init__(self, blocks: Iterator[bytes | memoryview]) -> None:
        self._blocks = blocks

    def read_into(self, buffer: Buffer, limit: int) -> bool:
        for block in self._blocks:
            buffer.add(block)
            if buffer.used >= limit:
                return False
        return True


class _Gzip:
    """Gzip, with one member or several."""

    def __init__(self, compressed: memoryview) -> None:
        self._compressed, self._at = compressed, 0
        self._member = zlib.decompressobj(31)

    def read_into(self, buffer: Buffer, limit: int) -> bool:
        while buffer.used < limit:
            if self._member.eof:
                if self._at == len(self._compressed):
                    return True
                self._member = zlib.decompressobj(31)
            self._some(buffer, limit)
        return False

    def _some(self, buffer: Buffer, limit: int) -> None:
        chunk = self._compressed[self._at : self._at + _GZIP_INPUT]
        try:
            found = self._member.decompress(chunk, min(_GZIP_OUTPUT, limit - buffer.used))
        except zlib.error as error:
            raise _broken("gzip", error) from None
        left = len(self._member.unconsumed_tail) + len(self._member.unused_data)
        if not (found or chunk or self._member.eof):
            raise _broken("gzip", "they end too early")
        self._at += len(chunk) - left
        buffer.add(found)


class _Stream:
    """Codecs that Arrow decompresses as a stream: LZ4 and Zstandard."""

    def __init__(self, compressed: memoryview, name: str) -> None:
        self._name = name
        self._stream = pa.input_stream(pa.py_buffer(compressed), compression=name)

    def read_into(self, buffer: Buffer, limit: int) -> bool:
        try:
            while buffer.used < limit:
                got = self._stream.readinto(buffer.free(limit))
                if not got:
                    return True
                buffer.used += got
        except OSError as error:
            raise _broken(self._name, error) from None
        return False


def _snappy(compressed: memoryview) -> Iterator[bytes]:
    """Snappy, plain or in the blocks that Java clients write (xerial)."""
    if compressed[: len(_XERIAL)] != _XERIAL:
        yield _snappy_block(compressed)
        return
    at = _XERIAL_HEAD
    while at < len(compressed):
        if at + 4 > len(compressed):
            raise Malformed("a snappy block without its size")
        (size,) = struct.unpack_from(">i", compressed, at)
        at += 4
        if not 0 < size <= len(compressed) - at:
            raise Malformed(f"a snappy block of {size} bytes where {len(compressed) - at} follow")
        yield _snappy_block(compressed[at : at + size])
        at += size


def _snappy_block(compressed: memoryview) -> bytes:
    size, _ = unsigned_varint(compressed, 0)
    if size > _SNAPPY_RATIO * len(compressed):
        raise Malformed(f"{len(compressed)} bytes of snappy that claim to decompress to {size}")
    if size > MAX_RECORD:
        raise Malformed(f"a block of {size} bytes, where at most {MAX_RECORD} are allowed")
    try:
        return bytes(pa.decompress(pa.py_buffer(compressed), size, "snappy", asbytes=True))
    except OSError as error:
        raise _broken("snappy", error) from None
