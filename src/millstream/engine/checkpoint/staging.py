"""Staged files: Arrow tables on disk, written once, verified by checksum when read."""

from __future__ import annotations

import io
import os
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from millstream.engine.checkpoint.durable import write_failed
from millstream.errors import Damaged, MillstreamError
from millstream.toolchain.folders import sync_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path


class StagedFile(NamedTuple):
    """A staged file: its name with the checksum, and its number of rows."""

    entry: str
    rows: int


class _Checked(io.RawIOBase):
    """A file being written, with the checksum of the bytes so far."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("xb")
        self.checksum = 0

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        view = memoryview(data)  # type: ignore[arg-type]
        self.checksum = zlib.crc32(view, self.checksum)
        self.file.write(view)
        return view.nbytes

    def close(self) -> None:
        if not self.file.closed:
            self.file.flush()
            os.fsync(self.file.fileno())
            self.file.close()
        super().close()


def stage(folder: Path, name: str, tables: Iterable[pa.Table]) -> StagedFile | None:
    """Write tables of one schema to a new file; None if they hold no row."""
    with _removed_on_error(folder / name):
        return _written(folder, name, tables)


@contextmanager
def _removed_on_error(path: Path) -> Iterator[None]:
    """Remove a file that could not be written completely, and raise the reason.

    The rows may come from a source, whose errors are raised unchanged.
    """
    try:
        yield
    except MillstreamError:
        path.unlink(missing_ok=True)
        raise
    except OSError as error:
        path.unlink(missing_ok=True)
        raise write_failed(path, error) from error


def _written(folder: Path, name: str, tables: Iterable[pa.Table]) -> StagedFile | None:
    out, writer, rows = None, None, 0
    for table in tables:
        if not table.num_rows:
            continue
        if writer is None:
            out = _Checked(folder / name)
            writer = pa.ipc.new_stream(pa.PythonFile(out, mode="w"), table.schema)
        writer.write_table(table)
        rows += table.num_rows
    if writer is None or out is None:
        return None
    writer.close()
    out.close()
    sync_folder(folder)
    return StagedFile(f"{name}:{out.checksum:08x}", rows)


def unstage(folder: Path, entry: str) -> Iterator[pa.Table]:
    """The tables of a staged file, one at a time.

    Raises:
        Damaged: the file is missing or changed.
    """
    name, _, checksum = entry.rpartition(":")
    path = folder / name
    if not path.exists() or _checksum(path) != int(checksum, 16):
        raise Damaged(
            f"the current batch needs its staged rows in {path}",
            got="a missing or changed file",
            do="restore it from a copy; a prepared batch is not computed again",
        )
    with pa.memory_map(str(path)) as source, pa.ipc.open_stream(source) as reader:
        for batch in reader:
            yield pa.Table.from_batches([batch])


def _checksum(path: Path) -> int:
    value = 0
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            value = zlib.crc32(block, value)
    return value
