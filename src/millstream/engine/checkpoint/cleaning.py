"""One pass of clean-up, beside the batches: it writes new files, and deletes none.

    commits     those that stay, the oldest of them made full, in one compressed file
    state       files that only earlier commits refer to, in an archive
    sizes       how many files and bytes the checkpoint has

What it wrote counts once the run that owns the job lists it; see `housekeeping.py`.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from millstream.engine.checkpoint.records.compaction import Stays, write_kept
from millstream.engine.checkpoint.records.thinning import Commit, Kept, within
from millstream.plan.names import folder_name
from millstream.state.runs.orphans import loose

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from millstream.engine.checkpoint.records.archive import Archive
    from millstream.engine.checkpoint.records.compaction import KeptFile
    from millstream.engine.checkpoint.records.segments import Part, Segments

ARCHIVE_BYTES = 24 * 2**20
_LIVE_TIMES = 2
_ROOM = 0.8  # of the limit: so that the next commits do not exceed it at once


class Known(NamedTuple):
    """The facts of a commit that decide what stays; files are paths below `state`."""

    clock: int
    full: bool
    files: frozenset[str]


class Sizes(NamedTuple):
    """What a checkpoint takes of its disk."""

    files: int
    bytes: int
    free: int
    disk: int


@dataclass(frozen=True)
class Order:
    """What a pass works on: facts of one moment, and records and files that do not change.

    `old` are the segments to compact into `target`, if any; `live` are the state files of the
    newest commit, with their size; `idle` those that were not in use at the last pass.
    """

    folder: Path
    segments: Segments
    archive: Archive
    history: int
    known: Mapping[int, Known]
    unread: tuple[int, ...]
    rewound: frozenset[int]
    live: frozenset[str]
    live_bytes: int
    idle: frozenset[str]
    below: int
    target: Path | None = None
    old: tuple[Part, ...] = ()


@dataclass(frozen=True)
class Cleaned:
    """What a pass has found and written."""

    known: dict[int, Known]
    kept: KeptFile | None
    old: tuple[Part, ...]
    wasteful: list[Path]
    idle: frozenset[str]
    sizes: Sizes
    over: bool


def clean(order: Order) -> Cleaned:
    """Do one pass.

    Raises:
        Damaged: a commit that stays cannot be read.
    """
    known = dict(order.known)
    for number in order.unread:
        known[number] = known_of(order.segments.read("commit", number))
    commits = [Commit(number, known[number].clock) for number in sorted(known)]
    limit = _LIVE_TIMES * order.live_bytes + ARCHIVE_BYTES
    result = None
    if order.target is not None:

        def size(numbers: Iterable[int]) -> int:
            files = frozenset[str]().union(*(known[number].files for number in numbers))
            return order.archive.size(files - order.live)

        chosen = within(commits, order.history, size, round(limit * _ROOM)
                        if size(known) > limit else limit)  # fmt: skip
        result = write_kept(order.segments, order.target, _stays(order, known, chosen))
        known = {
            number: known[number] if number not in result.full
            else known[number]._replace(full=True, files=_files(result.full[number]["steps"]))
            for number in [*chosen.thinned, *chosen.recent]
        }  # fmt: skip
    needed = frozenset[str]().union(*(commit.files for commit in known.values()))
    idle = frozenset(_idle(order)) & needed
    retired = {name for name in idle & order.idle if name not in order.archive}
    wasteful = order.archive.add(retired, needed)
    return Cleaned(known, result, order.old, wasteful, idle, sizes_of(order.folder),
                   order.archive.size(needed - order.live) > limit)  # fmt: skip


def _stays(order: Order, known: Mapping[int, Known], chosen: Kept) -> list[Stays]:
    """The records that stay, in the order of their batches."""
    old = {part.name for part in order.old}
    newest, recent = max(known), chosen.recent[0]
    stay = {*chosen.thinned, *chosen.recent}
    full = {*chosen.thinned, recent}
    found = []
    for kind, number in list(order.segments.index):
        if order.segments.index[kind, number].path.name not in old:
            continue
        if kind == "commit":
            if number in stay:
                found.append(Stays(kind, number, number in full and not known[number].full))
            elif number in order.rewound and number > recent:
                found.append(Stays(kind, number))
        elif kind == "rewind":
            if number >= min(stay):
                found.append(Stays(kind, number))
        elif number > newest or (number == min(known) and number in stay and kind == "intent"):
            found.append(Stays(kind, number))
    return sorted(found, key=lambda one: (one.number, one.kind == "commit"))


def _idle(order: Order) -> Iterable[str]:
    """State files that the newest commit does not use."""
    state = order.folder / "state"
    for table in state.glob("*/*/"):
        place = table.relative_to(state).as_posix()
        live = {name.rpartition("/")[2] for name in order.live if name.startswith(f"{place}/")}
        yield from (f"{place}/{name}" for name in loose(table, live, batch_below=order.below))


def known_of(body: Mapping[str, Any]) -> Known:
    """The facts of a commit from its body."""
    files: set[str] = set()
    for step, part in body["steps"].items():
        for table, change in part["changes"].items():
            runs = [*change["add"], *(run for _, run in change["replace"])]
            files |= _named(step, table, runs)
    if body["full"] is not None:
        files |= _files(body["full"]["steps"])
    return Known(body["clock"], body["full"] is not None, frozenset(files))


def _files(steps: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(
        name
        for step, part in steps.items()
        for table, manifest in part["manifests"].items()
        for name in _named(step, table, manifest["runs"])
    )


def _named(step: str, table: str, runs: Iterable[Mapping[str, Any]]) -> set[str]:
    place = state_path(step, table)
    return {f"{place}/{segment['file']}" for run in runs for segment in run["segments"]}


def state_path(step: str, table: str) -> str:
    """The path of a table's files below `state`."""
    return f"{folder_name(step)}/{table}"


def sizes_of(folder: Path) -> Sizes:
    """Count the files of a checkpoint and their bytes, and the free space beside them."""
    files = taken = 0
    for where, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):  # deleted meanwhile
                taken += Path(where, name).stat().st_size
                files += 1
    disk = shutil.disk_usage(folder)
    return Sizes(files, taken, disk.free, disk.total)
