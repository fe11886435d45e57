"""Kafka's record batches to Arrow: all records of a fetch at once, none by itself.

A batch is a header (see `batch_headers`) and records that follow each other, each led by its
length (see `record_starts`). Packed batches are unpacked one behind the other into memory that
the next fetch uses again (see `unpacking`); what leaves is copied out of it. However much a fetch
unpacks to, it is handed on in pieces of bounded size.

A record has to end where its length says, with all its parts inside of it; the records of a batch
have to fill it, in ascending order of offsets that lie within those of the batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.kafka.protocol.batch_headers import APPENDED, CODEC, Batch, committed
from millstream.kafka.protocol.record_starts import (
    SHORT,
    Places,
    Unfit,
    behind,
    starts,
    varint,
    varints,
)
from millstream.kafka.protocol.unpacking import LARGEST, PIECE, Room, room, unpacking

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from millstream.kafka.protocol.batch_headers import Aborted

_INLINE = 12
_FEW = 32  # records that are read one after the other
_LONG = 10  # bytes of a number of 64 bits
_LEAST_HEADER = 2  # bytes
_TOGETHER = 1 << 16  # short values that are copied at once


Headers = list[tuple[bytes, bytes | None]]


@dataclass(frozen=True, slots=True)
class Records:
    """Records of one partition; `next` is the offset to go on from.

    `keys` and `headers` are read where they are asked for.
    """

    offsets: np.ndarray
    stamps: np.ndarray
    values: pa.Array
    keys: pa.Array | None
    next: int
    headers: list[Headers] | None = None


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Records of a batch that lie in the bytes at hand: all of them, or some in a row."""

    batch: Batch
    start: int
    stop: int
    count: int


def pieces(
    fetched: memoryview, whole: Sequence[Batch], aborted: Aborted, first: int, end: int,
    *, keys: bool = False, headers: bool = False, only: Collection[int] | None = None,
) -> Iterator[Records]:  # fmt: skip
    """The committed records of a fetch with offsets from `first` up to `end`, piece by piece.

    With `only` these offsets alone.

    Raises:
        BadBatch: a batch does not fit itself; what came before it may not have been given.
    """
    chosen = [batch for batch in committed(whole, fetched, aborted)
              if batch.last >= first and batch.base < end]  # fmt: skip
    before: tuple[Batch | None, int] = None, -1
    for data, some in _laid_out(fetched, chosen):
        few = sum(stretch.count for stretch in some) <= _FEW
        reached = before[1] if some[0].batch is before[0] else -1
        found, reached = (_read_through if few else _parsed)(
            data, some, reached, first, end, keys=keys, headers=headers, only=only
        )
        before = some[-1].batch, reached
        yield found
        if found.next >= end:
            return


def _laid_out(
    fetched: memoryview, chosen: Sequence[Batch]
) -> Iterator[tuple[np.ndarray, list[_Stretch]]]:
    """Bytes, and the records in them: as fetched, or unpacked one behind the other."""
    if any(batch.attributes & CODEC for batch in chosen):
        with room() as unpacked:
            yield from _unpacked(fetched, chosen, unpacked)
    elif chosen:
        yield (
            np.frombuffer(fetched, np.uint8),
            [_Stretch(batch, batch.start, batch.stop, batch.count) for batch in chosen],
        )


def _unpacked(
    fetched: memoryview, chosen: Sequence[Batch], room: Room
) -> Iterator[tuple[np.ndarray, list[_Stretch]]]:
    some: list[_Stretch] = []
    for batch in chosen:
        start, left, limit = room.used, batch.count, room.used + PIECE
        with batch.read():
            packed = unpacking(fetched[batch.start : batch.stop], batch.attributes & CODEC)
            while not packed.into(room, limit):
                count, stop, limit = _whole(room, start, left)
                if count:
                    some.append(_Stretch(batch, start, stop, count))
                if some:
                    yield room.data[: room.used], some
                room.keep(stop)
                some, start, left = [], 0, left - count
            if bool(left) != (start < room.used):
                raise Unfit(f"{room.used - start} bytes for {left} more records")
        if left:
            some.append(_Stretch(batch, start, room.used, left))
        if some and room.used >= PIECE:
            yield room.data[: room.used], some
            room.keep(room.used)
            some = []
    if some:
        yield room.data[: room.used], some


def _whole(room: Room, start: int, left: int) -> tuple[int, int, int]:
    """How many of a batch's records are whole in a room that has run full, where they end, and
    with how many bytes it is full next time, when what is left has moved to its front."""
    raw, at, count = room.data.data, start, 0
    while room.used - at >= _LONG:
        if count == left:
            raise Unfit("more records than its header says")
        size, inside = varint(raw, at)
        missing = inside + (size >> 1) - room.used
        if missing > 0 and size >> 1 > LARGEST:
            raise Unfit(f"a record of {size >> 1} bytes, where {LARGEST} are the most")
        if missing > 0:
            held = room.used - at
            return count, at, max(PIECE, held + min(missing, held))
        at, count = behind(raw, at, room.used), count + 1
    return count, at, PIECE


def _batch_at(some: Sequence[_Stretch], at: int) -> Batch:
    """Whose bytes these are."""
    return next((stretch.batch for stretch in some if at < stretch.stop), some[-1].batch)


def _parsed(
    data: np.ndarray, some: Sequence[_Stretch], reached: int, first: int, end: int, *, keys: bool,
    headers: bool, only: Collection[int] | None,
) -> tuple[Records, int]:  # fmt: skip
    try:
        return _at_once(data, some, reached, first, end, keys=keys, headers=headers, only=only)
    except Unfit as unfit:
        raise _batch_at(some, unfit.at).bad(unfit.why) from None


def _at_once(
    data: np.ndarray, some: Sequence[_Stretch], reached: int, first: int, end: int, *, keys: bool,
    headers: bool, only: Collection[int] | None,
) -> tuple[Records, int]:  # fmt: skip
    counts = np.array([stretch.count for stretch in some], np.int64)
    places = starts(data, np.array([stretch.start for stretch in some], np.int64),
                    np.array([stretch.stop for stretch in some], np.int64), counts)  # fmt: skip
    size, at = varints(data, places, SHORT)
    ends = at + size
    stamp, at = varints(data, at + 1, _LONG)
    delta, at = varints(data, at, SHORT)
    key_size, key_at = varints(data, at, SHORT)
    value_size, value_at = varints(data, key_at + np.maximum(key_size, 0), SHORT)
    _check_parts(data, places, key_size, value_size, value_at, ends)
    offsets = np.repeat(np.array([s.batch.base for s in some], np.int64), counts) + delta
    _check_order(some, counts, offsets, delta, reached, places)
    stamps = _stamps(some, counts, stamp)
    reached, last = int(delta[-1]), int(offsets[-1])
    if only is not None or offsets[0] < first or last >= end:
        wanted = (offsets >= first) & (offsets < end)
        if only is not None:
            wanted &= np.fromiter((offset in only for offset in offsets.tolist()), bool)
        offsets, stamps = offsets[wanted], stamps[wanted]
        value_at, value_size = value_at[wanted], value_size[wanted]
        key_at, key_size = key_at[wanted], key_size[wanted]
    behind_values = (value_at + np.maximum(value_size, 0)).tolist() if headers else []
    return Records(
        offsets, stamps, _binary(data, value_at, value_size),
        _binary(data, key_at, key_size) if keys else None, last + 1,
        [_headers(data.data, at) for at in behind_values] if headers else None,
    ), reached  # fmt: skip


def _check_parts(
    data: np.ndarray, places: Places, key_size: Places, value_size: Places, value_at: Places,
    ends: Places,
) -> None:  # fmt: skip
    """Key and value have sizes, and behind them is nothing but headers up to the record's end.

    Each part begins behind the one before it, so that all are inside where the last one is.
    """
    smallest = min(int(key_size.min()), int(value_size.min()))
    if smallest < -1:
        worst = places[np.argmin(np.minimum(key_size, value_size))]
        raise Unfit(f"a key or value of {smallest} bytes", int(worst))
    at = value_at + np.maximum(value_size, 0)
    plain = (at + 1 == ends) & (data.take(at, mode="clip") == 0)
    if not plain.all():
        odd = np.flatnonzero(~plain)
        _check_headers(data, places[odd], at[odd], ends[odd])


def _check_headers(data: np.ndarray, places: Places, at: Places, ends: Places) -> None:
    """All headers of each record lie inside of it, and nothing else follows."""
    left, at = varints(data, np.minimum(at, ends), SHORT)
    wrong = (left < 0) | (at + _LEAST_HEADER * left > ends)
    while left.size > max(_FEW, 0) and not wrong.any():
        over = left == 0
        if over.any():
            wrong, on = over & (at != ends), ~over
            if not wrong.any():
                places, left, at, ends, wrong = places[on], left[on], at[on], ends[on], wrong[on]
            continue
        size, at = varints(data, at, SHORT)
        value, after = varints(data, at + np.maximum(size, 0), SHORT)
        at, left = after + np.maximum(value, 0), left - 1
        wrong = (size < 0) | (value < -1) | (at > ends)
    if wrong.any():
        raise Unfit(_NOT_FILLED, int(places[np.argmax(wrong)]))
    _check_few_headers(data.data, places, left, at, ends)


_NOT_FILLED = "a record whose key, value and headers do not fill it"


def _check_few_headers(
    raw: memoryview, places: Places, left: Places, at: Places, ends: Places
) -> None:
    """The same one after the other: for a few records with many, calls would cost more."""
    records = zip(places.tolist(), left.tolist(), at.tolist(), ends.tolist(), strict=True)
    for place, count, here, end in records:
        if _behind_headers(raw[:end], here, count) != end:
            raise Unfit(_NOT_FILLED, place)


def _behind_headers(raw: memoryview, at: int, count: int) -> int:
    for _ in range(count):
        size, at = varint(raw, at)
        at = _within(raw, at, size, least=0)
        size, at = varint(raw, at)
        at = _within(raw, at, size, least=-1)
    return at


def _within(raw: memoryview, at: int, told: int, *, least: int) -> int:
    """Behind a part of that size, which has to be inside of what is there."""
    size = _signed(told)
    if size < least or at + size > len(raw):
        raise Unfit(f"a key, value or header of {size} bytes", at - 1)
    return at + max(size, 0)


def _check_order(
    some: Sequence[_Stretch], counts: Places, offsets: Places, delta: Places, reached: int,
    places: Places,
) -> None:  # fmt: skip
    """Offsets ascend, and each batch keeps to its own; the first goes on behind `reached`."""
    edges = np.cumsum(counts)
    low = np.array([reached, *([-1] * (len(some) - 1))], np.int64)
    high = np.array([stretch.batch.last - stretch.batch.base for stretch in some], np.int64)
    outside = (delta[edges - counts] <= low) | (delta[edges - 1] > high)
    if outside.any():
        place = places[edges[np.argmax(outside)] - 1]
        raise Unfit("offsets that are not those of the batch", int(place))
    ascend = offsets[1:] > offsets[:-1]
    if not ascend.all():
        raise Unfit("offsets that do not ascend", int(places[np.argmin(ascend) + 1]))


def _read_through(
    data: np.ndarray, some: Sequence[_Stretch], reached: int, first: int, end: int, *, keys: bool,
    headers: bool, only: Collection[int] | None,
) -> tuple[Records, int]:  # fmt: skip
    """The same one after the other: for a few, calls would cost more."""
    raw, offsets, stamps = data.data, [], []
    values: list[bytes | None] = []
    names: list[bytes | None] = []
    pairs: list[Headers] = []
    for number, stretch in enumerate(some):
        batch, at = stretch.batch, stretch.start
        appended = batch.attributes & APPENDED
        reached = reached if number == 0 else -1
        with batch.read():
            for _ in range(stretch.count):
                stop = behind(raw, at, stretch.stop)
                stamp, delta, key, value, behind_value = _record(raw[:stop], at)
                if not reached < delta <= batch.last - batch.base:
                    raise Unfit("offsets that do not ascend within those of the batch")
                at, reached, offset = stop, delta, batch.base + delta
                if first <= offset < end and (only is None or offset in only):
                    offsets.append(offset)
                    stamps.append(batch.last_stamp if appended else batch.first_stamp + stamp)
                    values.append(value)
                    names.append(key)
                    if headers:
                        pairs.append(_headers(raw, behind_value))
            if at != stretch.stop:
                raise Unfit(f"{stretch.stop - at} bytes behind the last record")
    return Records(
        np.array(offsets, np.int64), np.array(list(map(_wrapped, stamps)), np.int64),
        pa.array(values, pa.binary()), pa.array(names, pa.binary()) if keys else None,
        some[-1].batch.base + reached + 1, pairs if headers else None,
    ), reached  # fmt: skip


def _record(raw: memoryview, at: int) -> tuple[int, int, bytes | None, bytes | None, int]:
    """Stamp, offset, key and value of the record that ends with these bytes, and where its
    headers begin."""
    _, at = varint(raw, at)
    stamp, at = varint(raw, at + 1, _LONG)
    delta, at = varint(raw, at)
    key, at = _slice(raw, at)
    value, at = _slice(raw, at)
    behind_value = at
    headers, at = varint(raw, at)
    if headers & 1 or headers > len(raw) - at:
        raise Unfit(_NOT_FILLED)
    if _behind_headers(raw, at, headers >> 1) != len(raw):
        raise Unfit(_NOT_FILLED)
    return _signed(stamp & (1 << 64) - 1), _signed(delta), key, value, behind_value


def _headers(raw: memoryview, at: int) -> Headers:
    """The headers that begin there, of a record that has been checked."""
    count, at = varint(raw, at)
    found: Headers = []
    for _ in range(count >> 1):
        name, at = _slice(raw, at)
        value, at = _slice(raw, at)
        found.append((name or b"", value))
    return found


def _slice(raw: memoryview, at: int) -> tuple[bytes | None, int]:
    """Bytes led by their size, -1 for none, and where they end."""
    told, at = varint(raw, at)
    stop = _within(raw, at, told, least=-1)
    return (None if told & 1 else bytes(raw[at:stop])), stop


def _signed(value: int) -> int:
    return (value >> 1) ^ -(value & 1)


def _wrapped(stamp: int) -> int:
    """As 64 bits hold it: what overflows goes on at the other end, here as everywhere."""
    return (stamp + (1 << 63)) % (1 << 64) - (1 << 63)


def _stamps(some: Sequence[_Stretch], counts: Places, deltas: Places) -> np.ndarray:
    """Milliseconds: of each record, or of its batch where the broker wrote the time."""
    appended = np.array([bool(s.batch.attributes & APPENDED) for s in some], bool)
    first = np.array([s.batch.first_stamp for s in some], np.int64)
    last = np.array([s.batch.last_stamp for s in some], np.int64)
    stamps = np.repeat(np.where(appended, last, first), counts)
    deltas = np.where(np.repeat(appended, counts), 0, deltas) if appended.any() else deltas
    found: np.ndarray = stamps + deltas
    return found


def _binary(data: np.ndarray, places: Places, sizes: Places) -> pa.Array:
    """Slices of these bytes as Arrow; a size of -1 is null."""
    count, least = len(places), int(sizes.min()) if len(sizes) else 0
    known = None if least >= 0 else sizes >= 0
    size = sizes if known is None else np.where(known, sizes, 0)
    views = np.zeros((count, 4), np.int32)
    views[:, 0] = size
    views[:, 3] = places
    every = np.flatnonzero(size <= _INLINE) if least <= _INLINE else size[:0]
    for begin in range(0, len(every), _TOGETHER):
        short = every[begin : begin + _TOGETHER]
        inside = np.arange(_INLINE) < size[short, None]
        taken = data[np.minimum(places[short, None] + np.arange(_INLINE), len(data) - 1)]
        views.view(np.uint8).reshape(count, 16)[short, 4:] = np.where(inside, taken, 0)
    validity = None if known is None else pa.py_buffer(np.packbits(known, bitorder="little"))
    held = [validity, pa.py_buffer(views), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary_view(), count, held).cast(pa.binary())
