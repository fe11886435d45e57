"""`Files`: a folder or a glob of files, as a source and as a sink."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Literal

from millstream.errors import InvalidSpec
from millstream.formats.choice import columns_of
from millstream.schema import Schema

if TYPE_CHECKING:
    from millstream.sources.spec import Opener, Reader, SourceOpening

FORMATS = ("parquet", "json", "csv", "text")
_MAGIC = frozenset("*?[")


@dataclass(frozen=True)
class Files:
    """Files of one format: all files of a folder, or those that match a glob.

    As a source, each file is read once, in order of modification time, then name; files whose
    names begin with `.` or `_` or end like a temporary file are ignored.

    >>> Files("data/bids/*.json", format="json", schema="auction long, ts timestamp").name
    'bids'
    """

    path: str | os.PathLike[str]
    format: Literal["parquet", "json", "csv", "text"] = field(default="parquet", kw_only=True)
    schema: str | Schema | None = field(default=None, kw_only=True)
    _parsed: Schema | None = field(init=False, repr=False, compare=False, default=None)

    def __post_init__(self) -> None:
        if not isinstance(self.path, str | os.PathLike) or not os.fspath(self.path):
            raise InvalidSpec(
                "Files needs a folder or a glob",
                got=repr(self.path),
                do='write Files("data/bids/*.json", format="json", schema="…")',
            )
        object.__setattr__(self, "path", os.fspath(self.path))
        if self.format not in FORMATS:
            raise InvalidSpec(f"Files needs a format among {', '.join(FORMATS)}",
                              got=repr(self.format))  # fmt: skip
        if self.format == "parquet" and isinstance(self.schema, str):
            object.__setattr__(self, "_parsed", Schema.parse(self.schema))
        elif self.format == "parquet":
            object.__setattr__(self, "_parsed", self.schema)
        else:
            object.__setattr__(self, "_parsed", columns_of(self.format, self.schema))

    @property
    def name(self) -> str:
        """The last part of the path that is not a pattern."""
        plain = [part for part in PurePath(self.path).parts if not _MAGIC & set(part)]
        return plain[-1] if plain else "files"

    def row_schema(self) -> Schema:
        """The columns of its rows; without a schema, those of an existing Parquet file."""
        if self._parsed is not None:
            return self._parsed
        if self.format == "parquet":
            return self._columns_found()
        raise InvalidSpec(
            f"reading {self.path} needs a schema",
            got="none",
            do=f'write Files("{self.path}", format="{self.format}", schema="id long, …")',
        )

    def _columns_found(self) -> Schema:
        from millstream.sources.files.parquet import Unreadable, schema_of
        from millstream.sources.files.reader import listed

        found = sorted(path for path, _ in listed(Path(self.path).absolute()))
        if not found:
            raise InvalidSpec(f"reading {self.path} needs a schema, or an existing Parquet file",
                              got="neither",
                              do='write Files(…, schema="id long, at timestamp")')  # fmt: skip
        try:
            return schema_of(Path(found[0]))
        except Unreadable as error:
            raise InvalidSpec(f"reading {self.path} needs a schema, or Parquet files",
                              got=f"{found[0]}: {error}") from None  # fmt: skip

    def opener(self) -> Opener:
        """Reads pieces of files where they are decoded."""
        from millstream.sources.files.rows import FileRows

        return FileRows(self.format)

    def reader(self, opening: SourceOpening) -> Reader:
        """Open the folder or glob for one run."""
        from millstream.sources.files.reader import FilesReader

        return FilesReader(self, opening)
