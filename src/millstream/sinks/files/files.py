"""`Files` as a sink: a folder in which each file contains one or more committed batches.

    out/part-0000000012-0-4be1….parquet     rows: any reader may read `out/*.parquet`
    out/_millstream/0000000031.json         the manifest: committed files and their writer
    out/_millstream/draft-…                 uncommitted files

Adding a record to the manifest is the commit. After that, the file is renamed into the folder; if
the run is killed in between, the next run renames it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.errors import InvalidSpec

if TYPE_CHECKING:
    from millstream.sinks.spec import Opening, Writer
    from millstream.sources.files.files import Files

WRITTEN = ("parquet", "json", "csv")


@dataclass(frozen=True)
class FilesSink:
    """A `Files` value that is used as a sink."""

    files: Files

    def __post_init__(self) -> None:
        if self.files.format not in WRITTEN:
            raise InvalidSpec(f"writing Files needs a format among {', '.join(WRITTEN)}",
                              got=repr(self.files.format))  # fmt: skip
        if set("*?[") & set(str(self.files.path)):
            raise InvalidSpec("writing Files needs a folder", got=repr(self.files.path),
                              do='write Files("out")')  # fmt: skip

    @property
    def name(self) -> str:
        """The default name of an output that writes here."""
        return self.files.name

    @property
    def system(self) -> str:
        """Each folder is its own system."""
        return f"files {self.files.path}"

    def writer(self, opening: Opening) -> Writer:
        """Return a writer for the folder."""
        from millstream.sinks.files.writer import FilesWriter

        return FilesWriter(Path(self.files.path), self.files.format, opening)
