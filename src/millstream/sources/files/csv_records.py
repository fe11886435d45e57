"""Where the records of a CSV file end: at line breaks outside of quoted cells (RFC 4180).

A quote begins a quoted cell only at the beginning of a cell and ends it only before a comma or
a line break. A record in which quotes stand otherwise, or do not end, is its first line alone,
so that a quote too many costs one row and not the rest of the file. A record is the same
whatever follows it: a piece that begins and ends at records is cut as within its file.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from millstream.formats.block import Ints

_LF, _CR, _COMMA, _QUOTE = 0x0A, 0x0D, 0x2C, 0x22
_QUOTED = rb'"(?:[^"]++|"")*+'
_CELL = rb"(?:" + _QUOTED + rb'"(?=[,\n]|\r\n|\r?\Z)|[^",\n]*+)'
_RECORD = re.compile(_CELL + rb"(?:," + _CELL + rb")*+\r?+(?:\n|\Z)|(?P<line>[^\n]*+(?:\n|\Z))")
_OPEN = re.compile(rb"(?:" + _CELL + rb",)*+" + _QUOTED + rb"\Z")


def ends(raw: bytes, *, whole: bool) -> Ints:
    """The places after the line breaks that end records; `raw` begins with a record.

    Unless it is `whole` more bytes follow, and a record that they might continue has no end.
    """
    data = np.frombuffer(raw, np.uint8)
    feeds = np.flatnonzero(data == _LF)
    quotes = np.flatnonzero(data == _QUOTE)
    if not quotes.size:
        return feeds + 1
    if (whole and quotes.size % 2) or not _sound(data, quotes):
        return _one_by_one(raw, whole=whole)
    inside = np.searchsorted(quotes, feeds) & 1
    return np.asarray(feeds[inside == 0] + 1)


def _sound(data: np.ndarray, quotes: Ints) -> bool:
    """Whether every quote begins or ends a cell, or is doubled, if they do so in turn."""
    opening, closing = quotes[0::2], quotes[1::2]
    before = data[np.maximum(opening - 1, 0)]
    begins = (before == _COMMA) | (before == _LF) | (before == _QUOTE) | (opening == 0)
    if not begins.all():
        return False
    last = data.size - 1
    after, second = data[np.minimum(closing + 1, last)], data[np.minimum(closing + 2, last)]
    stops = (after == _COMMA) | (after == _LF) | (after == _QUOTE) | (closing == last)
    stops |= (after == _CR) & ((second == _LF) | (closing + 1 == last))
    return bool(stops.all())


def _one_by_one(raw: bytes, *, whole: bool) -> Ints:
    found = []
    for record in _RECORD.finditer(raw):
        if not record[0].endswith(b"\n"):
            break
        if not whole and record["line"] is not None and _OPEN.match(raw, record.start()):
            break
        found.append(record.end())
    return np.array(found, np.int64)
