"""Writes a folder of files with a manifest."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from millstream.sinks.files import formats
from millstream.sinks.files import parts as file_parts
from millstream.sinks.files.parts import batches_of, concatenated, parts_of
from millstream.sinks.ownership import missing_entry
from millstream.sinks.record_log import FOLDER, Body, Records, read_all
from millstream.sinks.retries import Diagnosis, retry
from millstream.sinks.rows import appended
from millstream.toolchain.folders import refuse_file_above, sync_folder

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
    """The committed files and the last intent, as the records define them."""

    files: dict[str, Body] = field(default_factory=dict)
    intent: str | None = None
    job: str | None = None
    removed: set[str] = field(default_factory=set)
    full_at: int = 0

    def add(self, record: Body) -> None:
        """Apply the next record."""
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
    """Return the committed files of a folder, oldest rows first, from its manifest.

    Unlike a glob, this never shows a compaction half done.
    """
    return [path for path, _ in committed_rows(folder)]


def committed_rows(folder: Path) -> list[tuple[Path, int]]:
    """Return the committed files of a folder, each with its number of rows."""
    files = _manifest_of(read_all(folder / FOLDER)).files
    return [(folder / name, int(files[name]["rows"])) for name in sorted(files)]


def _manifest_of(records: Iterable[Body]) -> Manifest:
    manifest = Manifest()
    for record in records:
        manifest.add(record)
    return manifest


class FilesWriter:
    """Writes each batch as a file, and compacts small files when there are many."""

    def __init__(self, folder: Path, format: str, opening: Opening) -> None:
        self._folder, self._format, self._opening = folder, format, opening
        self._records = Records(folder, opening)
        self._manifest = Manifest()
        self._where = f"the folder {folder}"

    def recover(self, expected: str | None) -> str | None:
        """Claim the folder, and finish what a killed run had committed."""
        refuse_file_above(self._folder, f"the pipeline {self._opening.pipeline!r}")
        self._retry(self._claim, "open")
        if self._opening.delivery == "at_least_once":
            return expected
        mine = self._manifest.job == self._opening.job
        if expected is not None and (not mine or self._manifest.intent is None):
            owner = self._manifest.job
            raise missing_entry(str(self._records.folder), None if owner is None else owner[:8],
                                restore="restore the folder as that batch left it")  # fmt: skip
        return self._manifest.intent if mine else None

    def _claim(self) -> None:
        before = self._records.claim()
        self._manifest = _manifest_of(before)
        self._publish(self._manifest.files)
        for path in [*self._records.folder.glob(f"{_DRAFT}*"), *self._replaced()]:
            path.unlink(missing_ok=True)
        file_parts.remove_others(self._records.folder, self._manifest.files)

    def _replaced(self) -> list[Path]:
        return [self._folder / name for name in self._manifest.removed]

    def write(self, intent: str, batch: int, outputs: Sequence[Staged]) -> None:
        """Write and commit the files of a batch; retry while the disk rejects them."""
        drafts: dict[str, Body] = {}

        def attempt() -> None:
            self._records.check()
            drafts.update(self._write_drafts(intent, batch, outputs))
            self._opening.on_step("before a sink's commit")
            if self._opening.delivery != "at_least_once":
                self._commit(kind="batch", intent=intent, batch=batch, add=drafts)

        self._retry(attempt, f"take batch {batch}")
        self._opening.on_step("after a sink's commit")
        self._retry(lambda: self._publish(drafts), f"publish batch {batch}")
        if self._opening.delivery != "at_least_once":
            self._compact(batch)

    def _write_drafts(self, intent: str, batch: int, outputs: Sequence[Staged]) -> dict[str, Body]:
        """Write the rows as drafts, which readers ignore."""
        made: dict[str, Body] = {}
        for place, staged in enumerate(outputs):
            name = f"part-{batch:010d}-{place}-{intent[:8]}{formats.SUFFIX[self._format]}"
            draft = self._draft(name)
            draft.unlink(missing_ok=True)
            facts = formats.write(draft, self._format, appended(staged))
            if facts is not None:
                made[name] = {**facts, "level": 0, "last": batch}
        sync_folder(self._records.folder)
        return made

    def _draft(self, name: str) -> Path:
        return self._records.folder / f"{_DRAFT}{name}"

    def _commit(self, **body: Any) -> None:
        """Append the next record; this is the commit."""
        number = self._records.number + 1
        body = {"intent": self._manifest.intent, **body}
        full = None
        if number - self._manifest.full_at >= FULL_EVERY:
            full = self._manifest.files
        self._records.append(**body, full=full)
        self._manifest.add({**body, "full": full, "number": number, "job": self._opening.job})
        if full is not None:
            self._records.remove_before(number)

    def _publish(self, names: Iterable[str]) -> None:
        """Rename committed drafts into the folder."""
        moved = False
        for name in names:
            draft = self._draft(name)
            if draft.exists():
                draft.rename(self._folder / name)
                moved = True
        if moved:
            sync_folder(self._folder)

    # -- rewind -------------------------------------------------------------------

    def existing(self) -> list[str]:
        """The folder, if it is not empty."""
        used = self._folder.exists() and any(self._folder.iterdir())
        return [self._where] if used else []

    def rewind_obstacle(self, batch: int, intent: str | None) -> str | None:
        """A file with rows of earlier and later batches needs recorded parts."""
        if self._opening.delivery == "at_least_once":
            return f"{self._where} has no manifest, with at_least_once"
        for name, facts in _manifest_of(read_all(self._records.folder)).files.items():
            first, last = batches_of(name, facts)
            if first <= batch < last and parts_of(self._records.folder, name, facts) is None:
                return (
                    f"{self._where} has one file for the batches {first} to {last}, without "
                    f"recorded parts: rewind to before batch {first}, or to {last}"
                )
        return None

    def rewind(self, batch: int, intent: str | None, mark: str) -> str | None:
        """Remove all files of later batches in one commit; a file that also contains earlier
        batches is replaced by its earlier part."""
        later = {name: facts for name, facts in self._manifest.files.items()
                 if batches_of(name, facts)[1] > batch}  # fmt: skip

        def attempt() -> None:
            older = dict(self._cut(name, facts, batch, mark) for name, facts in later.items()
                         if batches_of(name, facts)[0] <= batch)  # fmt: skip
            self._commit(kind="rewind", intent=mark, add=older, remove=list(later))

        if later:
            self._retry(attempt, "rewind")
            self._publish(self._manifest.files)
            for path in self._replaced():
                path.unlink(missing_ok=True)
            file_parts.remove_others(self._records.folder, self._manifest.files)
        return self._manifest.intent if self._manifest.job == self._opening.job else None

    def _cut(self, name: str, facts: Body, batch: int, mark: str) -> tuple[str, Body]:
        """Copy the part of a file up to a batch to a draft."""
        folder = self._records.folder
        parts = [part for part in parts_of(folder, name, facts) or () if part[0] <= batch]
        rows, size = sum(part[1] for part in parts), sum(part[2] for part in parts)
        first, last = batches_of(name, facts)[0], max(part[0] for part in parts)
        cut = f"part-{first:010d}-to-{last:010d}-{mark[:8]}{formats.SUFFIX[self._format]}"
        self._draft(cut).unlink(missing_ok=True)
        made = formats.cut(self._draft(cut), self._format, self._folder / name, rows, size)
        file_parts.record(folder, cut, parts)
        sync_folder(folder)
        return cut, {**facts, "rows": rows, "bytes": made, "last": last}

    # -- compaction ---------------------------------------------------------------

    def _compact(self, batch: int) -> None:
        """Merge files of the same level, so that a long run leaves few files."""
        groups: defaultdict[tuple[int, str], list[str]] = defaultdict(list)
        for name, facts in self._manifest.files.items():
            groups[facts["level"], facts["columns"]].append(name)
        for (level, _), names in sorted(groups.items()):
            chosen = names[:TOGETHER]
            size = sum(self._manifest.files[name]["bytes"] for name in chosen)
            if len(chosen) == TOGETHER and size <= LARGEST:
                self._retry(partial(self._merge, batch, level, chosen), "compact files")
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
        sync_folder(self._records.folder)
        rows = sum(files[part]["rows"] for part in chosen)
        merged = {**first, "rows": rows, "bytes": size, "level": level + 1,
                  "last": max(batches_of(part, files[part])[1] for part in chosen)}  # fmt: skip
        known = [parts_of(self._records.folder, part, files[part]) for part in chosen]
        if all(known):
            heads = (files[part]["head"] for part in chosen)
            parts = concatenated(
                (some or [], head) for some, head in zip(known, heads, strict=True)
            )
            file_parts.record(self._records.folder, name, parts)
        self._commit(kind="compaction", add={name: merged}, remove=chosen)
        self._publish([name])
        for part in chosen:
            (self._folder / part).unlink(missing_ok=True)
        file_parts.remove_others(self._records.folder, self._manifest.files)

    # -- errors ----------------------------------------------------------------------

    def _retry(self, attempt: Callable[[], None], what: str) -> None:
        retry(attempt, what, where=self._where, opening=self._opening, errors=(OSError,),
                classify_error=_classify_error)  # fmt: skip

    def close(self) -> None:
        """Nothing to close."""


def _classify_error(error: Exception) -> Diagnosis:
    """All errors are temporary: disks get space, permissions are restored."""
    return str(getattr(error, "strerror", None) or error), None
