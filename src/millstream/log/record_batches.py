"""Kafka's record batches to Arrow: all records of a fetch at once, none by itself.

A batch is a header and records that follow each other, each led by its length (see
`record_starts`). Packed batches are unpacked one behind the other into memory that the next
fetch uses again; what leaves is copied out of it.
"""

from __future__ import annotations

import struct
import threading
import zlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.log.record_starts import starts, varint, varints

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_HEADER = struct.Struct(">qiibIhiqqqhii")
_MAGIC = 2
_CODEC, _APPENDED, _TRANSACTIONAL, _CONTROL = 7, 8, 16, 32
_GZIP, _SNAPPY, _LZ4, _ZSTD = 1, 2, 3, 4
_XERIAL = b"\x82SNAPPY\x00"
_INLINE = 12
_FEW = 32  # records that are read one after the other
_KEPT = 64 << 20  # bytes of unpacked records that have their place ready

Aborted = list[tuple[int, int]]


class UnknownFormat(Exception):
    """A batch of another time than ours, which another client has to read."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch's header, and where its records lie in the fetched bytes."""

    base: int
    attributes: int
    last: int
    first_stamp: int
    last_stamp: int
    producer: int
    count: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Records:
    """Records of one partition; `next` is the offset to go on from."""

    offsets: np.ndarray
    stamps: np.ndarray
    values: pa.Array
    keys: pa.Array | None
    next: int


def batches(fetched: memoryview) -> list[Batch]:
    """The whole batches of a fetch; one that was cut off at its end is left out.

    Raises:
        UnknownFormat: one is not of the format that has been written since 2017.
    """
    found, place = [], 0
    while place + _HEADER.size <= len(fetched):
        (base, size, _, magic, _, attributes, last, first_stamp, last_stamp, producer, _, _,
         count) = _HEADER.unpack_from(fetched, place)  # fmt: skip
        stop = place + 12 + size
        if magic != _MAGIC:
            raise UnknownFormat(f"record format {magic}")
        if stop > len(fetched):
            break
        found.append(Batch(base, attributes, base + last, first_stamp, last_stamp, producer,
                           count, place + _HEADER.size, stop))  # fmt: skip
        place = stop
    return found


def committed(found: Iterable[Batch], fetched: memoryview, aborted: Aborted) -> Iterator[Batch]:
    """The batches with records to be seen: no marks, nothing of transactions that were aborted."""
    waiting = sorted(aborted, key=lambda entry: entry[1], reverse=True)
    gone: set[int] = set()
    for batch in found:
        while waiting and waiting[-1][1] <= batch.last:
            gone.add(waiting.pop()[0])
        if batch.attributes & _CONTROL:
            if _is_abort(batch, fetched):
                gone.discard(batch.producer)
        elif batch.count and not (batch.attributes & _TRANSACTIONAL and batch.producer in gone):
            yield batch


def _is_abort(batch: Batch, fetched: memoryview) -> bool:
    """A mark's key is a version and a kind, two bytes each; the kind 0 ends in nothing."""
    data = np.frombuffer(fetched, np.uint8)
    starts = np.array([batch.start])
    _, at = varints(data, starts)
    _, at = varints(data, at + 1)
    _, at = varints(data, at)
    _, at = varints(data, at)
    return bool(data[int(at[0]) + 3] == 0)


def records(
    fetched: memoryview, aborted: Aborted, first: int, end: int, *, keys: bool = False
) -> Records:
    """The committed records of a fetch with offsets from `first` up to `end`.

    Raises:
        UnknownFormat: they are not of a format or a codec known here.
    """
    whole = batches(fetched)
    chosen = [batch for batch in committed(whole, fetched, aborted)
              if batch.last >= first and batch.base < end]  # fmt: skip
    following = max([first, *(batch.last + 1 for batch in whole)])
    data, chosen = _opened(fetched, chosen)
    parse = _read_through if sum(batch.count for batch in chosen) <= _FEW else _parsed
    return parse(data, chosen, first, end, following, keys=keys)


def _opened(fetched: memoryview, chosen: Sequence[Batch]) -> tuple[np.ndarray, list[Batch]]:
    """The bytes the records lie in: as fetched, or unpacked one behind the other."""
    if not any(batch.attributes & _CODEC for batch in chosen):
        return np.frombuffer(fetched, np.uint8), list(chosen)
    room, placed = _Room(), []
    for batch in chosen:
        at = room.used
        _unpack(fetched[batch.start : batch.stop], batch.attributes & _CODEC, room)
        placed.append(replace(batch, start=at, stop=room.used))
    return room.data[: room.used], placed


class _Ready(threading.local):
    """This thread's memory for unpacked records: fresh pages cost more than unpacking does."""

    def __init__(self) -> None:
        self.data = np.empty(_KEPT, np.uint8)


_READY = _Ready()


class _Room:
    """The unpacked records of one fetch; there is one at a time in a thread."""

    def __init__(self) -> None:
        self.data, self.used = _READY.data, 0

    def add(self, part: bytes | memoryview) -> None:
        while self.data.size - self.used < len(part):
            self._grow()
        self.data[self.used : self.used + len(part)] = np.frombuffer(part, np.uint8)
        self.used += len(part)

    def drain(self, stream: pa.NativeFile) -> None:
        """All that is left of a stream."""
        while got := stream.readinto(self.data[self.used :]):
            self.used += got
            if self.used == self.data.size:
                self._grow()

    def _grow(self) -> None:
        larger = np.empty(2 * self.data.size, np.uint8)
        larger[: self.used] = self.data[: self.used]
        self.data = larger


def _unpack(packed: memoryview, codec: int, room: _Room) -> None:
    if codec == 0:
        room.add(packed)
    elif codec == _GZIP:
        room.add(zlib.decompress(packed, 31))
    elif codec in (_LZ4, _ZSTD):
        name = "lz4" if codec == _LZ4 else "zstd"
        with pa.input_stream(pa.py_buffer(packed), compression=name) as stream:
            room.drain(stream)
    elif codec == _SNAPPY:
        for part in _snappy(bytes(packed)):
            room.add(part)
    else:
        raise UnknownFormat(f"codec {codec}")


def _snappy(packed: bytes) -> Iterator[bytes]:
    """Snappy, plain or in the blocks that Java clients write."""
    if not packed.startswith(_XERIAL):
        size, _ = varint(packed, 0)
        yield pa.decompress(packed, decompressed_size=size, codec="snappy", asbytes=True)
        return
    place = 16
    while place < len(packed):
        (size,) = struct.unpack_from(">i", packed, place)
        yield from _snappy(packed[place + 4 : place + 4 + size])
        place += 4 + size


def _parsed(
    data: np.ndarray, chosen: list[Batch], first: int, end: int, following: int, *, keys: bool
) -> Records:
    counts = np.array([batch.count for batch in chosen], np.int64)
    places = starts(data, np.array([batch.start for batch in chosen], np.int64),
                    np.array([batch.stop for batch in chosen], np.int64), counts)  # fmt: skip
    _, at = varints(data, places)
    stamp, at = varints(data, at + 1)
    delta, at = varints(data, at)
    key_size, key_at = varints(data, at)
    value_size, value_at = varints(data, key_at + np.maximum(key_size, 0))
    offsets = np.repeat(np.array([b.base for b in chosen], np.int64), counts) + delta
    stamps = _stamps(chosen, counts, stamp)
    wanted = (offsets >= first) & (offsets < end)
    if not wanted.all():
        offsets, stamps = offsets[wanted], stamps[wanted]
        value_at, value_size = value_at[wanted], value_size[wanted]
        key_at, key_size = key_at[wanted], key_size[wanted]
    return Records(
        offsets, stamps, _binary(data, value_at, value_size),
        _binary(data, key_at, key_size) if keys else None, following,
    )  # fmt: skip


def _read_through(
    data: np.ndarray, chosen: list[Batch], first: int, end: int, following: int, *, keys: bool
) -> Records:
    """The same one after the other: for a few, calls would cost more."""
    raw, offsets, stamps = data.data, [], []
    values: list[bytes | None] = []
    names: list[bytes | None] = []
    for batch in chosen:
        appended, stop = batch.attributes & _APPENDED, batch.start
        for _ in range(batch.count):
            size, at = varint(raw, stop)
            stop = at + (size >> 1)
            stamp, at = varint(raw, at + 1)
            delta, at = varint(raw, at)
            key, at = _slice(raw, at)
            value, _ = _slice(raw, at)
            offset = batch.base + _signed(delta)
            if first <= offset < end:
                offsets.append(offset)
                stamps.append(batch.last_stamp if appended else batch.first_stamp + _signed(stamp))
                values.append(value)
                names.append(key)
    return Records(
        np.array(offsets, np.int64), np.array(stamps, np.int64), pa.array(values, pa.binary()),
        pa.array(names, pa.binary()) if keys else None, following,
    )  # fmt: skip


def _slice(raw: memoryview, at: int) -> tuple[bytes | None, int]:
    """Bytes led by their size, -1 for none, and where they end."""
    told, at = varint(raw, at)
    size = _signed(told)
    return (None, at) if size < 0 else (bytes(raw[at : at + size]), at + size)


def _signed(value: int) -> int:
    return (value >> 1) ^ -(value & 1)


def _stamps(chosen: list[Batch], counts: np.ndarray, deltas: np.ndarray) -> np.ndarray:
    """Milliseconds: of each record, or of its batch where the broker wrote the time."""
    appended = np.array([bool(b.attributes & _APPENDED) for b in chosen], bool)
    first = np.array([b.first_stamp for b in chosen], np.int64)
    last = np.array([b.last_stamp for b in chosen], np.int64)
    stamps = np.repeat(np.where(appended, last, first), counts)
    deltas = np.where(np.repeat(appended, counts), 0, deltas) if appended.any() else deltas
    found: np.ndarray = stamps + deltas
    return found


def _binary(data: np.ndarray, places: np.ndarray, sizes: np.ndarray) -> pa.Array:
    """Slices of these bytes as Arrow; a size of -1 is null."""
    count, known = len(places), sizes >= 0
    size = np.where(known, sizes, 0)
    views = np.zeros((count, 4), np.int32)
    views[:, 0] = size
    views[:, 3] = places
    short = np.flatnonzero(size <= _INLINE)
    if len(short):
        inside = np.arange(_INLINE) < size[short, None]
        taken = data[np.minimum(places[short, None] + np.arange(_INLINE), len(data) - 1)]
        views.view(np.uint8).reshape(count, 16)[short, 4:] = np.where(inside, taken, 0)
    validity = None if known.all() else pa.py_buffer(np.packbits(known, bitorder="little"))
    held = [validity, pa.py_buffer(views), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary_view(), count, held).cast(pa.binary())
