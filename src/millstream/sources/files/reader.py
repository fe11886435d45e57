"""`Files` opened for one run: lists the files, and finds the rows of a range in them."""

from __future__ import annotations

import os
import re
import stat
import time
from bisect import bisect_right
from glob import glob, has_magic
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.errors import DataGone, NotFound
from millstream.sources.files.seen import Seen, look_at
from millstream.sources.slices import as_scan, as_table
from millstream.sources.spec import Extent, Scan, raw_schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from millstream.sources.files.files import Files
    from millstream.sources.spec import Ranges, SourceOpening

_TEMPORARY = (".tmp", ".temp", ".part", ".partial", ".crdownload", ".swp", ".inprogress", "~")
_SUM = re.compile(r"/part-(?P<first>\d{10})-to-(?P<last>\d{10})-\d+\.\w+\Z")
_PART = re.compile(r"/part-(?P<first>\d{10})-[^/]*\Z")
_MANY_NOTES = 100
_SHARE = 20.0


class FilesReader:
    """One folder or glob; a file is stored in the notes before any of its rows is planned."""

    def __init__(self, files: Files, opening: SourceOpening) -> None:
        self._path = Path(files.path).absolute()
        self._format, self._schema = files.format, files.row_schema()
        self._notes, self._eager = opening.notes, opening.eager
        self._seen: list[Seen] = []
        self._count = 0
        self._committed = 0
        self._rested = 0.0
        self._first = 0
        self._known: set[str] = set()
        refuse_missing(self._path)
        self._load()

    def _load(self) -> None:
        notes = self._notes.all()
        self._count = len(notes)
        self._seen = [Seen.of(body) for note in notes for body in note["files"]]
        self._known = {seen.path for seen in self._seen}

    # -- listing -----------------------------------------------------------------

    def extent(self) -> Extent:
        """From the first row whose file still exists to the last row of the files seen.

        Raises:
            NotFound: the folder does not exist.
            DataGone: a file has changed since it was noted; the message names it.
        """
        if self._eager or time.monotonic() >= self._rested:
            began = time.monotonic()
            self._look()
            self._rested = began + (1 + _SHARE) * (time.monotonic() - began)
        end = self._seen[-1].end if self._seen else 0
        return Extent({0: self._first}, {0: end})

    def _look(self) -> None:
        there = dict(listed(self._path))
        for seen in self._seen:
            now = there.get(seen.path)
            if now is not None and not seen.same(now):
                raise seen.altered(now)
        gone = [seen.end for seen in self._seen if seen.path not in there]
        self._first = max([*(seen.first for seen in self._seen[:1]), *gone], default=0)
        _refuse_rows_twice(there, self._known)
        new = sorted((now.st_mtime_ns, path) for path, now in there.items()
                     if path not in self._known)  # fmt: skip
        if new:
            self._note([path for _, path in new])

    def _note(self, paths: Sequence[str]) -> None:
        """Store the order of new files durably, before their rows become part of the extent."""
        first = self._seen[-1].end if self._seen else 0
        found: list[Seen] = []
        for path in paths:
            seen = look_at(Path(path), self._format, self._schema, first)
            if seen is not None:
                found.append(seen)
                first = seen.end
        if not found:
            return
        if not self._notes.add({"files": [seen.note() for seen in found]}):
            self._load()
            return
        self._count += 1
        self._seen += found
        self._known |= {seen.path for seen in found}

    # -- reading -----------------------------------------------------------------

    def scan(self, ranges: Ranges, slices: int, more: Sequence[str] = ()) -> Scan:
        """The ranges as pieces of files, one to a task."""
        return as_scan(self._slices(ranges), more)

    def table(self, ranges: Ranges, more: Sequence[str] = ()) -> pa.Table:
        """The ranges as pieces of files."""
        return as_table(self._slices(ranges), more)

    def _slices(self, ranges: Ranges) -> list[dict[str, Any]]:
        slices: list[dict[str, Any]] = []
        for a, b in ranges.values():
            for seen in self._seen[self._holding(a) :]:
                if seen.first >= b:
                    break
                if seen.end > a:
                    seen.check()
                    slices += _pieces(seen, max(a, seen.first), min(b, seen.end))
        return slices

    def _holding(self, offset: int) -> int:
        """The index in the list of the file that contains a row."""
        return max(0, bisect_right(self._seen, offset, key=lambda seen: seen.first) - 1)

    def originals(self, places: Mapping[int, Sequence[int]]) -> pa.Table:
        """Single rows as in their files, with the file and the row in the headers."""
        import pyarrow as pa

        from millstream.sources.files.rows import original

        rows = []
        for offset in places.get(0, ()):
            seen = self._seen[self._holding(offset)]
            [part] = _pieces(seen, offset, offset + 1)
            row = offset - seen.first
            headers = [{"key": "millstream.file", "value": seen.path.encode()},
                       {"key": "millstream.row", "value": str(row).encode()}]  # fmt: skip
            rows.append({"value": original(part, self._format), "headers": headers, "partition": 0,
                         "offset": offset, "timestamp": seen.changed // 1000})  # fmt: skip
        return pa.Table.from_pylist(rows, schema=raw_schema())

    def progress(self, offsets: Mapping[int, int]) -> None:
        """From time to time, combine the notes into one, without deleted files that were read."""
        self._committed = offsets.get(0, 0)
        if self._count > _MANY_NOTES:
            kept = [
                seen for seen in self._seen[:-1]
                if seen.end > self._committed or os.path.lexists(seen.path)
            ] + self._seen[-1:]  # fmt: skip
            self._notes.replace({"files": [seen.note() for seen in kept]})
            self._load()

    def close(self) -> None:
        """Nothing to close."""


def refuse_missing(path: Path) -> None:
    """Refuse a folder or file that is not there; of a glob, what stands before its first wildcard.

    Raises:
        NotFound: it does not exist.
    """
    parts = path.parts
    wild = next((n for n, part in enumerate(parts) if has_magic(part)), len(parts))
    fixed = Path(*parts[:wild])
    if os.path.lexists(fixed):
        return
    file = next((str(place) for place in fixed.parents if place.is_file()), None)
    raise NotFound(f"reading files needs {path}",
                   got=f"no folder {fixed}" if file is None else f"the file {file} above it",
                   do="create the folder, or correct the path")  # fmt: skip


def listed(path: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the files to read, by their names: no temporary files, no folders.

    Raises:
        NotFound: the folder does not exist.
    """
    text = str(path)
    refuse_missing(path)
    names = glob(text, recursive=True) if has_magic(text) else _inside(text)  # noqa: PTH207
    for name in names:
        if _is_whole(Path(name).name):
            try:
                now = Path(name).stat()
            except OSError:
                continue
            if not stat.S_ISDIR(now.st_mode):
                yield name, now


def _inside(text: str) -> list[str]:
    """The entries of a folder; of a file, the file itself."""
    try:
        return [entry.path for entry in os.scandir(text)]
    except NotADirectoryError:
        return [text]


def _refuse_rows_twice(there: Iterable[str], known: set[str]) -> None:
    """Stop if a sink has compacted files, and this job would read their rows twice.

    Raises:
        DataGone: the message names the file that has the rows again.
    """
    for path in there:
        found = _SUM.search(path)
        if path in known or found is None:
            continue
        for other in {*there, *known} - {path}:
            part = _PART.search(other)
            beside = Path(other).parent == Path(path).parent
            if part and beside and found["first"] <= part["first"] <= found["last"]:
                raise DataGone(
                    f"each row is read once; {path} needs to have other rows than {other}",
                    got="a folder in which a Millstream job compacts its files",
                    do="read it when that job has stopped, with a fresh --checkpoint, or read "
                    "the input of that job",
                )


def _is_whole(name: str) -> bool:
    """Whether a name is that of a complete file: not hidden, not temporary."""
    return not name.startswith((".", "_")) and not name.lower().endswith(_TEMPORARY)


def _pieces(seen: Seen, a: int, b: int) -> list[dict[str, Any]]:
    """The rows `a` to `b` of the source, which are in this file, as slices between its marks."""
    pieces: list[dict[str, Any]] = []
    starts = [row for row, _ in seen.marks]
    place = bisect_right(starts, a - seen.first) - 1
    for number in range(place, len(seen.marks)):
        row, at = seen.marks[number]
        until, end = seen.marks[number + 1] if number + 1 < len(starts) else (seen.rows, seen.size)
        low, high = max(a - seen.first, row), min(b - seen.first, until)
        if low >= high:
            break
        pieces.append({
            "path": seen.path, "first": seen.first + low, "at": at, "end": end, "skip": low - row,
            "take": high - low, "header": seen.header, "broken": seen.broken,
            "quoted": seen.quoted, "stamp": seen.changed // 1000,
        })  # fmt: skip
    return pieces
