"""Damages, removes and changes single records of a checkpoint, as faults of a disk would."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.engine.checkpoint.checkpoint import Checkpoint
from millstream.engine.checkpoint.records.framing import encoded
from millstream.engine.checkpoint.records.segments import FOLDER, Segments, list_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@dataclass(frozen=True)
class RecordFile:
    """A record of a checkpoint, where it lies in its segment."""

    path: Path
    at: int
    end: int

    @classmethod
    def of(cls, folder: Path, batch: int, kind: str) -> RecordFile:
        """The record of this kind of a batch."""
        place = Checkpoint(folder).place(batch, kind)
        assert place is not None
        assert place.entry is not None
        return cls(place.path, place.entry.at, place.entry.end)

    def replace(self, change: Callable[[bytes], bytes]) -> None:
        """Change its bytes; those behind it stay."""
        whole = self.path.read_bytes()
        mine = change(whole[self.at : self.end])
        self.path.write_bytes(whole[: self.at] + mine + whole[self.end :])

    def cut(self) -> None:
        """Truncate its segment within it."""
        whole = self.path.read_bytes()
        self.path.write_bytes(whole[: self.end - 9])


def without(folder: Path, lost: Callable[[str, int], bool]) -> None:
    """Remove records so that no trace of them is left, as an older copy would lack them."""
    segments = Segments(folder)
    segments.refresh()
    assert segments.root is not None
    keep = [
        (kind, number, segments.stored(place.path.name, place.entry)[1])
        for (kind, number), place in segments.index.items()
        if place.entry is not None and not lost(kind, number)
    ]
    for path in (folder / FOLDER).iterdir():
        path.unlink()
    whole = list_of((), 1) + b"".join(encoded(kind, n, body)[0] for kind, n, body in keep)
    (folder / FOLDER / segments.root).write_bytes(whole)


def lose(folder: Path, batch: int, kind: str | None = None) -> None:
    """Remove a record of a batch, or all of them."""
    without(folder, lambda found, number: number == batch and kind in (None, found))


def names(folder: Path) -> list[tuple[str, int]]:
    """The records of a checkpoint."""
    segments = Segments(folder)
    segments.refresh()
    return sorted(segments.index)
