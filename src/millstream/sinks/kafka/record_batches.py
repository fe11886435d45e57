"""Encodes messages as Kafka record batches, all records of a chunk at once."""

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

LARGEST = 900_000  # uncompressed bytes of records; the default limit of a broker is a million
_FEW = 32  # up to this many messages are encoded one by one
OVERHEAD = 32  # maximum bytes of a record apart from key, value and headers
_UNCOMPRESSED, _LZ4, _TRANSACTIONAL = 0, 3, 16
_MIN_COMPRESSED = 1_000  # bytes from which compression pays off
_NO_LEADER, _MAGIC = -1, 2
_PREFIX, _HEADER = struct.Struct(">qiibI"), struct.Struct(">hiqqqhii")
# An LZ4 frame of independent blocks of up to 4 MB without checksums; it ends with a zero.
_FRAME, _FRAME_END = b"\x04\x22\x4d\x18\x60\x70\x73", bytes(4)
_BLOCK, _RAW_BLOCK = 4 << 20, 1 << 31
_CODEC = pa.Codec("lz4_raw")
_EMPTY, _NO_ATTRIBUTES = pa.scalar(b"", pa.binary()), pa.scalar(b"\0", pa.binary())

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Batch:
    """Compressed records of one partition, without the producer's identity."""

    partition: int
    count: int
    first_stamp: int
    last_stamp: int
    codec: int
    packed: bytes

    def encode(self, who: Identity, sequence: int) -> bytes:
        """The complete record batch; `sequence` is the producer's number of its first record."""
        attributes = self.codec | (0 if who.transactional_id is None else _TRANSACTIONAL)
        head = _HEADER.pack(attributes, self.count - 1, self.first_stamp, self.last_stamp,
                            who.producer_id, who.epoch, sequence, self.count)  # fmt: skip
        body = head + self.packed
        size = _PREFIX.size - 12 + len(body)
        return _PREFIX.pack(0, size, _NO_LEADER, _MAGIC, google_crc32c.value(body)) + body


def batches(chunk: Outgoing, partitions: Numbers, limit: int | None = None) -> Iterator[Batch]:
    """Encode messages as batches per partition, in order; `limit` is the largest batch that the
    topic takes, if known."""
    largest = (
        LARGEST if limit is None else max(1, min(LARGEST, limit - _PREFIX.size - _HEADER.size))
    )
    size = chunk.values.nbytes + (0 if chunk.keys is None else chunk.keys.nbytes)
    size += OVERHEAD * len(partitions)
    if len(partitions) <= _FEW and size < largest // 2 and chunk.own is None:
        return _few(chunk, partitions.tolist())
    return _many(chunk, partitions, largest)


def _many(chunk: Outgoing, partitions: Numbers, largest: int) -> Iterator[Batch]:
    """Encode all records at once."""
    order = np.argsort(partitions, kind="stable")
    sorted_already = bool((order[1:] > order[:-1]).all())
    ordered = chunk if sorted_already else chunk.take(order)
    partitions, tails = partitions[order], _tails(ordered)
    sizes = [_sizes(ordered.keys), _sizes(ordered.values), byte_lengths(tails)]
    bounds = _bounds(partitions, sum(sizes, np.zeros(len(order), np.int64)) + OVERHEAD, largest)
    firsts = np.repeat(bounds[:-1], np.diff(bounds))
    stamps = _stamps(ordered)
    deltas, positions = stamps - stamps[firsts], np.arange(len(order)) - firsts
    records = _records(ordered, tails, sizes, deltas, positions)
    edges = np.frombuffer(records.buffers()[1], np.int32)[: len(order) + 1]
    data = memoryview(records.buffers()[2])
    for first, end in pairwise(bounds.tolist()):
        packed = _compress(data[edges[first] : edges[end]])
        span = int(stamps[first]), int(stamps[first:end].max())
        yield Batch(int(partitions[first]), end - first, *span, *packed)


def _sizes(column: pa.Array | None) -> Numbers:
    """The sizes of keys or values; 0 for null."""
    return np.zeros(1, np.int64) if column is None else byte_lengths(column.fill_null(b""))


def _bounds(partitions: Numbers, sizes: Numbers, largest: int = LARGEST) -> Numbers:
    """The bounds of batches: each within one partition, and none too large."""
    changes = np.flatnonzero(np.diff(partitions)) + 1
    edges = [0, *changes.tolist(), len(partitions)]
    ends, found = np.cumsum(sizes), [0]
    for first, end in pairwise(edges):
        while found[-1] < end:
            start = int(ends[found[-1] - 1]) if found[-1] else 0
            last = int(np.searchsorted(ends[first:end], start + largest, side="right")) + first
            found.append(max(found[-1] + 1, last))
    return np.array(found)


def _records(
    chunk: Outgoing, tails: pa.Array, sizes: Sequence[Numbers], deltas: Numbers, positions: Numbers
) -> pa.Array:
    """Length, attributes, time, offset, key, value and headers of every record."""
    count = len(positions)
    keys, key_sizes = _with_sizes(chunk.keys, sizes[0], count)
    values, value_sizes = _with_sizes(chunk.values, sizes[1], count)
    fields = [encode_zigzags(deltas), encode_zigzags(positions), key_sizes, value_sizes]
    whole = sum((byte_lengths(field) for field in fields), sum(sizes, np.ones(count, np.int64)))
    return join_columns([
        encode_zigzags(whole), _NO_ATTRIBUTES, fields[0], fields[1],
        key_sizes, keys, value_sizes, values, tails,
    ])  # fmt: skip


def _with_sizes(
    column: pa.Array | None, sizes: Numbers, count: int
) -> tuple[pa.Array | pa.Scalar, pa.Array]:
    """Keys or values, and their encoded sizes; -1 for null."""
    if column is None:
        return _EMPTY, encode_zigzags(np.full(count, -1))
    if column.null_count:
        sizes = np.where(column.is_valid().to_numpy(zero_copy_only=False), sizes, -1)
        column = column.fill_null(b"")
    return column, encode_zigzags(sizes)


def _few(chunk: Outgoing, partitions: list[int]) -> Iterator[Batch]:
    """Encode records one by one, which is faster for a few."""
    groups: dict[int, list[int]] = {}
    for index, partition in enumerate(partitions):
        groups.setdefault(partition, []).append(index)
    values, stamps = chunk.values.to_pylist(), _stamps(chunk).tolist()
    keys = [None] * len(values) if chunk.keys is None else chunk.keys.to_pylist()
    tails = _tails(chunk).to_pylist()
    for partition, group in sorted(groups.items()):
        first, records = stamps[group[0]], []
        for number, index in enumerate(group):
            times = _zigzag(stamps[index] - first) + _zigzag(number)
            record = (b"\0" + times + _with_size(keys[index]) + _with_size(values[index])
                      + tails[index])  # fmt: skip
            records.append(_zigzag(len(record)) + record)
        last = max(stamps[index] for index in group)
        yield Batch(partition, len(group), first, last, *_compress(memoryview(b"".join(records))))


def _with_size(value: bytes | None) -> bytes:
    return _zigzag(-1) if value is None else _zigzag(len(value)) + value


def _stamps(chunk: Outgoing) -> Numbers:
    """The timestamp of each record in milliseconds; the current time if it has none."""
    now = int(time.time() * 1000)
    if chunk.stamps is None:
        return np.full(len(chunk.values), now)
    return np.where(chunk.stamps < 0, now, chunk.stamps)


def _tails(chunk: Outgoing) -> pa.Array:
    """The encoded headers, which end a record."""
    if chunk.own is None:
        return pa.repeat(pa.scalar(_headers(chunk.common), pa.binary()), len(chunk.values))
    return pa.array([_headers([*own, *chunk.common]) for own in chunk.own], pa.binary())


def _headers(headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    parts = [_zigzag(len(headers))]
    for name, value in headers:
        plain = name.encode()
        parts += [_with_size(plain), _with_size(value)]
    return b"".join(parts)


def _zigzag(value: int) -> bytes:
    return unsigned_varint(2 * value if value >= 0 else -2 * value - 1)


def _compress(records: memoryview) -> tuple[int, bytes]:
    """The codec, and the records as an LZ4 frame. Incompressible blocks are stored raw. Few
    records stay uncompressed, because decompression would cost broker and readers more."""
    if len(records) < _MIN_COMPRESSED:
        return _UNCOMPRESSED, bytes(records)
    parts: list[bytes | memoryview] = [_FRAME]
    for first in range(0, len(records), _BLOCK):
        block = records[first : first + _BLOCK]
        small = _CODEC.compress(block, asbytes=True)
        if len(small) < len(block):
            parts += [struct.pack("<I", len(small)), small]
        else:
            parts += [struct.pack("<I", len(block) | _RAW_BLOCK), block]
    return _LZ4, b"".join([*parts, _FRAME_END])
