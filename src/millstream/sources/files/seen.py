"""The files that a job has seen, each with its position in the order of rows.

The list is stored in the checkpoint as notes. Rows are numbered across all files: a file's rows
begin where those of the previous file end. A noted file must not change.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from millstream.errors import DataGone
from millstream.formats.csv.records import AmbiguousHeader, header_of
from millstream.sources.files import lines
from millstream.sources.files.parquet import Unreadable
from millstream.sources.files.parquet import count as count_parquet

if TYPE_CHECKING:
    import os

    from millstream.schema import Schema

_HEAD = 1 << 16
_PACKED = (".gz", ".bz2", ".zst", ".xz", ".lz4", ".snappy", ".zip")


@dataclass(frozen=True, slots=True)
class Seen:
    """One file: its facts when it was noted, and where its rows are.

    `first` is the number of its first row. `marks` are pairs of a row (counted from the file's
    first) and the byte at which it begins, or the row group that it begins. `quoted`: line
    breaks inside quotes do not end a row (older versions counted lines). A file that cannot be
    read has a single row, and `broken` is the reason.
    """

    path: str
    size: int
    changed: int
    inode: int
    head: str
    first: int
    rows: int
    marks: tuple[tuple[int, int], ...]
    header: tuple[str, ...] | None = None
    broken: str | None = None
    quoted: bool = False

    @property
    def end(self) -> int:
        """The number of its last row, plus one."""
        return self.first + self.rows

    def note(self) -> dict[str, Any]:
        """The note in the checkpoint."""
        return asdict(self)

    @classmethod
    def of(cls, body: dict[str, Any]) -> Self:
        """From a note, in which pairs are lists."""
        marks = tuple((row, at) for row, at in body["marks"])
        header = None if body["header"] is None else tuple(body["header"])
        return cls(**{**body, "marks": marks, "header": header})

    def check(self) -> None:
        """Stop if the file was deleted or has changed since it was noted.

        Raises:
            DataGone: the message names the file.
        """
        try:
            now = Path(self.path).stat()
        except OSError as error:
            raise DataGone(
                f"the job needs {self.path}, which it has not read to its end",
                got=error.strerror or str(error),
                do="restore it, or start with a fresh --checkpoint",
            ) from None
        if not self.same(now):
            raise self.altered(now)

    def same(self, now: os.stat_result) -> bool:
        """Whether the file with that name is still the one that was noted."""
        if (now.st_size, now.st_mtime_ns) != (self.size, self.changed):
            return False
        return now.st_ino == self.inode or head_of(Path(self.path)) == self.head

    def altered(self, now: os.stat_result) -> DataGone:
        """The error for a file that has changed."""
        return DataGone(
            f"{self.path} needs to stay as it was when the job first saw it ({self.size} bytes)",
            got=f"a file of {now.st_size} bytes, written since",
            do="write new rows to a new file, under a name that begins with a dot until it is "
            "complete; to read this one again, start with a fresh --checkpoint",
        )


def look_at(path: Path, format_: str, schema: Schema, first: int) -> Seen | None:
    """The file as it is now; None if it is empty, incomplete or already deleted.

    A file without read permission is broken; an I/O error stops the run.
    """
    try:
        before = path.stat()
        if not before.st_size:
            return None
        try:
            found, head = _contents(path, format_, schema), head_of(path)
        except PermissionError as error:
            found, head = {"broken": f"cannot be read: {error.strerror}"}, ""
        after = path.stat()
    except FileNotFoundError:
        return None
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        return None
    given: dict[str, Any] = {"rows": 1, "marks": ((0, 0),), **found}
    return Seen(str(path), after.st_size, after.st_mtime_ns, after.st_ino, head, first, **given)


def _contents(path: Path, format_: str, schema: Schema) -> dict[str, Any]:
    if format_ == "parquet":
        try:
            rows, groups = count_parquet(path, schema)
        except Unreadable as error:
            return {"broken": str(error)}
        return {"rows": rows, "marks": tuple((row, group) for group, row in enumerate(groups))}
    if path.suffix.lower() in _PACKED:
        return {"broken": f"compressed files ({path.suffix}) are not read: decompress it"}
    if format_ == "csv":
        return _csv_contents(path, schema)
    found = lines.count(path, lines.first_line(path)[1])
    return {"rows": found.rows, "marks": found.marks}


def _csv_contents(path: Path, schema: Schema) -> dict[str, Any]:
    text, begin, after = lines.first_line(path, quoted=True)
    try:
        header = header_of(text, schema)
    except AmbiguousHeader as error:
        return {"broken": str(error)}
    found = lines.count_quoted(path, begin if header is None else after)
    return {"rows": found.rows, "marks": found.marks, "header": header, "quoted": True}


def head_of(path: Path) -> str:
    """A digest of the start of a file."""
    with path.open("rb") as file:
        return hashlib.blake2b(file.read(_HEAD), digest_size=16).hexdigest()
