"""Columns of times to ISO text, digits by table."""

from __future__ import annotations

from datetime import date
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import InvalidInput
from millstream.formats import times

_EPOCH = date(1970, 1, 1).toordinal()
_DAY = 86_400_000_000
_FEW = 4  # so many rows for each different time, and writing each time once is cheaper
_LOOK = 256

Numbers = npt.NDArray[Any]


def format_timestamps(column: pa.Array, *, zone: str) -> pa.Array:
    """`"YYYY-MM-DDTHH:MM:SS.ffffff"` with the zone's text, in quotes, for each timestamp[us]."""
    if len(column.slice(0, _LOOK).unique()) * _FEW <= min(len(column), _LOOK):
        coded = column.dictionary_encode()
        if len(coded.dictionary) * _FEW <= len(column):
            return _format_timestamps(coded.dictionary, zone).take(coded.indices)
    return _format_timestamps(column, zone)


def _format_timestamps(column: pa.Array, zone: str) -> pa.Array:
    micros = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    _check(micros, times.LEAST, times.GREATEST)
    day, rest = np.divmod(micros, _DAY)
    seconds, part = np.divmod(rest, 1_000_000)
    hundreds, last = np.divmod(part.astype(np.uint32), np.uint32(100))
    shown, fours, twos = _tables()
    ending = f'{zone}"'.encode()
    made = np.empty(micros.size, [("open", "S1"), ("day", "V10"), ("t", "S1"), ("time", "u8"),
                                  ("point", "S1"), ("hundreds", "u4"), ("last", "u2"),
                                  ("end", f"S{len(ending)}")])  # fmt: skip
    made["open"], made["t"], made["point"], made["end"] = b'"', b"T", b".", ending
    made["day"] = _day_texts(day).view("V10").ravel()
    made["time"], made["hundreds"], made["last"] = shown[seconds], fours[hundreds], twos[last]
    return _texts(made.view(np.uint8).reshape(micros.size, made.itemsize), column)


@cache
def _tables() -> tuple[Numbers, Numbers, Numbers]:
    """The texts of every second of a day, of four digits and of two, each as one number."""
    digits = np.arange(48, 58, dtype=np.uint8)
    twos = np.stack([np.repeat(digits, 10), np.tile(digits, 10)], axis=1)
    fours = np.concatenate([np.repeat(twos, 100, axis=0), np.tile(twos, (100, 1))], axis=1)
    second = np.arange(86_400)
    shown = np.full((second.size, 8), ord(":"), np.uint8)
    for place, value in ((0, second // 3600), (3, second // 60 % 60), (6, second % 60)):
        shown[:, place : place + 2] = twos[value]
    return shown.view("u8").ravel(), fours.view("u4").ravel(), twos.view("u2").ravel()


def format_dates(column: pa.Array) -> pa.Array:
    """`"YYYY-MM-DD"`, in quotes, for each date32."""
    day = column.cast(pa.int32()).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    _check(day, times.LEAST // _DAY, times.GREATEST // _DAY)
    made = np.full((day.size, 12), ord('"'), np.uint8)
    made[:, 1:11] = _day_texts(day)
    return _texts(made, column)


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
