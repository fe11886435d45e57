"""The segments of a job: append-only files of records, and which of them count.

    segments/<run>-<number>         records of one run, which alone appends to it
    segments/<run>-<number>.kept    records of several segments, rewritten without those that are
                                    no longer needed

The first record of a segment lists all segments to be read before it, each with the length up to
which it counts. The newest segment that has a name therefore says what the job's records are:
what another run appends to a listed segment afterwards, or writes to one that is not listed, is
never read. A segment gets its name when that list is durable, so making a new one is how a job is
taken over, how a full segment is left, and how compacted segments replace others.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.engine.checkpoint import durable
from millstream.engine.checkpoint.records.framing import Entry, encoded, scan

if TYPE_CHECKING:
    from collections.abc import Collection

    from millstream.errors import Damaged

FORMAT = 2
FOLDER, EARLIER = "segments", "batches"
KEPT = ".kept"
_ROOT = re.compile(r"(\d{8})-(\d{6})\Z")
_KINDS = ("intent", "prepared", "commit", "rewind")
_TRIES = 20

Key = tuple[str, int]  # the kind of a record, and its batch


def segment_name(run: int, number: int, suffix: str = "") -> str:
    """The name of a segment; the names of roots sort by run, then by number."""
    return f"{run:08d}-{number:06d}{suffix}"


@dataclass(frozen=True, slots=True)
class Part:
    """A segment with the length up to which it counts."""

    name: str
    length: int


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record is: in a segment, or in a file of its own, as earlier versions wrote it."""

    path: Path
    entry: Entry | None


@dataclass(frozen=True, slots=True)
class Gap:
    """A range of a segment that holds no readable record; `after` is the last commit before it."""

    path: Path
    at: int
    after: int


@dataclass(slots=True)
class _Known:
    """What is known of a segment so far."""

    end: int
    entries: list[Entry]
    gaps: list[tuple[int, int]]


class Segments:
    """The records of a job, for reading; a job that runs may append meanwhile."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._earlier = folder / FOLDER, folder / EARLIER
        self.parts: tuple[Part, ...] = ()
        self.root: str | None = None
        self.index: dict[Key, Place] = {}
        self.gaps: list[Gap] = []
        self._known: dict[str, _Known] = {}
        self._seen: tuple[str, int] | None = None

    # -- what there is ------------------------------------------------------------

    def refresh(self) -> None:
        """Find the records written since the last call.

        Raises:
            Damaged: a segment is missing, or its list cannot be read.
        """
        for _ in range(_TRIES):
            root = self.newest_root()
            try:
                self._refresh(root)
            except FileNotFoundError as error:
                if self.newest_root() == root:
                    lost = Path(error.filename or self.folder)
                    raise durable.damaged(lost, "no such file, but it is listed") from error
                continue
            return

    def newest_root(self) -> str | None:
        """The newest segment that has a list; None if there is none yet."""
        try:
            names = [path.name for path in self.folder.iterdir()]
        except FileNotFoundError:
            return None
        return max((name for name in names if _ROOT.match(name)), default=None)

    @property
    def newest_run(self) -> int:
        """The run that made the newest segment; 0 if there is none."""
        return 0 if self.root is None else int(self.root.partition("-")[0])

    def _refresh(self, root: str | None) -> None:
        if root is None:
            self._read_earlier()
            return
        size = (self.folder / root).stat().st_size
        if self._seen == (root, size):
            return
        known = self._known_of(root, None)
        if not known.entries or known.entries[0].at:
            raise durable.damaged(self.folder / root, "a segment whose list cannot be read")
        listed = self._body(root, known.entries[0])
        if listed["format"] != FORMAT:
            got = f"format {listed['format']}; this version reads {FORMAT}"
            raise durable.damaged(self.folder / root, got)
        self.parts = tuple(Part(name, length) for name, length in listed["before"])
        self.root, self.index, self.gaps = root, {}, []
        for part in self.parts:
            self._take(part.name, self._known_of(part.name, part.length))
        self._take(root, known)
        self._known = {name: self._known[name] for name in [*(p.name for p in self.parts), root]}
        self._seen = (root, size)

    def _known_of(self, name: str, length: int | None) -> _Known:
        """The records of a segment; with a length, of exactly that many bytes."""
        known = self._known.get(name)
        if known is None or (length is not None and known.end > length):
            known = _Known(0, [], [])
        if length is None or known.end < length:
            with (self.folder / name).open("rb") as file:
                data = file.read() if length is None else file.read(length)
            found = scan(data, known.end, complete=length is not None)
            gaps, end = [*known.gaps, *found.gaps], found.end
            if length is not None and end < length:  # it is shorter than it was
                gaps.append((end, length))
                end = length
            known = _Known(end, [*known.entries, *found.entries], gaps)
        self._known[name] = known
        return known

    def _take(self, name: str, known: _Known) -> None:
        path, newest = self.folder / name, self.numbers("commit")[-1:]
        for entry in known.entries:
            if entry.kind in _KINDS:
                self.index.setdefault((entry.kind, entry.number), Place(path, entry))
        for at, _ in known.gaps:
            before = [e.number for e in known.entries if e.kind == "commit" and e.at < at]
            self.gaps.append(Gap(path, at, max([0, *newest, *before])))

    def _read_earlier(self) -> None:
        """List the records that earlier versions wrote, one file for each."""
        self.root, self.parts, self.index, self.gaps = None, (), {}, []
        if not self._earlier.is_dir():
            return
        for path in self._earlier.glob("[0-9]*.*"):
            number, _, kind = path.name.partition(".")
            if kind in _KINDS:
                self.index[kind, int(number)] = Place(path, None)

    def all_parts(self) -> tuple[Part, ...]:
        """The segments that hold records, with the lengths up to which they count now."""
        if self.root is None:
            return ()
        parts = (*self.parts, Part(self.root, self._known[self.root].end))
        return tuple(part for part in parts if self._holds_records(part.name))

    def _holds_records(self, name: str) -> bool:
        known = self._known[name]
        return bool(known.gaps) or any(entry.kind in _KINDS for entry in known.entries)

    def replaced(self, old: Collection[str], name: str, entries: list[Entry]) -> None:
        """Use the records of a compacted segment instead of those of the old ones."""
        path = self.folder / name
        for key in [key for key, place in self.index.items() if place.path.name in old]:
            del self.index[key]
        self.index |= {(entry.kind, entry.number): Place(path, entry) for entry in entries}
        self.gaps = [gap for gap in self.gaps if gap.path.name not in old]

    # -- reading -------------------------------------------------------------------

    def numbers(self, kind: str) -> list[int]:
        """The batches with such a record, ascending."""
        return sorted(number for found, number in list(self.index) if found == kind)

    def read(self, kind: str, number: int) -> dict[str, Any]:
        """The body of a record.

        Raises:
            Damaged: it is missing or changed.
        """
        while (place := self.index.get((kind, number))) is not None:
            try:
                return self._read(place, kind)
            except FileNotFoundError:  # compacted meanwhile, or lost: then this raises
                self.refresh()
        raise self._missing(kind, number) from FileNotFoundError(kind, number)

    def _missing(self, kind: str, number: int) -> Damaged:
        """The error for a record that is not there, or lies where nothing can be read."""
        for gap in self.gaps:
            if gap.after <= number:
                where = f"unreadable records at byte {gap.at}, before others"
                return durable.damaged(gap.path, f"{where}; no {kind} of batch {number}")
        return durable.damaged(self.folder, f"no {kind} of batch {number}")

    def _read(self, place: Place, kind: str) -> dict[str, Any]:
        if place.entry is None:
            if not place.path.exists():
                raise FileNotFoundError(place.path)
            return durable.read(place.path, kind)
        return self._body(place.path.name, place.entry)

    def _body(self, name: str, entry: Entry) -> dict[str, Any]:
        body: dict[str, Any] = json.loads(self.stored(name, entry)[1])
        return body

    def stored(self, name: str, entry: Entry) -> tuple[bytes, bytes]:
        """A record as it lies in its segment, and its decoded body.

        Raises:
            Damaged: it was changed.
        """
        path = self.folder / name
        with path.open("rb") as file:
            file.seek(entry.at)
            whole = file.read(entry.end - entry.at)
        body = entry.decoded(whole[entry.body - entry.at :])
        if body is None:
            raise durable.damaged(path, f"a changed {entry.kind} of batch {entry.number} at byte "
                                        f"{entry.at}")  # fmt: skip
        return whole, body


def list_of(before: tuple[Part, ...], number: int, **facts: Any) -> bytes:
    """The first record of a segment."""
    body = {"format": FORMAT, "before": [[part.name, part.length] for part in before], **facts}
    return encoded("segment", number, as_bytes(body))[0]


def as_bytes(body: dict[str, Any]) -> bytes:
    """The body of a record as it is stored."""
    return json.dumps(body, separators=(",", ":"), sort_keys=True).encode()
