"""Columns of times to ISO text, digits by table."""

from __future__ import annotations

from datetime import date

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import InvalidInput
from millstream.formats.json import times

_PAIRS = np.array([[48 + number // 10, 48 + number % 10] for number in range(100)], np.uint8)
_EPOCH = date(1970, 1, 1).toordinal()
_DAY = 86_400_000_000
_FORM = np.frombuffer(b"YYYY-MM-DDTHH:MM:SS.ffffff", np.uint8)


def instants(column: pa.Array, *, zone: str) -> pa.Array:
    """`YYYY-MM-DDTHH:MM:SS.ffffff` and the zone's text for each timestamp[us]."""
    micros = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    _check(micros, times.LEAST, times.GREATEST)
    day, rest = np.divmod(micros, _DAY)
    form = np.concatenate([_FORM, np.frombuffer(zone.encode(), np.uint8)])
    made = np.tile(form, (micros.size, 1))
    made[:, :10] = _day_texts(day)
    seconds, part = np.divmod(rest, 1_000_000)
    minutes, second = np.divmod(seconds, 60)
    hour, minute = np.divmod(minutes, 60)
    thousand, last = np.divmod(part, 100)
    first, middle = np.divmod(thousand, 100)
    for place, value in ((11, hour), (14, minute), (17, second),
                         (20, first), (22, middle), (24, last)):  # fmt: skip
        made[:, place : place + 2] = _PAIRS[value]
    return _texts(made, column)


def dates(column: pa.Array) -> pa.Array:
    """`YYYY-MM-DD` for each date32."""
    day = column.cast(pa.int32()).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    _check(day, times.LEAST // _DAY, times.GREATEST // _DAY)
    return _texts(_day_texts(day), column)


def _day_texts(day: np.ndarray) -> np.ndarray:
    """The ten characters of each day; each different day is written once."""
    if day.size and (day == day[0]).all():
        which, place = day[:1], np.zeros(day.size, np.int64)
    else:
        which, place = np.unique(day, return_inverse=True)
    texts = b"".join(date.fromordinal(int(one) + _EPOCH).isoformat().encode() for one in which)
    return np.frombuffer(texts, np.uint8).reshape(-1, 10)[place]


def _check(values: np.ndarray, least: int, greatest: int) -> None:
    if values.size and not (values.min() >= least and values.max() <= greatest):
        raise InvalidInput(
            "JSON needs times in the years 1 to 9999",
            got="a column with a time outside of them",
            do="filter such rows or write the column as a number",
        )


def _texts(made: np.ndarray, column: pa.Array) -> pa.Array:
    rows, width = made.shape
    bounds = np.arange(rows + 1, dtype=np.int32) * width
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(np.ascontiguousarray(made))]
    texts = pa.Array.from_buffers(pa.string(), rows, buffers)
    if column.null_count:
        texts = pc.if_else(column.is_valid(), texts, pa.scalar(None, pa.string()))
    return texts
