"""Messages to Kafka's record batches: all records of a chunk at once, none by itself."""

from __future__ import annotations

import struct
import time
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import google_crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from millstream.formats.varints import byte_lengths, encode_zigzags, join_columns
from millstream.kafka.protocol.messages import unsigned_varint

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from millstream.kafka.protocol.transactions import Identity
    from millstream.sinks.kafka.messages import Outgoing

LARGEST = 900_000  # bytes of records before they are packed; a broker takes a million as a rule
_FEW = 32  # messages that are written one after the other
BESIDE = 32  # bytes of a record at most, apart from key, value and headers
_AS_THEY_ARE, _LZ4, _TRANSACTIONAL = 0, 3, 16
_WORTH_PACKING = 1_000  # bytes
_NO_LEADER, _MAGIC = -1, 2
_OUTSIDE, _INSIDE = struct.Struct(">qiibI"), struct.Struct(">hiqqqhii")
# A frame of blocks of up to 4 MB that stand for themselves, without sums; its end is a zero.
_FRAME, _FRAME_END = b"\x04\x22\x4d\x18\x60\x70\x73", bytes(4)
_BLOCK, _AS_IT_IS = 4 << 20, 1 << 31
_CODEC = pa.Codec("lz4_raw")
_EMPTY, _NO_ATTRIBUTES = pa.scalar(b"", pa.binary()), pa.scalar(b"\0", pa.binary())

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Batch:
    """Records of one partition, packed by a codec, without saying yet who writes them."""

    partition: int
    count: int
    first_stamp: int
    last_stamp: int
    codec: int
    packed: bytes

    def signed(self, who: Identity, sequence: int) -> bytes:
        """The whole batch as it is appended; `sequence` numbers the producer's records."""
        attributes = self.codec | (0 if who.transactional_id is None else _TRANSACTIONAL)
        head = _INSIDE.pack(attributes, self.count - 1, self.first_stamp, self.last_stamp,
                            who.producer_id, who.epoch, sequence, self.count)  # fmt: skip
        inside = head + self.packed
        size = _OUTSIDE.size - 12 + len(inside)
        return _OUTSIDE.pack(0, size, _NO_LEADER, _MAGIC, google_crc32c.value(inside)) + inside


def batches(some: Outgoing, partitions: Numbers, most: int | None = None) -> Iterator[Batch]:
    """The messages as batches of their partitions, in their order within each; `most` is what
    a broker takes as a batch, where it is known."""
    largest = LARGEST if most is None else max(1, min(LARGEST, most - _OUTSIDE.size - _INSIDE.size))
    size = some.values.nbytes + (0 if some.keys is None else some.keys.nbytes)
    size += BESIDE * len(partitions)
    if len(partitions) <= _FEW and size < largest // 2 and some.own is None:
        return _few(some, partitions.tolist())
    return _many(some, partitions, largest)


def _many(some: Outgoing, partitions: Numbers, largest: int) -> Iterator[Batch]:
    """All records at once."""
    order = np.argsort(partitions, kind="stable")
    sorted_already = bool((order[1:] > order[:-1]).all())
    chosen = some if sorted_already else some.take(order)
    partitions, tails = partitions[order], _tails(chosen)
    sizes = [_filled(chosen.keys), _filled(chosen.values), byte_lengths(tails)]
    bounds = _bounds(partitions, sum(sizes, np.zeros(len(order), np.int64)) + BESIDE, largest)
    firsts = np.repeat(bounds[:-1], np.diff(bounds))
    stamps = _stamps(chosen)
    later, places = stamps - stamps[firsts], np.arange(len(order)) - firsts
    records = _records(chosen, tails, sizes, later, places)
    edges = np.frombuffer(records.buffers()[1], np.int32)[: len(order) + 1]
    data = memoryview(records.buffers()[2])
    for first, end in pairwise(bounds.tolist()):
        packed = _packed(data[edges[first] : edges[end]])
        span = int(stamps[first]), int(stamps[first:end].max())
        yield Batch(int(partitions[first]), end - first, *span, *packed)


def _filled(column: pa.Array | None) -> Numbers:
    """The sizes of keys or values; null counts as nothing."""
    return np.zeros(1, np.int64) if column is None else byte_lengths(column.fill_null(b""))


def _bounds(partitions: Numbers, sizes: Numbers, largest: int = LARGEST) -> Numbers:
    """Where batches begin and end: within one partition, and none too large."""
    changes = np.flatnonzero(np.diff(partitions)) + 1
    edges = [0, *changes.tolist(), len(partitions)]
    ends, found = np.cumsum(sizes), [0]
    for first, end in pairwise(edges):
        while found[-1] < end:
            begun = int(ends[found[-1] - 1]) if found[-1] else 0
            last = int(np.searchsorted(ends[first:end], begun + largest, side="right")) + first
            found.append(max(found[-1] + 1, last))
    return np.array(found)


def _records(
    some: Outgoing, tails: pa.Array, sizes: Sequence[Numbers], later: Numbers, places: Numbers
) -> pa.Array:
    """Length, attributes, time, offset, key, value and headers of every record."""
    count = len(places)
    keys, key_sizes = _led(some.keys, sizes[0], count)
    values, value_sizes = _led(some.values, sizes[1], count)
    led = [encode_zigzags(later), encode_zigzags(places), key_sizes, value_sizes]
    whole = sum((byte_lengths(one) for one in led), sum(sizes, np.ones(count, np.int64)))
    return join_columns([
        encode_zigzags(whole), _NO_ATTRIBUTES, led[0], led[1],
        key_sizes, keys, value_sizes, values, tails,
    ])  # fmt: skip


def _led(
    column: pa.Array | None, sizes: Numbers, count: int
) -> tuple[pa.Array | pa.Scalar, pa.Array]:
    """Keys or values with what stands before them: their size, or -1 where there is none."""
    if column is None:
        return _EMPTY, encode_zigzags(np.full(count, -1))
    if column.null_count:
        sizes = np.where(column.is_valid().to_numpy(zero_copy_only=False), sizes, -1)
        column = column.fill_null(b"")
    return column, encode_zigzags(sizes)


def _few(some: Outgoing, partitions: list[int]) -> Iterator[Batch]:
    """One record after the other: for a few, calls would cost more."""
    groups: dict[int, list[int]] = {}
    for place, partition in enumerate(partitions):
        groups.setdefault(partition, []).append(place)
    values, stamps = some.values.to_pylist(), _stamps(some).tolist()
    keys = [None] * len(values) if some.keys is None else some.keys.to_pylist()
    tails = _tails(some).to_pylist()
    for partition, group in sorted(groups.items()):
        first, records = stamps[group[0]], []
        for number, place in enumerate(group):
            record = (b"\0" + _zigzag(stamps[place] - first) + _zigzag(number)
                      + _sized(keys[place]) + _sized(values[place]) + tails[place])  # fmt: skip
            records.append(_zigzag(len(record)) + record)
        last = max(stamps[place] for place in group)
        yield Batch(partition, len(group), first, last, *_packed(memoryview(b"".join(records))))


def _sized(value: bytes | None) -> bytes:
    return _zigzag(-1) if value is None else _zigzag(len(value)) + value


def _stamps(some: Outgoing) -> Numbers:
    """When each record happened, in milliseconds; now, where it does not say."""
    now = int(time.time() * 1000)
    if some.stamps is None:
        return np.full(len(some.values), now)
    return np.where(some.stamps < 0, now, some.stamps)


def _tails(some: Outgoing) -> pa.Array:
    """The headers, which end a record."""
    if some.own is None:
        return pa.repeat(pa.scalar(_headers(some.common), pa.binary()), len(some.values))
    return pa.array([_headers([*own, *some.common]) for own in some.own], pa.binary())


def _headers(headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    parts = [_zigzag(len(headers))]
    for name, value in headers:
        plain = name.encode()
        parts += [_sized(plain), _sized(value)]
    return b"".join(parts)


def _zigzag(value: int) -> bytes:
    return unsigned_varint(2 * value if value >= 0 else -2 * value - 1)


def _packed(records: memoryview) -> tuple[int, bytes]:
    """The codec, and the records as an LZ4 frame; blocks that do not get smaller stay as they
    are. A few records are not worth what unpacking costs the broker and every reader."""
    if len(records) < _WORTH_PACKING:
        return _AS_THEY_ARE, bytes(records)
    parts: list[bytes | memoryview] = [_FRAME]
    for first in range(0, len(records), _BLOCK):
        block = records[first : first + _BLOCK]
        small = _CODEC.compress(block, asbytes=True)
        if len(small) < len(block):
            parts += [struct.pack("<I", len(small)), small]
        else:
            parts += [struct.pack("<I", len(block) | _AS_IT_IS), block]
    return _LZ4, b"".join([*parts, _FRAME_END])
