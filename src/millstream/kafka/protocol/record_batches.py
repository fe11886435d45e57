"""Parses Kafka's record batches into Arrow arrays, all records of a fetch at once.

A batch is a header (`batch_headers`) and records, each led by its length (`record_starts`). A few
are parsed one by one (`single_records`). Compressed batches are decompressed into a reused buffer
(`decompression`); results are copied out of it, in pieces of bounded size.

A record must end where its length says and contain all its parts; the records of a batch must fill
it, with ascending offsets within those of the batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.kafka.protocol.batch_headers import (
    CODEC_MASK,
    LOG_APPEND_TIME,
    MIN_RECORD,
    Batch,
    committed_batches,
)
from millstream.kafka.protocol.decompression import (
    MAX_RECORD,
    PIECE,
    Buffer,
    decompressor,
    reused_buffer,
)
from millstream.kafka.protocol.record_starts import (
    INT32_BYTES,
    INT64_BYTES,
    Malformed,
    Positions,
    record_end,
    record_starts,
    unsigned_varint,
    zigzag_varints,
)
from millstream.kafka.protocol.single_records import (
    NOT_FILLED,
    Headers,
    headers_at,
    headers_end,
    record_at,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from millstream.kafka.protocol.batch_headers import Aborted

_INLINE = 12
_FEW = 32  # records below which a loop is faster than numpy
_MIN_HEADER = 2  # bytes
_CHUNK = 1 << 16  # short values that are copied at once


@dataclass(frozen=True, slots=True)
class Records:
    """Records of one partition; `next` is the offset to continue from.

    `keys` and `headers` are None unless requested.
    """

    offsets: np.ndarray
    timestamps: np.ndarray
    values: pa.Array
    keys: pa.Array | None
    next: int
    headers: list[Headers] | None = None


@dataclass(frozen=True, slots=True)
class _Segment:
    """Consecutive records of a batch in a buffer: all of them, or some."""

    batch: Batch
    start: int
    stop: int
    count: int


def pieces(
    fetched: memoryview, whole: Sequence[Batch], aborted: Aborted, first: int, end: int,
    *, keys: bool = False, headers: bool = False, only: Collection[int] | None = None,
) -> Iterator[Records]:  # fmt: skip
    """The committed records of a fetch with offsets from `first` up to `end`, piece by piece.

    `only` limits them to these offsets.

    Raises:
        BadBatch: a batch is damaged; records before it may not have been yielded.
    """
    chosen = [batch for batch in committed_batches(whole, fetched, aborted)
              if batch.last >= first and batch.base < end]  # fmt: skip
    previous: tuple[Batch | None, int] = None, -1
    for data, segments in _segments(fetched, chosen):
        few = sum(segment.count for segment in segments) <= _FEW
        reached = previous[1] if segments[0].batch is previous[0] else -1
        found, reached = (_parse_in_loop if few else _parse_segments)(
            data, segments, reached, first, end, keys=keys, headers=headers, only=only
        )
        previous = segments[-1].batch, reached
        yield found
        if found.next >= end:
            return


def _segments(
    fetched: memoryview, chosen: Sequence[Batch]
) -> Iterator[tuple[np.ndarray, list[_Segment]]]:
    """Buffers and the records in them: as fetched, or decompressed one after the other."""
    if any(batch.attributes & CODEC_MASK for batch in chosen):
        with reused_buffer() as buffer:
            yield from _decompressed(fetched, chosen, buffer)
    elif chosen:
        yield (
            np.frombuffer(fetched, np.uint8),
            [_Segment(batch, batch.start, batch.stop, batch.count) for batch in chosen],
        )


def _decompressed(
    fetched: memoryview, chosen: Sequence[Batch], buffer: Buffer
) -> Iterator[tuple[np.ndarray, list[_Segment]]]:
    segments: list[_Segment] = []
    for batch in chosen:
        start, left, limit = buffer.used, batch.count, buffer.used + PIECE
        with batch.reading():
            codec = batch.attributes & CODEC_MASK
            compressed = decompressor(fetched[batch.start : batch.stop], codec)
            while not compressed.read_into(buffer, limit):
                count, stop, limit = _complete_records(buffer, start, left)
                if count:
                    segments.append(_Segment(batch, start, stop, count))
                if segments:
                    yield buffer.data[: buffer.used], segments
                buffer.keep(stop)
                segments, start, left = [], 0, left - count
            rest = buffer.used - start
            if left * MIN_RECORD > rest or (rest and not left):
                raise Malformed(f"{rest} bytes for {left} more records")
        if left:
            segments.append(_Segment(batch, start, buffer.used, left))
        if segments and buffer.used >= PIECE:
            yield buffer.data[: buffer.used], segments
            buffer.keep(buffer.used)
            segments = []
    if segments:
        yield buffer.data[: buffer.used], segments


def _complete_records(buffer: Buffer, start: int, left: int) -> tuple[int, int, int]:
    """The number and end of a batch's complete records in a full buffer, and the size at which the
    buffer is full next time, when the rest has moved to its front."""
    raw, at, count = buffer.data.data, start, 0
    while buffer.used - at >= INT64_BYTES:
        if count == left:
            raise Malformed("more records than in the batch's header")
        size, inside = unsigned_varint(raw, at)
        missing = inside + (size >> 1) - buffer.used
        if missing > 0 and size >> 1 > MAX_RECORD:
            raise Malformed(
                f"a record of {size >> 1} bytes, where at most {MAX_RECORD} are allowed"
            )
        if missing > 0:
            held = buffer.used - at
            return count, at, max(PIECE, held + min(missing, held))
        at, count = record_end(raw, at, buffer.used), count + 1
    return count, at, PIECE


def _batch_at(segments: Sequence[_Segment], at: int) -> Batch:
    """The batch that this position belongs to."""
    return next((segment.batch for segment in segments if at < segment.stop), segments[-1].batch)


def _parse_segments(
    data: np.ndarray, segments: Sequence[_Segment], reached: int, first: int, end: int, *,
    keys: bool, headers: bool, only: Collection[int] | None,
) -> tuple[Records, int]:  # fmt: skip
    try:
        return _parse_vectorised(
            data, segments, reached, first, end, keys=keys, headers=headers, only=only
        )
    except Malformed as malformed:
        raise _batch_at(segments, malformed.at).damaged(malformed.why) from None


def _parse_vectorised(
    data: np.ndarray, segments: Sequence[_Segment], reached: int, first: int, end: int, *,
    keys: bool, headers: bool, only: Collection[int] | None,
) -> tuple[Records, int]:  # fmt: skip
    counts = np.array([segment.count for segment in segments], np.int64)
    positions = record_starts(data, np.array([segment.start for segment in segments], np.int64),
                    np.array([segment.stop for segment in segments], np.int64), counts)  # fmt: skip
    size, at = zigzag_varints(data, positions, INT32_BYTES)
    ends = at + size
    timestamp, at = zigzag_varints(data, at + 1, INT64_BYTES)
    delta, at = zigzag_varints(data, at, INT32_BYTES)
    key_size, key_at = zigzag_varints(data, at, INT32_BYTES)
    value_size, value_at = zigzag_varints(data, key_at + np.maximum(key_size, 0), INT32_BYTES)
    _check_parts(data, positions, key_size, value_size, value_at, ends)
    offsets = np.repeat(np.array([s.batch.base for s in segments], np.int64), counts) + delta
    _check_order(segments, counts, offsets, delta, reached, positions)
    timestamps = _timestamps(segments, counts, timestamp)
    reached, last = int(delta[-1]), int(offsets[-1])
    if only is not None or offsets[0] < first or last >= end:
        wanted = (offsets >= first) & (offsets < end)
        if only is not None:
            wanted &= np.fromiter((offset in only for offset in offsets.tolist()), bool)
        offsets, timestamps = offsets[wanted], timestamps[wanted]
        value_at, value_size = value_at[wanted], value_size[wanted]
        key_at, key_size = key_at[wanted], key_size[wanted]
    value_ends = (value_at + np.maximum(value_size, 0)).tolist() if headers else []
    return Records(
        offsets, timestamps, _binary(data, value_at, value_size),
        _binary(data, key_at, key_size) if keys else None, last + 1,
        [headers_at(data.data, at) for at in value_ends] if headers else None,
    ), reached  # fmt: skip


def _check_parts(
    data: np.ndarray, positions: Positions, key_size: Positions, value_size: Positions,
    value_at: Positions, ends: Positions,
) -> None:  # fmt: skip
    """Check the sizes of keys and values, and that headers fill the rest of each record.

    Each part begins after the previous one, so all are inside the record if the last one is.
    """
    smallest = min(int(key_size.min()), int(value_size.min()))
    if smallest < -1:
        worst = positions[np.argmin(np.minimum(key_size, value_size))]
        raise Malformed(f"a key or value of {smallest} bytes", int(worst))
    at = value_at + np.maximum(value_size, 0)
    plain = (at + 1 == ends) & (data.take(at, mode="clip") == 0)
    if not plain.all():
        odd = np.flatnonzero(~plain)
        _check_headers(data, positions[odd], at[odd], ends[odd])


def _check_headers(data: np.ndarray, positions: Positions, at: Positions, ends: Positions) -> None:
    """The headers of each record end exactly where the record does."""
    left, at = zigzag_varints(data, np.minimum(at, ends), INT32_BYTES)
    wrong = (left < 0) | (at + _MIN_HEADER * left > ends)
    while left.size > max(_FEW, 0) and not wrong.any():
        over = left == 0
        if over.any():
            wrong, on = over & (at != ends), ~over
            if not wrong.any():
                left, at, ends = left[on], at[on], ends[on]
                positions, wrong = positions[on], wrong[on]
            continue
        size, at = zigzag_varints(data, at, INT32_BYTES)
        value, after = zigzag_varints(data, at + np.maximum(size, 0), INT32_BYTES)
        at, left = after + np.maximum(value, 0), left - 1
        wrong = (size < 0) | (value < -1) | (at > ends)
    if wrong.any():
        raise Malformed(NOT_FILLED, int(positions[np.argmax(wrong)]))
    _check_few_headers(data.data, positions, left, at, ends)


def _check_few_headers(
    raw: memoryview, positions: Positions, left: Positions, at: Positions, ends: Positions
) -> None:
    """The same in a loop: faster for few records with many headers."""
    records = zip(positions.tolist(), left.tolist(), at.tolist(), ends.tolist(), strict=True)
    for position, count, here, end in records:
        if headers_end(raw[:end], here, count) != end:
            raise Malformed(NOT_FILLED, position)


def _check_order(
    segments: Sequence[_Segment], counts: Positions, offsets: Positions, delta: Positions,
    reached: int, positions: Positions,
) -> None:  # fmt: skip
    """Offsets ascend, from `reached` on in the first batch, and are within those of their batch."""
    edges = np.cumsum(counts)
    low = np.array([reached, *([-1] * (len(segments) - 1))], np.int64)
    high = np.array([segment.batch.last - segment.batch.base for segment in segments], np.int64)
    outside = (delta[edges - counts] <= low) | (delta[edges - 1] > high)
    if outside.any():
        position = positions[edges[np.argmax(outside)] - 1]
        raise Malformed("offsets that are not those of the batch", int(position))
    ascend = offsets[1:] > offsets[:-1]
    if not ascend.all():
        raise Malformed("offsets that do not ascend", int(positions[np.argmin(ascend) + 1]))


def _parse_in_loop(
    data: np.ndarray, segments: Sequence[_Segment], reached: int, first: int, end: int, *,
    keys: bool, headers: bool, only: Collection[int] | None,
) -> tuple[Records, int]:  # fmt: skip
    """The same in a loop: faster for few records."""
    raw, offsets, timestamps = data.data, [], []
    values: list[bytes | None] = []
    key_values: list[bytes | None] = []
    pairs: list[Headers] = []
    for number, segment in enumerate(segments):
        batch, at = segment.batch, segment.start
        appended = batch.attributes & LOG_APPEND_TIME
        reached = reached if number == 0 else -1
        with batch.reading():
            for _ in range(segment.count):
                stop = record_end(raw, at, segment.stop)
                timestamp, delta, key, value, value_end = record_at(raw[:stop], at)
                if not reached < delta <= batch.last - batch.base:
                    raise Malformed("offsets that do not ascend within those of the batch")
                at, reached, offset = stop, delta, batch.base + delta
                if first <= offset < end and (only is None or offset in only):
                    offsets.append(offset)
                    timestamps.append(
                        batch.max_timestamp if appended else batch.first_timestamp + timestamp
                    )
                    values.append(value)
                    key_values.append(key)
                    if headers:
                        pairs.append(headers_at(raw, value_end))
            if at != segment.stop:
                raise Malformed(f"{segment.stop - at} bytes after the last record")
    return Records(
        np.array(offsets, np.int64), np.array(list(map(_wrapped, timestamps)), np.int64),
        pa.array(values, pa.binary()), pa.array(key_values, pa.binary()) if keys else None,
        segments[-1].batch.base + reached + 1, pairs if headers else None,
    ), reached  # fmt: skip


def _wrapped(timestamp: int) -> int:
    """Overflow as 64-bit arithmetic does, like other clients and the vectorised parser."""
    return (timestamp + (1 << 63)) % (1 << 64) - (1 << 63)


def _timestamps(segments: Sequence[_Segment], counts: Positions, deltas: Positions) -> np.ndarray:
    """Milliseconds: of each record, or of its batch with LogAppendTime."""
    appended = np.array([bool(s.batch.attributes & LOG_APPEND_TIME) for s in segments], bool)
    first = np.array([s.batch.first_timestamp for s in segments], np.int64)
    last = np.array([s.batch.max_timestamp for s in segments], np.int64)
    timestamps = np.repeat(np.where(appended, last, first), counts)
    deltas = np.where(np.repeat(appended, counts), 0, deltas) if appended.any() else deltas
    found: np.ndarray = timestamps + deltas
    return found


def _binary(data: np.ndarray, positions: Positions, sizes: Positions) -> pa.Array:
    """Slices of these bytes as Arrow; a size of -1 is null."""
    count, least = len(positions), int(sizes.min()) if len(sizes) else 0
    known = None if least >= 0 else sizes >= 0
    size = sizes if known is None else np.where(known, sizes, 0)
    views = np.zeros((count, 4), np.int32)
    views[:, 0] = size
    views[:, 3] = positions
    every = np.flatnonzero(size <= _INLINE) if least <= _INLINE else size[:0]
    for begin in range(0, len(every), _CHUNK):
        short = every[begin : begin + _CHUNK]
        inside = np.arange(_INLINE) < size[short, None]
        taken = data[np.minimum(positions[short, None] + np.arange(_INLINE), len(data) - 1)]
        views.view(np.uint8).reshape(count, 16)[short, 4:] = np.where(inside, taken, 0)
    validity = None if known is None else pa.py_buffer(np.packbits(known, bitorder="little"))
    held = [validity, pa.py_buffer(views), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary_view(), count, held).cast(pa.binary())
