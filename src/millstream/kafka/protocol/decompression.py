"""The bytes of packed record batches, unpacked into memory that is used again.

A few kilobytes can unpack to gigabytes. Records are unpacked in pieces: one ends behind the first
batch with which it is large enough, or in the middle of a batch, behind a whole record.
"""

from __future__ import annotations

import struct
import threading
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa

from millstream.kafka.protocol.record_starts import Unfit, varint

if TYPE_CHECKING:
    from collections.abc import Iterator

PIECE = 16 << 20  # bytes of unpacked records with which a piece is large enough
LARGEST = 256 << 20  # bytes of a single record, or of a block that unpacks only as a whole
_KEPT = 2 * PIECE  # bytes of memory that each thread keeps
_STEP = 1 << 20  # bytes that are unpacked at once of what unpacks bit by bit
_GIVEN = 16 << 10  # packed bytes that gzip is given at once
_GZIP, _SNAPPY, _LZ4, _ZSTD = 1, 2, 3, 4
_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEAD = 16
_SNAPPY_MOST = 22  # bytes that one byte of snappy can unpack to


class _Ready(threading.local):
    """This thread's memory for unpacked records: fresh pages cost more than unpacking does."""

    def __init__(self) -> None:
        self.data: np.ndarray | None = np.empty(_KEPT, np.uint8)


_READY = _Ready()


class Room:
    """Memory that unpacked records lie in, one behind the other."""

    def __init__(self, data: np.ndarray) -> None:
        self.data, self.used = data, 0

    def add(self, part: bytes | memoryview) -> None:
        """Append these bytes."""
        self.until(self.used + len(part))
        self.data[self.used : self.used + len(part)] = np.frombuffer(part, np.uint8)
        self.used += len(part)

    def free(self, limit: int) -> np.ndarray:
        """What is free up to so many bytes of all."""
        self.until(limit)
        return self.data[self.used : limit]

    def keep(self, start: int) -> None:
        """Forget what lies before `start`; the rest moves to the front."""
        rest = self.used - start
        self.data[:rest] = self.data[start : self.used].copy()
        self.used = rest

    def until(self, size: int) -> None:
        """Grow to so many bytes at least."""
        if size > self.data.size:
            larger = np.empty(max(size, 2 * self.data.size), np.uint8)
            larger[: self.used] = self.data[: self.used]
            self.data = larger


@contextmanager
def room() -> Iterator[Room]:
    """This thread's memory, or fresh memory while somebody else in the thread has it."""
    ready, _READY.data = _READY.data, None
    try:
        yield Room(np.empty(_KEPT, np.uint8) if ready is None else ready)
    finally:
        if ready is not None:
            _READY.data = ready


class Unpacking(Protocol):
    """The records of one batch on their way."""

    def into(self, room: Room, limit: int) -> bool:
        """Unpack until the room holds `limit` bytes; whether that was all there is.

        Raises:
            Unfit: the bytes are not what the codec makes.
        """


def unpacking(packed: memoryview, codec: int) -> Unpacking:
    """The records of a batch that was packed in this way; 0 stands for not at all.

    Raises:
        Unfit: there is no such way.
    """
    if codec == 0:
        return _Blocks(iter([packed]))
    if codec == _GZIP:
        return _Gzip(packed)
    if codec == _SNAPPY:
        return _Blocks(_snappy(packed))
    if codec in (_LZ4, _ZSTD):
        return _Stream(packed, "lz4" if codec == _LZ4 else "zstd")
    raise Unfit(f"a codec {codec}, which Kafka does not have")


def _broken(name: str, why: object) -> Unfit:
    return Unfit(f"records that {name} cannot unpack ({' '.join(str(why).split())})")


class _Blocks:
    """What unpacks block by block."""

    def __init__(self, blocks: Iterator[bytes | memoryview]) -> None:
        self._blocks = blocks

    def into(self, room: Room, limit: int) -> bool:
        for block in self._blocks:
            room.add(block)
            if room.used >= limit:
                return False
        return True


class _Gzip:
    """Gzip, of one member or several."""

    def __init__(self, packed: memoryview) -> None:
        self._packed, self._at = packed, 0
        self._member = zlib.decompressobj(31)

    def into(self, room: Room, limit: int) -> bool:
        while room.used < limit:
            if self._member.eof:
                if self._at == len(self._packed):
                    return True
                self._member = zlib.decompressobj(31)
            self._some(room, limit)
        return False

    def _some(self, room: Room, limit: int) -> None:
        given = self._packed[self._at : self._at + _GIVEN]
        try:
            found = self._member.decompress(given, min(_STEP, limit - room.used))
        except zlib.error as error:
            raise _broken("gzip", error) from None
        left = len(self._member.unconsumed_tail) + len(self._member.unused_data)
        if not (found or given or self._member.eof):
            raise _broken("gzip", "they end too early")
        self._at += len(given) - left
        room.add(found)


class _Stream:
    """What Arrow unpacks bit by bit: LZ4 and Zstandard."""

    def __init__(self, packed: memoryview, name: str) -> None:
        self._name = name
        self._stream = pa.input_stream(pa.py_buffer(packed), compression=name)

    def into(self, room: Room, limit: int) -> bool:
        try:
            while room.used < limit:
                got = self._stream.readinto(room.free(limit))
                if not got:
                    return True
                room.used += got
        except OSError as error:
            raise _broken(self._name, error) from None
        return False


def _snappy(packed: memoryview) -> Iterator[bytes]:
    """Snappy, plain or in the blocks that Java clients write."""
    if packed[: len(_XERIAL)] != _XERIAL:
        yield _snappy_block(packed)
        return
    place = _XERIAL_HEAD
    while place < len(packed):
        if place + 4 > len(packed):
            raise Unfit("a block of snappy without its size")
        (size,) = struct.unpack_from(">i", packed, place)
        place += 4
        if not 0 < size <= len(packed) - place:
            raise Unfit(f"a block of {size} bytes of snappy where {len(packed) - place} follow")
        yield _snappy_block(packed[place : place + size])
        place += size


def _snappy_block(packed: memoryview) -> bytes:
    size, _ = varint(packed, 0)
    if size > _SNAPPY_MOST * len(packed):
        raise Unfit(f"{len(packed)} bytes of snappy that claim to unpack to {size}")
    if size > LARGEST:
        raise Unfit(f"a block that unpacks to {size} bytes, where {LARGEST} are the most")
    try:
        return bytes(pa.decompress(pa.py_buffer(packed), size, "snappy", asbytes=True))
    except OSError as error:
        raise _broken("snappy", error) from None
