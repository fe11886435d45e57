"""The headers of the record batches of a fetch, and which of them hold records to be seen.

Of each batch the checksum (CRC-32C) is compared and the header held against what lies around it,
before anything in it is used. Offset, size and format of a batch stand before what its checksum
covers: they have to fit the batches beside it.
"""

from __future__ import annotations

import struct
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import google_crc32c
import numpy as np

from millstream.kafka.protocol.record_starts import Unfit, behind, varint

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_HEADER = struct.Struct(">qiibIhiqqqhii")
_BEFORE_SUM = 21  # bytes of a batch in front of those that its checksum covers
_BEFORE_SIZE = 12  # bytes that its size does not count
_MAGIC, _OLD = 2, (0, 1)
CODEC, APPENDED, TRANSACTIONAL, CONTROL = 7, 8, 16, 32
_ABORT = 0
_LEAST = 7  # bytes of a record

Aborted = list[tuple[int, int]]


class UnknownFormat(Exception):
    """A batch of another time than ours, which another client has to read."""


class BadBatch(Exception):
    """A batch that is damaged: its offsets from `first` up to `after`, and why.

    What it says of its last offset may be damaged as well: `after` is a guess.
    """

    def __init__(self, first: int, after: int, why: str) -> None:
        super().__init__(why)
        self.first, self.after, self.why = first, max(after, first + 1), why


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

    def bad(self, why: str) -> BadBatch:
        """This batch is damaged."""
        return BadBatch(self.base, self.last + 1, why)

    @contextmanager
    def read(self) -> Iterator[None]:
        """Its records are read: where they do not fit, it is damaged."""
        try:
            yield
        except Unfit as unfit:
            raise self.bad(unfit.why) from None


def batches(fetched: memoryview, *, end: int | None = None) -> list[Batch]:
    """The whole batches of a fetch, up to offset `end`; one that was cut off is left out.

    They end before one that is damaged, unless it is the first.

    Raises:
        BadBatch: the first one is damaged.
        UnknownFormat: the first one is not of the format that has been written since 2017.
    """
    data = np.frombuffer(fetched, np.uint8)
    found: list[Batch] = []
    place = 0
    try:
        while place + _HEADER.size <= len(fetched) and (end is None or _before(found, end)):
            batch = _read(fetched, data, place, found[-1].last if found else -1)
            if batch is None:
                break
            found.append(batch)
            place = batch.stop
    except (BadBatch, UnknownFormat):
        if not found:
            raise
    return found


def _before(found: list[Batch], end: int) -> bool:
    return not found or found[-1].last + 1 < end


def _read(fetched: memoryview, data: np.ndarray, place: int, before: int) -> Batch | None:
    """The batch that begins there, behind the offset `before`; None if the fetch ends in it."""
    (base, size, _, magic, checksum, attributes, last, first_stamp, last_stamp, producer, _, _,
     count) = _HEADER.unpack_from(fetched, place)  # fmt: skip
    if magic in _OLD:
        raise UnknownFormat(f"record format {magic}")
    stop = place + _BEFORE_SIZE + size
    batch = Batch(base, attributes, base + last, first_stamp, last_stamp, producer, count,
                  place + _HEADER.size, stop)  # fmt: skip
    if magic != _MAGIC:
        raise batch.bad(f"a record format {magic}, which Kafka does not have")
    if stop < batch.start:
        raise batch.bad(f"a batch of {size} bytes")
    if stop > len(fetched):
        return None
    if google_crc32c.value(data[place + _BEFORE_SUM : stop]) != checksum:
        raise batch.bad("bytes that do not have the batch's checksum")
    _check(batch, before)
    return batch


def _check(batch: Batch, before: int) -> None:
    """A header that has the right checksum may still not fit itself, or not fit here."""
    if batch.last < batch.base or batch.last >= 1 << 63:
        raise batch.bad(f"a batch that ends {batch.last - batch.base} offsets behind its first")
    if batch.base <= before:
        raise batch.bad(f"a batch that begins at offset {batch.base}, behind offset {before}")
    if not 0 <= batch.count <= batch.last - batch.base + 1:
        raise batch.bad(f"{batch.count} records for {batch.last - batch.base + 1} offsets")
    packed, size = bool(batch.attributes & CODEC), batch.stop - batch.start
    if (not batch.count and size) or (not packed and batch.count * _LEAST > size):
        raise batch.bad(f"{batch.count} records in {size} bytes")


def committed(found: Iterable[Batch], fetched: memoryview, aborted: Aborted) -> Iterator[Batch]:
    """The batches with records to be seen: no marks, nothing of transactions that were aborted."""
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
    """A mark's key is a version and a kind, two bytes each; the kind 0 ends in nothing."""
    if not batch.count:
        return False
    with batch.read():
        if batch.attributes & CODEC:
            raise Unfit("a mark that is packed")
        stop = behind(fetched, batch.start, batch.stop)
        _, at = varint(fetched, batch.start)
        _, at = varint(fetched, at + 1, 10)
        _, at = varint(fetched, at)
        size, at = varint(fetched, at)
        if size & 1 or size < 8 or at + (size >> 1) > stop:
            raise Unfit("a mark that does not say of what")
    return int.from_bytes(fetched[at + 2 : at + 4]) == _ABORT
