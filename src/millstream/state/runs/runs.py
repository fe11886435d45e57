"""Sorted rows in files: a segment is one file, a run is what one batch or merge wrote.

A segment is an Arrow IPC file with one uncompressed record batch, read through a memory map. Its
name, size and checksum are in the manifest; files are never overwritten. File names begin with
the number of the batch that wrote them (`000000000012-…`).
"""

from __future__ import annotations

import os
import threading
import zlib
from collections import OrderedDict
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millstream.errors import Damaged, Fenced, InvalidInput, MillstreamError
from millstream.state.keys.hashing import HASH_VERSION, hash_range
from millstream.state.sorting import hashes_of, is_sorted, orders_of
from millstream.toolchain.folders import sync_folder

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import numpy as np

FORMAT_VERSION = 1
SUFFIX = ".arrow"

_METADATA = {b"millstream.state": str(FORMAT_VERSION).encode()}
_METADATA_HASH = b"millstream.hash"
_MAPS = 1024
_VERIFIED = 65536


def file_name(batch: int, *parts: str) -> str:
    """A file's name: the batch, then what makes it unique (incarnation, attempt, …)."""
    return "-".join([f"{batch:012d}", *parts]) + SUFFIX


def batch_of(file: str) -> int | None:
    """The batch a file name begins with; None if it is not a state file."""
    number, dash, _ = file.partition("-")
    return int(number) if dash and number.isdecimal() and file.endswith(SUFFIX) else None


@dataclass(frozen=True, slots=True)
class Segment:
    """One file of a run: the rows of the buckets [low, high)."""

    file: str
    low: int
    high: int
    rows: int
    bytes: int
    least: int
    greatest: int
    checksum: int

    def to_json(self) -> dict[str, Any]:
        """The entry as it is stored in a commit."""
        return asdict(self)

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> Segment:
        """The entry read back."""
        return cls(**entry)


@dataclass(frozen=True, slots=True)
class Run:
    """Segments of disjoint bucket ranges of the same age; `level` counts the merges."""

    id: str
    segments: tuple[Segment, ...]
    level: int = 0

    @property
    def bytes(self) -> int:
        """The size of its files."""
        return sum(segment.bytes for segment in self.segments)

    @property
    def rows(self) -> int:
        """The rows in its files."""
        return sum(segment.rows for segment in self.segments)

    def to_json(self) -> dict[str, Any]:
        """The run as it is stored in a commit."""
        return {
            "id": self.id,
            "level": self.level,
            "segments": [segment.to_json() for segment in self.segments],
        }

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> Run:
        """The run read back."""
        segments = tuple(Segment.from_json(segment) for segment in entry["segments"])
        return cls(entry["id"], segments, entry["level"])


def write_segment(
    folder: Path, name: str, table: pa.Table, *, buckets: tuple[int, int], of: int
) -> Segment:
    """Write sorted, combined rows as a new file and make it and its folder durable.

    The name must be new: an existing file belongs to another attempt, and this one stops.
    """
    orders, _ = _checked(table, buckets, of)
    file = name if name.endswith(SUFFIX) else name + SUFFIX
    payload = _serialised(table)
    _create(folder / file, payload)
    return Segment(
        file=file,
        low=buckets[0],
        high=buckets[1],
        rows=len(table),
        bytes=payload.size,
        least=int(orders[0]),
        greatest=int(orders[-1]),
        checksum=zlib.crc32(payload),
    )


def _checked(table: pa.Table, buckets: tuple[int, int], of: int) -> tuple[np.ndarray, np.ndarray]:
    """Check rows for a segment, whose order readers rely on; returns their orders and hashes."""
    if len(table) == 0:
        raise InvalidInput("a segment needs rows", got="none", do="write no file for no rows")
    orders, hashes = orders_of(table), hashes_of(table)
    least, greatest = hash_range(buckets, of)
    if int(hashes.min()) < least or int(hashes.max()) > greatest:
        raise InvalidInput(
            f"a segment needs rows of the buckets [{buckets[0]}, {buckets[1]}) of {of}",
            got="a row of another bucket",
            do="partition the rows by bucket first",
        )
    if not is_sorted(orders, hashes):
        raise InvalidInput(
            "a segment needs rows sorted by _order and _hash", got="unsorted rows", do="combine()"
        )
    return orders, hashes


def _serialised(table: pa.Table) -> pa.Buffer:
    batch = table.combine_chunks().to_batches()[0]
    metadata = {**_METADATA, _METADATA_HASH: str(HASH_VERSION).encode()}
    batch = batch.replace_schema_metadata(metadata)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def _create(path: Path, payload: pa.Buffer) -> None:
    try:
        handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError as error:
        raise Fenced(
            "a state file needs a unique name",
            got=f"{path.name}, which another attempt has written",
            do="let the other run continue, or start again with a new incarnation",
        ) from error
    try:
        with os.fdopen(handle, "wb", buffering=0) as file:
            view = memoryview(payload)
            while view:
                view = view[file.write(view) :]
            os.fsync(file.fileno())
    except OSError as error:
        path.unlink(missing_ok=True)
        raise MillstreamError(
            f"writing {path} needs a writable disk with free space",
            got=str(error.strerror or error),
            do="free some space or fix the permissions, then start again: nothing is lost",
        ) from error
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


class _Maps:
    """The memory maps of this process: the most recently used ones, each verified once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: OrderedDict[tuple[str, int], pa.RecordBatch] = OrderedDict()
        self._verified: OrderedDict[tuple[str, int], None] = OrderedDict()

    def get(self, folder: Path, segment: Segment) -> pa.RecordBatch:
        """The segment's rows, mapped."""
        path = folder / segment.file
        key = (str(path), segment.checksum)
        with self._lock:
            if key in self._open:
                self._open.move_to_end(key)
                return self._open[key]
            known = key in self._verified
        batch = _mapped(path, segment, verify=not known)
        with self._lock:
            self._verified[key] = None
            self._open[key] = batch
            while len(self._open) > _MAPS:
                self._open.popitem(last=False)
            while len(self._verified) > _VERIFIED:
                self._verified.popitem(last=False)
        return batch


_maps = _Maps()


def open_segment(folder: Path, segment: Segment) -> pa.RecordBatch:
    """The rows of a segment, memory-mapped; its checksum is verified once per process."""
    return _maps.get(folder, segment)


def _mapped(path: Path, segment: Segment, *, verify: bool) -> pa.RecordBatch:
    try:
        source = pa.memory_map(str(path))
        size = source.size()
        if size != segment.bytes:
            raise _damaged(path, f"{size} bytes instead of {segment.bytes}")
        if verify and zlib.crc32(source.read_buffer(size)) != segment.checksum:
            raise _damaged(path, "a different checksum than was written")
        reader = pa.ipc.open_file(source)
        batch = reader.get_batch(0)
    except FileNotFoundError as error:
        raise _damaged(path, "no such file") from error
    except (pa.ArrowInvalid, pa.ArrowSerializationError, OSError) as error:
        raise _damaged(path, f"an unreadable file ({error})") from error
    _check_format(path, batch, segment)
    return batch.replace_schema_metadata(None)


def _check_format(path: Path, batch: pa.RecordBatch, segment: Segment) -> None:
    if batch.num_rows != segment.rows:
        raise _damaged(path, "a different number of rows than was written")
    metadata = batch.schema.metadata or {}
    versions = (metadata.get(b"millstream.state"), metadata.get(_METADATA_HASH))
    if versions != (str(FORMAT_VERSION).encode(), str(HASH_VERSION).encode()):
        raise _damaged(path, f"format and hash version {versions}")


def _damaged(path: Path, got: str) -> Damaged:
    return Damaged(
        f"the state file {path.name} needs to be as it was written",
        got=got,
        do=f"restore {path}, or rewind to a commit that does not use it",
    )
