"""`Files` as a sink: a folder in which every file is a committed batch, or several of them.

    out/part-0000000012-0-4be1….parquet     rows: any reader may take `out/*.parquet`
    out/_millstream/0000000031.json         the manifest: which files count, written by whom
    out/_millstream/draft-…                 what is not committed yet

The manifest's record is the commit. Only after it a file gets its name in the folder; a run that
was killed in between leaves that to the next.
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
    """A `Files` value in its part as a sink."""

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
        """The default name of an output that ends here."""
        return self.files.name

    @property
    def system(self) -> str:
        """A folder is a system of its own."""
        return f"files {self.files.path}"

    def writer(self, opening: Opening) -> Writer:
        """The folder, opened for one run."""
        from millstream.sinks.files.writer import FilesWriter

        return FilesWriter(Path(self.files.path), self.files.format, opening)
