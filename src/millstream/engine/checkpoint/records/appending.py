"""Appending records: by the run that owns the job, to segments of its own."""

from __future__ import annotations

import os
from itertools import count
from typing import TYPE_CHECKING, Any

from millstream.engine.checkpoint import durable
from millstream.engine.checkpoint.fault_points import reached
from millstream.engine.checkpoint.records.framing import encoded
from millstream.engine.checkpoint.records.segments import (
    KEPT,
    Part,
    Place,
    as_bytes,
    list_of,
    segment_name,
)
from millstream.errors import Fenced

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from millstream.engine.checkpoint.records.segments import Segments

ROLL_BYTES = 2**20


class Appender:
    """The newest segment of the run that owns a job.

    A record is on disk when `append` returns. A write that failed may have left a part of a
    record, so the next record goes to a new segment, whose list leaves that part out.
    """

    def __init__(self, segments: Segments, run: int) -> None:
        self._segments, self._run = segments, run
        self._before: tuple[Part, ...] = ()
        self._numbers = count(1)
        self._name, self._end = "", 0
        self._handle: int | None = None

    def start(self, parts: Sequence[Part]) -> None:
        """Begin a segment after these ones, which count up to their lengths, and no others."""
        number = next(self._numbers)
        name = segment_name(self._run, number)
        first = list_of(tuple(parts), number, run=self._run)
        reached("before a new segment", 0)
        path = self._segments.folder / name
        if not durable.create(path, first, "in the middle of a new segment"):
            raise Fenced(
                "a segment needs a unique name",
                got=f"{name}, which another run has written",
                do="leave the job to the newer run; this one stops and changes nothing",
            )
        self.close()
        self._handle = os.open(path, os.O_WRONLY | os.O_APPEND)
        self._before, self._name, self._end = tuple(parts), name, len(first)
        reached("after a new segment", 0)

    def append(self, kind: str, number: int, body: dict[str, Any]) -> None:
        """Append a record and wait until it is on disk."""
        if self._handle is None or self._end >= ROLL_BYTES:
            self.start(self.parts())
        whole, entry = encoded(kind, number, as_bytes(body), at=self._end)
        path = self._segments.folder / self._name
        try:
            self._write(whole, f"in the middle of writing {kind}", number)
        except OSError as error:
            self.close()
            raise durable.write_failed(path, error) from error
        self._end = entry.end
        self._segments.index[kind, number] = Place(path, entry)

    def _write(self, whole: bytes, point: str, number: int) -> None:
        assert self._handle is not None
        half = len(whole) // 2
        _write_all(self._handle, whole[:half])
        reached(point, number)
        _write_all(self._handle, whole[half:])
        os.fdatasync(self._handle)

    def parts(self) -> tuple[Part, ...]:
        """All segments, with the lengths up to which they count now."""
        return (*self._before, Part(self._name, self._end))

    def replace(self, old: Collection[Part], kept: Sequence[Part]) -> None:
        """Begin a segment in whose list other segments replace the old ones."""
        self.start((*kept, *(part for part in self.parts() if part not in old)))

    def kept_path(self) -> Path:
        """An unused path for compacted segments."""
        return self._segments.folder / segment_name(self._run, next(self._numbers), KEPT)

    def close(self) -> None:
        """Close the file."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def _write_all(handle: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(handle, view) :]
