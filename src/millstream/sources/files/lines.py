"""Files of lines: counts and locates their rows, and reads the rows of a piece.

A line is a row and ends with `\\n`, `\\r\\n` or the end of the file. In CSV a row may contain line
breaks inside quotes (`quoted`). A byte order mark at the start of a file is skipped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.formats.block import slice_binary
from millstream.formats.csv.records import record_ends

if TYPE_CHECKING:
    from pathlib import Path

CHUNK = 1 << 22
LONGEST = 1 << 24
"""The longest row with an open quote; a longer one is only its first line."""
_MARK = b"\xef\xbb\xbf"
_LF, _CR = 0x0A, 0x0D


@dataclass(frozen=True, slots=True)
class Lines:
    """The number of lines, and marks: line numbers with the bytes at which those lines begin."""

    rows: int
    marks: tuple[tuple[int, int], ...]


def first_line(path: Path, *, quoted: bool = False) -> tuple[bytes, int, int]:
    """The first row without its line break, its start (after a byte order mark), the next start."""
    with path.open("rb") as file:
        line = file.readline()
        begin = len(_MARK) if line.startswith(_MARK) else 0
        if quoted:
            file.seek(begin)
            found = record_ends(file.read(CHUNK), whole=not file.read(1))
            file.seek(0)
            line = file.read(begin + int(found[0])) if found.size else line
    text = line[begin:]
    if text.endswith(b"\n"):
        text = text[:-1].removesuffix(b"\r")
    return text, begin, len(line)


def count(path: Path, begin: int) -> Lines:
    """Count the lines from a byte on, in one pass with bounded memory."""
    rows, at, ended = 0, begin, True
    marks = [(0, begin)]
    with path.open("rb") as file:
        file.seek(begin)
        while chunk := file.read(CHUNK):
            data = np.frombuffer(chunk, np.uint8)
            feeds = np.flatnonzero(data == _LF)
            if feeds.size:
                rows += int(feeds.size)
                marks.append((rows, at + int(feeds[-1]) + 1))
            ended = bool(data[-1] == _LF)
            at += data.size
    if not ended:
        rows += 1
    return Lines(rows, tuple(mark for mark in marks if mark[0] < rows or mark[0] == 0))


def count_quoted(path: Path, begin: int) -> Lines:
    """As `count`, for rows that may contain line breaks inside quotes."""
    rows, at, rest = 0, begin, b""
    marks = [(0, begin)]
    with path.open("rb") as file:
        file.seek(begin)
        while chunk := file.read(max(CHUNK, len(rest))):
            rest += chunk
            found = record_ends(rest, whole=False)
            if not found.size and len(rest) > LONGEST:
                found = np.array([rest.find(b"\n") + 1])
            if found.size and (size := int(found[-1])):
                rows, at, rest = rows + found.size, at + size, rest[size:]
                marks.append((rows, at))
    found = record_ends(rest, whole=True)
    rows += int(found.size) + (rest[-1:] not in (b"", b"\n"))
    return Lines(rows, tuple(mark for mark in marks if mark[0] < rows or mark[0] == 0))


def read(
    path: Path, begin: int, end: int, *, with_ends: bool = False, quoted: bool = False
) -> pa.Array:
    """The rows between two bytes at which rows begin (or the file ends), without line breaks.

    `with_ends` keeps the line breaks and saves a copy, for formats that ignore them.
    """
    with path.open("rb") as file:
        file.seek(begin)
        raw = file.read(end - begin)
    data = np.frombuffer(raw, np.uint8)
    after = record_ends(raw, whole=True) if quoted else np.flatnonzero(data == _LF) + 1
    ended = not data.size or data[-1] == _LF
    bounds = np.concatenate([np.zeros(1, np.int64), after, *([] if ended else [[data.size]])])
    large = data.size >= 2**31 - 1
    kind = pa.large_binary() if large else pa.binary()
    if with_ends:
        offsets = bounds.astype(np.int64 if large else np.int32)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(raw)]
        return pa.Array.from_buffers(kind, bounds.size - 1, buffers)
    starts, ends = bounds[:-1], bounds[1:]
    ends = ends - (data[ends - 1] == _LF)
    filled = ends > starts
    ends = ends - (filled & (data[np.maximum(ends - 1, 0)] == _CR))
    return slice_binary(pa.py_buffer(raw), starts, ends, kind)
