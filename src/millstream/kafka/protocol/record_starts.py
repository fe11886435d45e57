"""Finds where the records of all batches of a fetch begin, vectorised.

Each record starts with its length, so the starts form a chain from the batch's first byte. A batch
is cut into stretches of some records; the first position of a stretch that looks like a record is
its head. All stretches are then followed at once, one record of each at a time. A head is right if
the chain of the previous stretch ends on it; the head of the first stretch is right by itself. A
batch whose chains miss a head, or do not give the number of records in its header, is read record
by record and must consist of exactly that number.
"""

from __future__ import annotations

from array import array

import numpy as np
import numpy.typing as npt

Positions = npt.NDArray[np.int64]
_FEW = 512  # records below which a loop is faster than numpy
_STRETCH = 48  # records
_MIN_SIZE = 6  # bytes of a record after its length: attributes and five varints
INT32_BYTES, INT64_BYTES = 5, 10  # of varints
_SIGNED = {1: np.int8, 2: np.int16, 8: np.int64}  # by bytes
_WINDOW = 4096  # bytes from the start of a stretch that are searched for its head


class Malformed(Exception):
    """Bytes that are not records: why, and at which position, if known."""

    def __init__(self, why: str, at: int = 0) -> None:
        super().__init__(why)
        self.why, self.at = why, at


def zigzag_varints(
    data: np.ndarray, positions: Positions, most: int = 0
) -> tuple[Positions, Positions]:
    """Decode the zigzag varints at these positions; returns them and the positions after them.

    A position outside the data means its nearest byte.

    Raises:
        Malformed: with `most`, a varint has more bytes, or with five bytes more than 32 bits.
    """
    byte = data.take(positions, mode="clip")
    at: Positions = positions + 1
    value: np.ndarray = byte
    if byte.size and byte.max() >= 128:
        long = byte >> 7
        second = data.take(at, mode="clip") * long
        at += long
        value = (byte & 127) + (second.astype(np.uint16) << 7)
        more = np.flatnonzero(second >= 128)
        if more.size:
            value = value.astype(np.uint64) & np.uint64(0x3FFF)
            _longer(data, at, value, more, most)
    sign = -(value & 1).view(_SIGNED[value.dtype.itemsize])
    return ((value >> 1).view(sign.dtype) ^ sign).astype(np.int64, copy=False), at


def _longer(data: np.ndarray, at: Positions, value: np.ndarray, more: Positions, most: int) -> None:
    """Add the third and later bytes of the varints that have them."""
    for shift in range(14, 7 * (most or INT64_BYTES), 7):
        byte = data.take(at[more], mode="clip")
        value[more] |= (byte & 127).astype(np.uint64) << np.uint64(shift)
        at[more] += 1
        if shift == 28 and most == INT32_BYTES and value[more].max() >> 32:
            raise Malformed("a varint of more than 32 bits", int(at[more[0]]) - INT32_BYTES)
        more = more[byte >= 128]
        if not more.size:
            return
    if most:
        raise Malformed(f"a varint of more than {most} bytes", int(at[more[0]]) - most)


def record_starts(
    data: np.ndarray, roots: Positions, stops: Positions, counts: Positions
) -> Positions:
    """The positions of all records of batches from `roots` to `stops`, in order.

    Raises:
        Malformed: a batch does not consist of exactly as many records as `counts` says.
    """
    if counts.sum() < _FEW:
        return _walked(data, roots, stops, counts)
    heads = _heads(data, roots, stops, counts)
    batch = np.searchsorted(roots, heads, side="right") - 1
    first = np.searchsorted(batch, np.arange(roots.size))
    limits = stops[batch]
    limits[:-1] = np.where(batch[1:] == batch[:-1], heads[1:], limits[:-1])
    steps = _steps(data, heads, limits)
    inside = steps < limits
    found = inside.sum(axis=0)
    landed = steps[np.minimum(found, len(steps) - 1), np.arange(heads.size)] == limits
    right = np.logical_and.reduceat(landed, first) & (np.add.reduceat(found, first) == counts)
    if right.all():
        return np.asarray(steps.T[inside.T])
    known = steps.T[inside.T & right[batch][:, None]]
    walked = _walked(data, roots[~right], stops[~right], counts[~right])
    return np.sort(np.concatenate([known, walked]))


def _steps(data: np.ndarray, heads: Positions, limits: Positions) -> Positions:
    """The positions on the chains from the heads, a row for each step; none ever decreases.

    It ends when all chains have reached their limits, or after many more steps than expected.
    """
    at, rows = heads, [heads]
    for step in range(1, 4 * _STRETCH):
        size, after = zigzag_varints(data, at)
        at = np.maximum(after + size, at)
        rows.append(at)
        if step % 4 == 0 and (at >= limits).all():
            break
    return np.stack(rows)


def _heads(data: np.ndarray, roots: Positions, stops: Positions, counts: Positions) -> Positions:
    """The starts of the batches, and positions in them that look like records, ascending."""
    pieces = np.maximum(counts // _STRETCH, 1)
    batch = np.repeat(np.arange(roots.size), pieces)
    number = np.arange(batch.size) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    positions = roots[batch] + (stops - roots)[batch] * number // pieces[batch]
    positions, batch = positions[number > 0], batch[number > 0]
    mean = int((stops - roots).sum() // counts.sum())
    width = min(2 * mean + 32, _WINDOW, data.size)
    positions = np.minimum(positions, data.size - width)
    windows = np.ndarray((data.size - width + 1,), f"V{width}", buffer=data.data, strides=(1,))
    zeros = np.flatnonzero(windows[positions].view(np.uint8) == 0)
    stretch = zeros // width
    heads, fit = _candidates(data, positions[stretch] + zeros % width, stops[batch[stretch]])
    return np.unique(np.concatenate([roots, heads[fit][_firsts(stretch[fit])]]))


def _firsts(group: Positions) -> npt.NDArray[np.bool_]:
    """Which items are the first of their group; groups are adjacent."""
    first = np.ones(group.size, np.bool_)
    first[1:] = group[1:] != group[:-1]
    return first


def _candidates(
    data: np.ndarray, zeros: Positions, stops: Positions
) -> tuple[Positions, npt.NDArray[np.bool_]]:
    """Where a record would begin if these zeros were its attributes, and whether one may.

    Its length comes before them, and after it another such record or the end of the batch.
    """
    at = zeros - 1
    for _ in range(2):
        at = at - (data.take(at - 1, mode="clip") >= 128)
    size, after = zigzag_varints(data, at)
    end = after + size
    next_size, attributes = zigzag_varints(data, end)
    another = (next_size >= _MIN_SIZE) & (data.take(attributes, mode="clip") == 0)
    fit = (after == zeros) & (size >= _MIN_SIZE) & (another | (end == stops))
    return at, fit & (end <= stops)


def _walked(data: np.ndarray, roots: Positions, stops: Positions, counts: Positions) -> Positions:
    """The same in a loop: for few records, or bytes that look like records everywhere."""
    found = array("q")
    raw = data.data
    bounds = zip(roots.tolist(), stops.tolist(), counts.tolist(), strict=True)
    for root, stop, count in bounds:
        at = root
        for _ in range(count):
            found.append(at)
            at = record_end(raw, at, stop)
        if at != stop:
            raise Malformed(f"{stop - at} bytes after the last record", root)
    return np.frombuffer(found, np.int64) if found else np.zeros(0, np.int64)


def record_end(raw: memoryview, at: int, stop: int) -> int:
    """The end of the record at this position.

    Raises:
        Malformed: it does not end before `stop`.
    """
    if at >= stop:
        raise Malformed("fewer records than in the batch's header", at - 1)
    size, inside = unsigned_varint(raw, at)
    if size & 1:
        raise Malformed(f"a record of {-(size + 1) // 2} bytes", at)
    if inside + (size >> 1) > stop:
        raise Malformed(f"a record of {size >> 1} bytes, which ends after the batch", at)
    return inside + (size >> 1)


def unsigned_varint(data: memoryview | bytes, at: int, most: int = INT32_BYTES) -> tuple[int, int]:
    """Decode one varint without its zigzag; returns it and its end.

    Raises:
        Malformed: it has more than `most` bytes, more than 32 bits in five bytes, or no end.
    """
    value = 0
    for number, byte in enumerate(data[at : at + most]):
        value |= (byte & 127) << 7 * number
        if byte < 128:
            if most == INT32_BYTES and value >> 32:
                raise Malformed("a varint of more than 32 bits", at)
            return value, at + number + 1
    raise Malformed(f"a varint of more than {most} bytes, or one that does not end", at)
