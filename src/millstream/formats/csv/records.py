"""Records and the header of a CSV file.

A record ends at a line break outside of quoted cells (RFC 4180). A quote begins a quoted cell only
at the start of a cell, and ends it only before a comma or a line break. A record in which quotes
are used differently, or are not closed, is only its first line, so that an extra quote costs one
row and not the rest of the file. The end of a record does not depend on the text after it: a range
that starts and ends at record boundaries has the same records as the whole file.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from millstream.formats.csv.exact import parse_cells
from millstream.formats.decoding import BadRecord

if TYPE_CHECKING:
    from millstream.formats.block import Ints
    from millstream.schema import Schema

_LF, _CR, _COMMA, _QUOTE = 0x0A, 0x0D, 0x2C, 0x22
_QUOTED = rb'"(?:[^"]++|"")*+'
_CELL = rb"(?:" + _QUOTED + rb'"(?=[,\n]|\r\n|\r?\Z)|[^",\n]*+)'
_RECORD = re.compile(_CELL + rb"(?:," + _CELL + rb")*+\r?+(?:\n|\Z)|(?P<line>[^\n]*+(?:\n|\Z))")
_OPEN = re.compile(rb"(?:" + _CELL + rb",)*+" + _QUOTED + rb"\Z")


def record_ends(raw: bytes, *, whole: bool) -> Ints:
    """The positions after the line breaks that end records; `raw` begins with a record.

    Unless `whole`, more bytes follow, and a record that they may continue is left out.
    """
    data = np.frombuffer(raw, np.uint8)
    feeds = np.flatnonzero(data == _LF)
    quotes = np.flatnonzero(data == _QUOTE)
    if not quotes.size:
        return feeds + 1
    if (whole and quotes.size % 2) or not _is_regular(data, quotes):
        return _scan(raw, whole=whole)
    inside = np.searchsorted(quotes, feeds) & 1
    return np.asarray(feeds[inside == 0] + 1)


def _is_regular(data: np.ndarray, quotes: Ints) -> bool:
    """Whether quotes alternately begin and end cells, or are doubled."""
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


def _scan(raw: bytes, *, whole: bool) -> Ints:
    found = []
    for record in _RECORD.finditer(raw):
        if not record[0].endswith(b"\n"):
            break
        if not whole and record["line"] is not None and _OPEN.match(raw, record.start()):
            break
        found.append(record.end())
    return np.array(found, np.int64)


class AmbiguousHeader(ValueError):
    """The first line names only some of the columns, or one twice; the message says which."""


def header_of(line: bytes, schema: Schema) -> tuple[str, ...] | None:
    """The names in a first line that contains every column of the schema, in any order.

    None if it contains none of them: then it is a row, with cells in the schema's order.

    Raises:
        AmbiguousHeader: it could be either.
    """
    try:
        found = [cell.text for cell in parse_cells(line)]
    except BadRecord:
        return None
    known = [name for name in found if name in schema.names]
    if not known:
        return None
    twice = sorted({name for name in known if known.count(name) > 1})
    missing = [name for name in schema.names if name not in known]
    if twice:
        raise AmbiguousHeader(f"the first line names {', '.join(twice)} twice")
    if missing:
        raise AmbiguousHeader(
            f"the first line names {', '.join(known)} and not {', '.join(missing)}: a header needs "
            "all columns of the schema, a row none of their names"
        )
    return tuple(found)
