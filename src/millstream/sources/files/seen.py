"""Files a job has seen: each with its place in the order of rows, fixed when it was noted.

The list rests in the checkpoint as notes. Rows are numbered through all files: a file's
rows begin where those of the file before it end. A file that is noted may not change.
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
    """One file: what it was when it was noted, and where its rows are.

    `first` is the number of its first row; `marks` are pairs of a row (counted from the
    file's first) and the byte it begins at, or the row group it begins; `quoted` says that
    line breaks inside quotes end no row (files noted by older versions were counted by lines).
    A file that cannot be read as a whole has one row, and says in `broken` why.
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
        """The number after its last row."""
        return self.first + self.rows

    def note(self) -> dict[str, Any]:
        """As it is kept in the checkpoint."""
        return asdict(self)

    @classmethod
    def of(cls, body: dict[str, Any]) -> Self:
        """From JSON, whose pairs are lists."""
        marks = tuple((row, at) for row, at in body["marks"])
        header = None if body["header"] is None else tuple(body["header"])
        return cls(**{**body, "marks": marks, "header": header})

    def check(self) -> None:
        """Stop where the file is gone or has changed since it was noted.

        Raises:
            DataGone: it names the file.
        """
        try:
            now = Path(self.path).stat()
        except OSError as error:
            raise DataGone(
                f"the job needs {self.path}, which it has seen and not read to its end",
                got=error.strerror or str(error),
                do="put it back, or begin anew with another --checkpoint",
            ) from None
        if not self.same(now):
            raise self.altered(now)

    def same(self, now: os.stat_result) -> bool:
        """Whether a file of that name is still the one that was noted."""
        if (now.st_size, now.st_mtime_ns) != (self.size, self.changed):
            return False
        return now.st_ino == self.inode or head_of(Path(self.path)) == self.head

    def altered(self, now: os.stat_result) -> DataGone:
        """The sentence for a file that changed."""
        return DataGone(
            f"{self.path} needs to stay as it was when the job first saw it ({self.size} bytes)",
            got=f"a file of {now.st_size} bytes, written since",
            do="write new rows to a new file, under a name that begins with a dot until it is "
            "whole; to read this one again, begin anew with another --checkpoint",
        )


def look_at(path: Path, format_: str, schema: Schema, first: int) -> Seen | None:
    """A file as it is now; None while it is empty, being written or already gone.

    One that may not be read is broken; a disk that fails stops the run.
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
        return {"broken": f"packed files ({path.suffix}) are not read: unpack it"}
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
    """A digest of a file's beginning."""
    with path.open("rb") as file:
        return hashlib.blake2b(file.read(_HEAD), digest_size=16).hexdigest()
