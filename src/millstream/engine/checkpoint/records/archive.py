"""State files that only earlier commits refer to, many in one file, compressed.

    archive/<run>-<number>

A rewind puts them back. State files never change and have unique names, so a copy in any archive
is as good as the file: archives need no list of what counts, and a run that was killed while it
wrote one has changed nothing.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from millstream.engine.checkpoint import durable
from millstream.engine.checkpoint.fault_points import reached
from millstream.engine.checkpoint.records.framing import encoded, scan
from millstream.engine.checkpoint.records.segments import segment_name
from millstream.state.runs.runs import batch_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from pathlib import Path

    from millstream.engine.checkpoint.records.framing import Entry

FOLDER = "archive"
_KIND = "state"
_HALF = 2
_MANY, _SMALL = 16, 2**20


class Archive:
    """The archived state files of a job, by their paths below its `state` folder."""

    def __init__(self, checkpoint: Path, run: int = 0) -> None:
        self._state, self.folder, self._run = checkpoint / "state", checkpoint / FOLDER, run
        self._numbers = count(1)
        self._entries: dict[str, tuple[str, Entry]] = {}
        self._loaded = False

    def load(self) -> None:
        """Find what is archived."""
        self._entries = {}
        for path in sorted(self.folder.glob("[0-9]*")):
            for entry in scan(path.read_bytes()).entries:
                self._entries[entry.name] = (path.name, entry)
        self._loaded = True

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def size(self, names: Iterable[str]) -> int:
        """The size of some archived files, as they are stored."""
        return sum(self._entries[name][1].length for name in names if name in self._entries)

    def add(self, names: Collection[str], needed: Collection[str]) -> list[Path]:
        """Archive state files, and copy what is needed out of archives that are mostly not.

        Returns the archives whose files are all in newer ones or not needed: they can be deleted.
        """
        if not self._loaded:
            self.load()
        sizes = self._sizes()
        wasteful = self._wasteful(sizes, needed)
        copied = [
            (name, pack, entry)
            for name, (pack, entry) in self._entries.items()
            if pack in wasteful and name in needed
        ]
        if names or copied:
            self._write(names, copied)
        self._entries = {n: found for n, found in self._entries.items() if found[0] not in wasteful}
        return [self.folder / pack for pack in sorted(wasteful)]

    def restore(self, name: str) -> bool:
        """Put a state file back; False if it is not archived.

        Raises:
            Damaged: its copy was changed.
        """
        if not self._loaded:
            self.load()
        if name not in self._entries:
            return False
        pack, entry = self._entries[name]
        target = self._state / name
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        body = entry.decoded(self._stored(pack, entry)[entry.body - entry.at :])
        if body is None:
            raise durable.damaged(self.folder / pack, f"a changed copy of {name}")
        durable.create(target, body, "in the middle of restoring state")
        return True

    def _sizes(self) -> dict[str, int]:
        return {path.name: path.stat().st_size for path in self.folder.glob("[0-9]*")}

    def _wasteful(self, sizes: dict[str, int], needed: Collection[str]) -> set[str]:
        """Archives that are at least half waste; and the small ones, if there are many."""
        useful = dict.fromkeys(sizes, 0)
        for name, (pack, entry) in self._entries.items():
            if name in needed and pack in useful:
                useful[pack] += entry.end - entry.at
        wasteful = {pack for pack, size in sizes.items() if useful[pack] * _HALF <= size}
        small = {pack for pack, size in sizes.items() if size < _SMALL}
        return wasteful | (small if len(small) > _MANY else set())

    def _write(self, names: Collection[str], copied: list[tuple[str, str, Entry]]) -> None:
        self.folder.mkdir(mode=0o700, exist_ok=True)
        path = self.folder / segment_name(self._run, next(self._numbers))
        added: dict[str, tuple[str, Entry]] = {}
        at = 0
        with durable.new_file(path) as file:
            for whole, entry in self._records(names, copied):
                file.write(whole)
                added[entry.name] = (path.name, entry.moved(at))
                at += len(whole)
            file.flush()
            reached("in the middle of an archive", 0)
        reached("state archived", 0)
        self._entries |= added

    def _records(
        self, names: Collection[str], copied: list[tuple[str, str, Entry]]
    ) -> Iterator[tuple[bytes, Entry]]:
        for _, pack, entry in copied:
            yield self._stored(pack, entry), entry
        for name in sorted(names):
            path = self._state / name
            yield encoded(_KIND, batch_of(path.name) or 0, path.read_bytes(), name=name,
                          packed=True)  # fmt: skip

    def _stored(self, pack: str, entry: Entry) -> bytes:
        with (self.folder / pack).open("rb") as file:
            file.seek(entry.at)
            return file.read(entry.end - entry.at)
