"""Where the records of a batch begin, found for all batches of a fetch together.

Each record is led by its length, so their beginnings are a chain that starts at the batch's
first byte. Every batch is cut into stretches of some records; in each, the first place that
looks like the beginning of a record is its head. All stretches are then walked at once, a
record of each at a time. A head was right if the walk that comes from before it lands on it:
the batch's first is right by itself, so the others are, one after the other. A batch in which
a walk misses the next head, or finds another number of records than its header tells, is
walked through by itself, and has to consist of exactly that many records.
"""

from __future__ import annotations

from array import array

import numpy as np
import numpy.typing as npt

Places = npt.NDArray[np.int64]
_FEW = 512  # records below which they are walked through one by one: calls would cost more
_STRETCH = 48  # records
_LEAST = 6  # bytes of a record behind its length: five numbers, and its attributes
_LONGEST = 10  # bytes of a number
SHORT = 5  # bytes of a number of 32 bits
_SIGNED = {1: np.int8, 2: np.int16, 8: np.int64}  # by bytes
_WINDOW = 4096  # bytes behind the beginning of a stretch in which its head is looked for


class Unfit(Exception):
    """Bytes that are no records: why, and at which byte that was seen, where it is known."""

    def __init__(self, why: str, at: int = 0) -> None:
        super().__init__(why)
        self.why, self.at = why, at


def varints(data: np.ndarray, places: Places, most: int = 0) -> tuple[Places, Places]:
    """The zigzag numbers at these places, and the places behind them.

    A place outside of the data stands for its nearest byte.

    Raises:
        Unfit: with `most`, a number has more bytes, or with five of them more than 32 bits.
    """
    byte = data.take(places, mode="clip")
    at: Places = places + 1
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


def _longer(data: np.ndarray, at: Places, value: np.ndarray, more: Places, most: int) -> None:
    """Take in the third and further bytes of the numbers that have them."""
    for shift in range(14, 7 * (most or _LONGEST), 7):
        byte = data.take(at[more], mode="clip")
        value[more] |= (byte & 127).astype(np.uint64) << np.uint64(shift)
        at[more] += 1
        if shift == 28 and most == SHORT and value[more].max() >> 32:
            raise Unfit("a number of more than 32 bits", int(at[more[0]]) - SHORT)
        more = more[byte >= 128]
        if not more.size:
            return
    if most:
        raise Unfit(f"a number of more than {most} bytes", int(at[more[0]]) - most)


def starts(data: np.ndarray, roots: Places, stops: Places, counts: Places) -> Places:
    """Where the records of all batches begin, in order.

    Raises:
        Unfit: a batch does not consist of exactly that many records.
    """
    if counts.sum() < _FEW:
        return _walked(data, roots, stops, counts)
    heads = _heads(data, roots, stops, counts)
    batch = np.searchsorted(roots, heads, side="right") - 1
    first = np.searchsorted(batch, np.arange(roots.size))
    limits = stops[batch]
    limits[:-1] = np.where(batch[1:] == batch[:-1], heads[1:], limits[:-1])
    places = _steps(data, heads, limits)
    inside = places < limits
    found = inside.sum(axis=0)
    landed = places[np.minimum(found, len(places) - 1), np.arange(heads.size)] == limits
    right = np.logical_and.reduceat(landed, first) & (np.add.reduceat(found, first) == counts)
    if right.all():
        return np.asarray(places.T[inside.T])
    known = places.T[inside.T & right[batch][:, None]]
    walked = _walked(data, roots[~right], stops[~right], counts[~right])
    return np.sort(np.concatenate([known, walked]))


def _steps(data: np.ndarray, heads: Places, limits: Places) -> Places:
    """The places that walks from the heads come by, a row for each step; none ever goes back.

    They end once all have reached their limits, or have gone much farther than they should.
    """
    at, rows = heads, [heads]
    for step in range(1, 4 * _STRETCH):
        size, after = varints(data, at)
        at = np.maximum(after + size, at)
        rows.append(at)
        if step % 4 == 0 and (at >= limits).all():
            break
    return np.stack(rows)


def _heads(data: np.ndarray, roots: Places, stops: Places, counts: Places) -> Places:
    """The beginnings of the batches, and places along them that look like records, ascending."""
    pieces = np.maximum(counts // _STRETCH, 1)
    batch = np.repeat(np.arange(roots.size), pieces)
    number = np.arange(batch.size) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    places = roots[batch] + (stops - roots)[batch] * number // pieces[batch]
    places, batch = places[number > 0], batch[number > 0]
    mean = int((stops - roots).sum() // counts.sum())
    width = min(2 * mean + 32, _WINDOW, data.size)
    places = np.minimum(places, data.size - width)
    windows = np.ndarray((data.size - width + 1,), f"V{width}", buffer=data.data, strides=(1,))
    zeros = np.flatnonzero(windows[places].view(np.uint8) == 0)
    stretch = zeros // width
    heads, fit = _led(data, places[stretch] + zeros % width, stops[batch[stretch]])
    return np.unique(np.concatenate([roots, heads[fit][_firsts(stretch[fit])]]))


def _firsts(group: Places) -> npt.NDArray[np.bool_]:
    """Which are the first of their group, of groups that lie side by side."""
    first = np.ones(group.size, np.bool_)
    first[1:] = group[1:] != group[:-1]
    return first


def _led(data: np.ndarray, zeros: Places, stops: Places) -> tuple[Places, npt.NDArray[np.bool_]]:
    """Where a record would begin if these zeros were its attributes, and whether one may.

    Its length stands before them, and behind it comes another such record or the batch's end.
    """
    at = zeros - 1
    for _ in range(2):
        at = at - (data.take(at - 1, mode="clip") >= 128)
    size, after = varints(data, at)
    behind = after + size
    next_size, attributes = varints(data, behind)
    another = (next_size >= _LEAST) & (data.take(attributes, mode="clip") == 0)
    fit = (after == zeros) & (size >= _LEAST) & (another | (behind == stops))
    return at, fit & (behind <= stops)


def _walked(data: np.ndarray, roots: Places, stops: Places, counts: Places) -> Places:
    """The same one after the other: a few, or bytes that look like beginnings everywhere."""
    found = array("q")
    raw = data.data
    bounds = zip(roots.tolist(), stops.tolist(), counts.tolist(), strict=True)
    for root, stop, count in bounds:
        at = root
        for _ in range(count):
            found.append(at)
            at = behind(raw, at, stop)
        if at != stop:
            raise Unfit(f"{stop - at} bytes behind the last record", root)
    return np.frombuffer(found, np.int64) if found else np.zeros(0, np.int64)


def behind(raw: memoryview, at: int, stop: int) -> int:
    """Where the record that begins there ends.

    Raises:
        Unfit: not before `stop`.
    """
    if at >= stop:
        raise Unfit("fewer records than its header says", at - 1)
    size, inside = varint(raw, at)
    if size & 1:
        raise Unfit(f"a record of {-(size + 1) // 2} bytes", at)
    if inside + (size >> 1) > stop:
        raise Unfit(f"a record of {size >> 1} bytes, which reaches beyond its end", at)
    return inside + (size >> 1)


def varint(data: memoryview | bytes, at: int, most: int = SHORT) -> tuple[int, int]:
    """One number without a sign, and where it ends.

    Raises:
        Unfit: it has more bytes, or with five of them more than 32 bits, or does not end.
    """
    value = 0
    for number, byte in enumerate(data[at : at + most]):
        value |= (byte & 127) << 7 * number
        if byte < 128:
            if most == SHORT and value >> 32:
                raise Unfit("a number of more than 32 bits", at)
            return value, at + number + 1
    raise Unfit(f"a number of more than {most} bytes, or one that does not end", at)
