"""The headers of fetched record batches, and which of them hold committed records.

Before a batch is used, its checksum (CRC-32C) is verified and its header is checked against its
neighbours: the checksum does not cover offset, size and format.
"""

from __future__ import annotations

import struct
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import google_crc32c
import numpy as np

from millstream.kafka.protocol.record_starts import Malformed, record_end, unsigned_varint

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_HEADER = struct.Struct(">qiibIhiqqqhii")
_BEFORE_SUM = 21  # bytes of a batch that its checksum does not cover
_BEFORE_SIZE = 12  # bytes that its size does not include
_MAGIC, _OLD = 2, (0, 1)
CODEC_MASK, LOG_APPEND_TIME, TRANSACTIONAL, CONTROL = 7, 8, 16, 32
_ABORT = 0
MIN_RECORD = 7  # bytes

Aborted = list[tuple[int, int]]
"""Aborted transactions: producer id and first offset."""


class UnknownFormat(Exception):
    """A batch in a record format before version 2, which librdkafka has to read."""


class BadBatch(Exception):
    """A damaged batch: its offsets from `first` up to `after`, and why.

    `after` is a guess: it comes from the header, which may be damaged too.
    """

    def __init__(self, first: int, after: int, why: str) -> None:
        super().__init__(why)
        self.first, self.after, self.why = first, max(after, first + 1), why


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch's header, and the position of its records in the fetched bytes."""

    base: int
    attributes: int
    last: int
    first_timestamp: int
    max_timestamp: int
    producer: int
    count: int
    start: int
    stop: int

    def damaged(self, why: str) -> BadBatch:
        return BadBatch(self.base, self.last + 1, why)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Turns `Malformed` records into a `BadBatch`."""
        try:
            yield
        except Malformed as malformed:
            raise self.damaged(malformed.why) from None


def batches(fetched: memoryview, *, end: int | None = None) -> list[Batch]:
    """The complete batches of a fetch, up to offset `end` or the first damaged one.

    Raises:
        BadBatch: the first batch is damaged.
        UnknownFormat: the first batch is older than format version 2 (2017).
    """
    data = np.frombuffer(fetched, np.uint8)
    found: list[Batch] = []
    at = 0
    try:
        while at + _HEADER.size <= len(fetched) and (end is None or _before(found, end)):
            batch = _read(fetched, data, at, found[-1].last if found else -1)
            if batch is None:
                break
            found.append(batch)
            at = batch.stop
    except (BadBatch, UnknownFormat):
        if not found:
            raise
    return found


def _before(found: list[Batch], end: int) -> bool:
    return not found or found[-1].last + 1 < end


def _read(fetched: memoryview, data: np.ndarray, at: int, previous: int) -> Batch | None:
    """The batch at this position, after offset `previous`; None if the fetch ends inside it."""
    (base, size, _, magic, checksum, attributes, last, first_timestamp, max_timestamp, producer,
     _, _, count) = _HEADER.unpack_from(fetched, at)  # fmt: skip
    if magic in _OLD:
        raise UnknownFormat(f"record format {magic}")
    stop = at + _BEFORE_SIZE + size
    batch = Batch(base, attributes, base + last, first_timestamp, max_timestamp, producer, count,
                  at + _HEADER.size, stop)  # fmt: skip
    if magic != _MAGIC:
        raise batch.damaged(f"an unknown record format {magic}")
    if stop < batch.start:
        raise batch.damaged(f"a batch of {size} bytes")
    if stop > len(fetched):
        return None
    if google_crc32c.value(data[at + _BEFORE_SUM : stop]) != checksum:
        raise batch.damaged("bytes that do not match the batch's checksum")
    _check(batch, previous)
    return batch


def _check(batch: Batch, previous: int) -> None:
    """Check a header against itself and the previous batch."""
    if batch.last < batch.base or batch.last >= 1 << 63:
        raise batch.damaged(f"a batch that ends {batch.last - batch.base} offsets after its first")
    if batch.base <= previous:
        raise batch.damaged(f"a batch that begins at offset {batch.base}, after offset {previous}")
    if not 0 <= batch.count <= batch.last - batch.base + 1:
        raise batch.damaged(f"{batch.count} records for {batch.last - batch.base + 1} offsets")
    compressed, size = bool(batch.attributes & CODEC_MASK), batch.stop - batch.start
    if (not batch.count and size) or (not compressed and batch.count * MIN_RECORD > size):
        raise batch.damaged(f"{batch.count} records in {size} bytes")


def committed_batches(
    found: Iterable[Batch], fetched: memoryview, aborted: Aborted
) -> Iterator[Batch]:
    """The batches without control batches, empty ones and those of aborted transactions."""
    waiting = sorted(aborted, key=lambda entry: entry[1], reverse=True)
    gone: set[int] = set()
    for batch in found:
        while waiting and waiting[-1][1] <= batch.last:
            gone.add(waiting.pop()[0])
        if batch.attributes & CONTROL:
            if _is_abort(batch, fetched):
                gone.discard(batch.producer)
        elif batch.count and not (batch.attributes & TRANSACTIONAL and batch.producer in gone):
            yield batch


def _is_abort(batch: Batch, fetched: memoryview) -> bool:
    """A marker's key is a version and a type, two bytes each; type 0 is an abort."""
    if not batch.count:
        return False
    with batch.reading():
        if batch.attributes & CODEC_MASK:
            raise Malformed("a compressed transaction marker")
        stop = record_end(fetched, batch.start, batch.stop)
        _, at = unsigned_varint(fetched, batch.start)
        _, at = unsigned_varint(fetched, at + 1, 10)
        _, at = unsigned_varint(fetched, at)
        size, at = unsigned_varint(fetched, at)
        if size & 1 or size < 8 or at + (size >> 1) > stop:
            raise Malformed("a transaction marker without a type")
    return int.from_bytes(fetched[at + 2 : at + 4]) == _ABORT
