"""A folder of files with a manifest, opened for one run."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from millstream.errors import DataGone
from millstream.sinks.files import formats
from millstream.sinks.files import parts as file_parts
from millstream.sinks.files.parts import batches_of, joined, parts_of
from millstream.sinks.record_log import FOLDER, Body, Records, read_all, sync
from millstream.sinks.retries import Told, persist
from millstream.sinks.rows import appended

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from millstream.sinks.spec import Opening, Staged

FULL_EVERY = 50
TOGETHER = 32
LARGEST = 128 << 20
_DRAFT = "draft-"


@dataclass
class Manifest:
    """What the records add up to: the files that count, and the last batch."""

    files: dict[str, Body] = field(default_factory=dict)
    intent: str | None = None
    job: str | None = None
    removed: set[str] = field(default_factory=set)
    full_at: int = 0

    def take(self, record: Body) -> None:
        """One record more."""
        if record.get("full") is not None:
            self.files = dict(record["full"])
            self.full_at = record["number"]
        for name in record.get("remove", ()):
            self.files.pop(name, None)
            self.removed.add(name)
        self.files.update(record.get("add", {}))
        if record["job"] != self.job:
            self.job, self.intent = record["job"], None
        self.intent = record.get("intent") or self.intent


def committed(folder: Path) -> list[Path]:
    """The files of a folder that count, oldest rows first, as its manifest says.

    Unlike a glob it is never seen half through a compaction.
    """
    return [path for path, _ in committed_rows(folder)]


def committed_rows(folder: Path) -> list[tuple[Path, int]]:
    """The same, each with how many rows it has."""
    files = _added_up(read_all(folder / FOLDER)).files
    return [(folder / name, int(files[name]["rows"])) for name in sorted(files)]


def _added_up(records: Iterable[Body]) -> Manifest:
    manifest = Manifest()
    for record in records:
        manifest.take(record)
    return manifest


class FilesWriter:
    """Each batch is a file; small ones are put together when there are many."""

    def __init__(self, folder: Path, format: str, opening: Opening) -> None:
        self._folder, self._format, self._opening = folder, format, opening
        self._records = Records(folder, opening)
        self._manifest = Manifest()
        self._where = f"the folder {folder}"

    def recover(self, expected: str | None) -> str | None:
        """Take the folder, and bring to its end what a killed run had committed."""
        self._persist(self._take, "open")
        if self._opening.delivery == "at_least_once":
            return expected
        mine = self._manifest.job == self._opening.job
        if expected is not None and (not mine or self._manifest.intent is None):
            raise DataGone(
                f"the job needs its records in {self._records.folder}",
                got="none, though an earlier batch wrote one" if self._manifest.job is None
                else f"those of job {str(self._manifest.job)[:8]}, which has taken the folder over",
                do="restore the folder as that batch left it, or begin anew with another "
                "--checkpoint",
            )  # fmt: skip
        return self._manifest.intent if mine else None

    def _take(self) -> None:
        before = self._records.take()
        self._manifest = _added_up(before)
        self._publish(self._manifest.files)
        for path in [*self._records.folder.glob(f"{_DRAFT}*"), *self._replaced()]:
            path.unlink(missing_ok=True)
        file_parts.forget(self._records.folder, self._manifest.files)

    def _replaced(self) -> list[Path]:
        return [self._folder / name for name in self._manifest.removed]

    def write(self, intent: str, batch: int, outputs: Sequence[Staged]) -> None:
        """A batch's files and their record; tried again while the disk may take them."""
        drafts: dict[str, Body] = {}

        def attempt() -> None:
            self._records.check()
            drafts.update(self._drafted(intent, batch, outputs))
            self._opening.on_step("before a sink's commit")
            if self._opening.delivery != "at_least_once":
                self._commit(kind="batch", intent=intent, batch=batch, add=drafts)

        self._persist(attempt, f"take batch {batch}")
        self._opening.on_step("after a sink's commit")
        self._persist(lambda: self._publish(drafts), f"show batch {batch}")
        if self._opening.delivery != "at_least_once":
            self._compact(batch)

    def _drafted(self, intent: str, batch: int, outputs: Sequence[Staged]) -> dict[str, Body]:
        """The rows on disk, under names nobody looks for."""
        made: dict[str, Body] = {}
        for place, staged in enumerate(outputs):
            name = f"part-{batch:010d}-{place}-{intent[:8]}{formats.SUFFIX[self._format]}"
            draft = self._draft(name)
            draft.unlink(missing_ok=True)
            facts = formats.write(draft, self._format, appended(staged))
            if facts is not None:
                made[name] = {**facts, "level": 0, "last": batch}
        sync(self._records.folder)
        return made

    def _draft(self, name: str) -> Path:
        return self._records.folder / f"{_DRAFT}{name}"

    def _commit(self, **body: Any) -> None:
        """Make the next record: the moment at which everything in it is true."""
        number = self._records.number + 1
        body = {"intent": self._manifest.intent, **body}
        full = None
        if number - self._manifest.full_at >= FULL_EVERY:
            full = self._manifest.files
        self._records.add(**body, full=full)
        self._manifest.take({**body, "full": full, "number": number, "job": self._opening.job})
        if full is not None:
            self._records.forget(before=number)

    def _publish(self, names: Iterable[str]) -> None:
        """Give committed files their names in the folder."""
        moved = False
        for name in names:
            draft = self._draft(name)
            if draft.exists():
                draft.rename(self._folder / name)
                moved = True
        if moved:
            sync(self._folder)

    # -- going back ---------------------------------------------------------------

    def existing(self) -> list[str]:
        """The folder, if something is in it."""
        there = self._folder.exists() and any(self._folder.iterdir())
        return [self._where] if there else []

    def rewind_obstacle(self, batch: int, intent: str | None) -> str | None:
        """One file may hold rows of batches before and after: then it has to know which."""
        if self._opening.delivery == "at_least_once":
            return f"{self._where} has no manifest, with at_least_once"
        for name, facts in _added_up(read_all(self._records.folder)).files.items():
            first, last = batches_of(name, facts)
            if first <= batch < last and parts_of(self._records.folder, name, facts) is None:
                return (f"{self._where} has one file for the batches {first} to {last}, and "
                        f"nothing says which of its rows are older: it can go back to before "
                        f"{first}, or to {last}")  # fmt: skip
        return None

    def rewind(self, batch: int, intent: str | None, mark: str) -> str | None:
        """One record takes all files of later batches away, and puts what is older of a file
        that holds both into its place."""
        later = {name: facts for name, facts in self._manifest.files.items()
                 if batches_of(name, facts)[1] > batch}  # fmt: skip

        def attempt() -> None:
            older = dict(self._cut(name, facts, batch, mark) for name, facts in later.items()
                         if batches_of(name, facts)[0] <= batch)  # fmt: skip
            self._commit(kind="rewind", intent=mark, add=older, remove=list(later))

        if later:
            self._persist(attempt, "go back")
            self._publish(self._manifest.files)
            for path in self._replaced():
                path.unlink(missing_ok=True)
            file_parts.forget(self._records.folder, self._manifest.files)
        return self._manifest.intent if self._manifest.job == self._opening.job else None

    def _cut(self, name: str, facts: Body, batch: int, mark: str) -> tuple[str, Body]:
        """What a file holds of batches up to one, as a draft."""
        folder = self._records.folder
        parts = [part for part in parts_of(folder, name, facts) or () if part[0] <= batch]
        rows, size = sum(part[1] for part in parts), sum(part[2] for part in parts)
        first, last = batches_of(name, facts)[0], max(part[0] for part in parts)
        cut = f"part-{first:010d}-to-{last:010d}-{mark[:8]}{formats.SUFFIX[self._format]}"
        self._draft(cut).unlink(missing_ok=True)
        made = formats.cut(self._draft(cut), self._format, self._folder / name, rows, size)
        file_parts.keep(folder, cut, parts)
        sync(folder)
        return cut, {**facts, "rows": rows, "bytes": made, "last": last}

    # -- compaction ---------------------------------------------------------------

    def _compact(self, batch: int) -> None:
        """Put files of one size together, so that a long run leaves few."""
        groups: defaultdict[tuple[int, str], list[str]] = defaultdict(list)
        for name, facts in self._manifest.files.items():
            groups[facts["level"], facts["columns"]].append(name)
        for (level, _), names in sorted(groups.items()):
            chosen = names[:TOGETHER]
            size = sum(self._manifest.files[name]["bytes"] for name in chosen)
            if len(chosen) == TOGETHER and size <= LARGEST:
                self._persist(partial(self._merge, batch, level, chosen), "put files together")
                return

    def _merge(self, batch: int, level: int, chosen: list[str]) -> None:
        files = self._manifest.files
        first = files[chosen[0]]
        name = (
            f"part-{chosen[0].split('-')[1]}-to-{batch:010d}-{level + 1}"
            + (formats.SUFFIX[self._format])
        )
        draft = self._draft(name)
        draft.unlink(missing_ok=True)
        paths = [(self._folder / part, files[part]["head"]) for part in chosen]
        size = formats.merge(draft, self._format, paths)
        sync(self._records.folder)
        rows = sum(files[part]["rows"] for part in chosen)
        merged = {**first, "rows": rows, "bytes": size, "level": level + 1,
                  "last": max(batches_of(part, files[part])[1] for part in chosen)}  # fmt: skip
        known = [parts_of(self._records.folder, part, files[part]) for part in chosen]
        if all(known):
            heads = (files[part]["head"] for part in chosen)
            parts = joined((some or [], head) for some, head in zip(known, heads, strict=True))
            file_parts.keep(self._records.folder, name, parts)
        self._commit(kind="compaction", add={name: merged}, remove=chosen)
        self._publish([name])
        for part in chosen:
            (self._folder / part).unlink(missing_ok=True)
        file_parts.forget(self._records.folder, self._manifest.files)

    # -- errors ----------------------------------------------------------------------

    def _persist(self, attempt: Callable[[], None], what: str) -> None:
        persist(attempt, what, where=self._where, opening=self._opening, errors=(OSError,),
                told=_told)  # fmt: skip

    def close(self) -> None:
        """Nothing is held."""


def _told(error: Exception) -> Told:
    """A full disk may be freed, a right given back: files wait."""
    return str(getattr(error, "strerror", None) or error), None
