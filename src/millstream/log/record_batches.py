"""Kafka's record batches to Arrow: all records of a fetch at once, none by itself.

A batch is a header and records that follow each other, each led by its length. Where records
begin is found for all of them together: every place that may begin one (a length, then the
byte 0 of its attributes) is looked at, and those that the first record of a batch leads to are
the records. What does not add up to the count in the header is walked through one by one.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_HEADER = struct.Struct(">qiibIhiqqqhii")
_MAGIC = 2
_CODEC, _APPENDED, _TRANSACTIONAL, _CONTROL = 7, 8, 16, 32
_GZIP, _SNAPPY, _LZ4, _ZSTD = 1, 2, 3, 4
_XERIAL = b"\x82SNAPPY\x00"
_LONGEST = 5  # bytes of a record's length
_INLINE = 12
_MANY = 8  # so many places that may begin a record, for each that does, and walking is cheaper

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
    _, at = _varints(data, starts)
    _, at = _varints(data, at + 1)
    _, at = _varints(data, at)
    _, at = _varints(data, at)
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
    return _parsed(data, chosen, first, end, following, keys=keys)


def _opened(fetched: memoryview, chosen: Sequence[Batch]) -> tuple[np.ndarray, list[Batch]]:
    """The bytes the records lie in: as fetched, or unpacked one behind the other."""
    if not any(batch.attributes & _CODEC for batch in chosen):
        return np.frombuffer(fetched, np.uint8), list(chosen)
    parts, placed, at = [], [], 0
    for batch in chosen:
        part = _unpacked(fetched[batch.start : batch.stop], batch.attributes & _CODEC)
        parts.append(np.frombuffer(part, np.uint8))
        placed.append(Batch(batch.base, batch.attributes, batch.last, batch.first_stamp,
                            batch.last_stamp, batch.producer, batch.count, at,
                            at + len(part)))  # fmt: skip
        at += len(part)
    return np.concatenate(parts), placed


def _unpacked(packed: memoryview, codec: int) -> bytes | memoryview:
    if codec == 0:
        return packed
    if codec == _GZIP:
        return zlib.decompress(packed, 31)
    if codec in (_LZ4, _ZSTD):
        name = "lz4" if codec == _LZ4 else "zstd"
        with pa.input_stream(pa.py_buffer(packed), compression=name) as stream:
            return bytes(stream.read())
    if codec == _SNAPPY:
        return b"".join(_snappy(bytes(packed)))
    raise UnknownFormat(f"codec {codec}")


def _snappy(packed: bytes) -> Iterator[bytes]:
    """Snappy, plain or in the blocks that Java clients write."""
    if not packed.startswith(_XERIAL):
        size, shift, place = 0, 0, 0
        while True:
            byte = packed[place]
            size |= (byte & 127) << shift
            place, shift = place + 1, shift + 7
            if byte < 128:
                break
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
    places = starts(data, [batch.start for batch in chosen], [batch.stop for batch in chosen],
                    counts)  # fmt: skip
    _, at = _varints(data, places)
    stamp, at = _varints(data, at + 1)
    delta, at = _varints(data, at)
    key_size, key_at = _varints(data, at)
    value_size, value_at = _varints(data, key_at + np.maximum(key_size, 0))
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


def _stamps(chosen: list[Batch], counts: np.ndarray, deltas: np.ndarray) -> np.ndarray:
    """Milliseconds: of each record, or of its batch where the broker wrote the time."""
    appended = np.array([bool(b.attributes & _APPENDED) for b in chosen], bool)
    first = np.array([b.first_stamp for b in chosen], np.int64)
    last = np.array([b.last_stamp for b in chosen], np.int64)
    stamps = np.repeat(np.where(appended, last, first), counts)
    deltas = np.where(np.repeat(appended, counts), 0, deltas) if appended.any() else deltas
    found: np.ndarray = stamps + deltas
    return found


def _varints(data: np.ndarray, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The zigzag numbers at these places, and the places behind them."""
    byte = data[places]
    value = (byte & 127).astype(np.int64)
    at = places + 1
    more, shift = np.flatnonzero(byte >= 128), 7
    while len(more):
        byte = data[at[more]]
        value[more] |= (byte & 127).astype(np.int64) << shift
        at[more] += 1
        more, shift = more[byte >= 128], shift + 7
    return (value >> 1) ^ -(value & 1), at


def starts(
    data: np.ndarray, roots: Sequence[int], stops: Sequence[int], counts: np.ndarray
) -> np.ndarray:
    """Where the records of all batches begin, in order."""
    total = int(counts.sum())
    if not total:
        return np.empty(0, np.int64)
    low, ends = int(roots[0]), np.asarray(stops, np.int64)
    nodes, jump = _candidates(data[low : int(ends[-1])], ends - low, total)
    nodes += low
    reached = np.searchsorted(nodes, roots)
    if len(nodes) and (nodes[np.minimum(reached, len(nodes) - 1)] == roots).all():
        for _ in range(int(counts.max()).bit_length()):
            further = jump[reached]
            reached = np.concatenate([reached, further[further < len(nodes)]])
            jump = jump[jump]
        if len(reached) == total:
            return nodes[np.sort(reached)]
    return _walked(data, roots, counts)


def _candidates(data: np.ndarray, ends: np.ndarray, total: int) -> tuple[np.ndarray, np.ndarray]:
    """Every place that may begin a record, ascending, and for each which of them comes next.

    The place behind the last stands for nowhere, and so do the ends of batches. None at all
    are given where so many may begin one that walking is cheaper.
    """
    zeros = np.flatnonzero(data == 0)
    zeros = zeros[zeros > 0]
    zeros = zeros[data[zeros - 1] < 128]
    if len(zeros) > _MANY * total:
        return np.empty(0, np.int64), np.zeros(1, np.int64)
    size = (data[zeros - 1]).astype(np.int64)
    places, lengths = [zeros - 1], [size]
    for width in range(2, _LONGEST + 1):
        longer = zeros >= width
        zeros, size = zeros[longer], size[longer]
        byte = data[zeros - width]
        longer = byte >= 128
        zeros, size = zeros[longer], (size[longer] << 7) | (byte[longer] & 127)
        if not len(zeros):
            break
        places.append(zeros - width)
        lengths.append(size)
    widths = np.repeat(np.arange(1, len(places) + 1), [len(part) for part in places])
    nodes, length = np.concatenate(places), np.concatenate(lengths)
    order = np.argsort(nodes, kind="stable")
    nodes = nodes[order]
    target = nodes + widths[order] + (length[order] >> 1)
    jump = np.searchsorted(nodes, target)
    known = jump < len(nodes)
    known[known] = nodes[jump[known]] == target[known]
    known &= ends[np.minimum(np.searchsorted(ends, target), len(ends) - 1)] != target
    return nodes, np.append(np.where(known, jump, len(nodes)), len(nodes))


def _walked(data: np.ndarray, roots: Sequence[int], counts: np.ndarray) -> np.ndarray:
    """The same one after the other, for bytes that look like beginnings everywhere."""
    found, raw = [], data.tobytes()
    for root, count in zip(roots, counts.tolist(), strict=True):
        at = int(root)
        for _ in range(count):
            found.append(at)
            value, shift = 0, 0
            while True:
                byte = raw[at]
                value |= (byte & 127) << shift
                at, shift = at + 1, shift + 7
                if byte < 128:
                    break
            at += value >> 1
    return np.array(found, np.int64)


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
