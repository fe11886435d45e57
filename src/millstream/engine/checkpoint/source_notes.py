"""Notes of sources in the checkpoint: small durable records, numbered in order.

sources/<source>/<n>        one note
sources/<source>/<n>.full   one note that replaces all up to that number
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.engine.checkpoint import durable
from millstream.plan.names import folder_name

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_FULL = ".full"


class SourceNotes:
    """The notes of one source of a job; `owned` raises if the run no longer owns the job."""

    def __init__(self, checkpoint: Path | None, source: str, owned: Callable[[], None]) -> None:
        self._checkpoint, self._source, self._owned = checkpoint, source, owned

    @property
    def folder(self) -> Path:
        """The source's own folder in the checkpoint."""
        assert self._checkpoint is not None, "a source with notes needs a checkpoint"
        return self._checkpoint / "sources" / folder_name(self._source)

    def all(self) -> list[dict[str, Any]]:
        """Return every note, oldest first.

        Raises:
            Damaged: a note is missing or changed.
        """
        numbers, full = self._numbers(), self._newest_full()
        notes = [] if full == 0 else [durable.read(self._path(full, _FULL), "note")]
        later = [number for number in numbers if number > full]
        if later != list(range(full + 1, full + 1 + len(later))):
            missing = next(n for n in range(full + 1, later[-1]) if n not in later)
            raise durable.damaged(self._path(missing), "no such file, but later ones")
        return notes + [durable.read(self._path(number), "note") for number in later]

    def add(self, note: dict[str, Any]) -> bool:
        """Add a note; return False if another run has written its number."""
        self._owned()
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return durable.write_new(self._path(self._last() + 1), "note", note)

    def replace(self, note: dict[str, Any]) -> bool:
        """Write one note that replaces all others, then delete those."""
        self._owned()
        last = self._last()
        if not durable.write_new(self._path(last, _FULL), "note", note):
            return False
        for number in self._numbers():
            if number <= last:
                self._path(number).unlink(missing_ok=True)
        for path in self.folder.glob(f"*{_FULL}"):
            if int(path.stem) < last:
                path.unlink(missing_ok=True)
        return True

    def _last(self) -> int:
        return max([0, self._newest_full(), *self._numbers()])

    def _newest_full(self) -> int:
        return max([0, *(int(path.stem) for path in self.folder.glob(f"*{_FULL}"))])

    def _numbers(self) -> list[int]:
        return sorted(int(path.name) for path in self.folder.glob("[0-9]*") if not path.suffix)

    def _path(self, number: int, suffix: str = "") -> Path:
        return self.folder / f"{number:012d}{suffix}"
