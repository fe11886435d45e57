"""The checkpoint: one folder that holds all a job needs to continue.

    job                     the job's random id, made at the first start
    runs/<n>                one record per run; the highest number owns the job
    runs/<n>.lock           held by that run while its process is alive
    segments/<run>-<n>      the records of batches: intent, prepared, commit, rewind
    state/<step>/…          Arrow runs, referenced by commits
    archive/<run>-<n>       Arrow runs that only earlier commits refer to
    staged/…                rows on their way to sinks, referenced by prepared records
    dead/ late/             bad and late rows of a pipeline without topics

Files are never overwritten. A run appends to segments of its own, and what it wrote counts only if
it still owned the job once that was on disk: then the next run will read it. A run that finds a
newer one is fenced and stops.
"""

from __future__ import annotations

import uuid
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from millstream.engine.checkpoint import durable
from millstream.engine.checkpoint.fault_points import reached
from millstream.engine.checkpoint.ownership import OwnedFolder
from millstream.engine.checkpoint.protocol import Head, Intent, Prepared
from millstream.engine.checkpoint.records.appending import Appender
from millstream.engine.checkpoint.records.archive import Archive
from millstream.engine.checkpoint.records.heads import full_of, head_at
from millstream.engine.checkpoint.records.migration import migrate, remove_earlier
from millstream.engine.checkpoint.records.segments import FOLDER as SEGMENTS
from millstream.engine.checkpoint.records.segments import KEPT, Segments
from millstream.errors import Damaged, MillstreamError
from millstream.plan.names import folder_name

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.engine.checkpoint.records.compaction import KeptFile
    from millstream.engine.checkpoint.records.segments import Part, Place

FULL_EVERY = 100
MOST_SEGMENTS = 32


class Checkpoint(OwnedFolder):
    """One job's folder, opened by one run."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._job: dict[str, Any] | None = None
        self._full_at = 0
        self.newest: dict[str, Any] | None = None
        self._segments = Segments(folder)
        self._appender: Appender | None = None

    # -- identity and ownership -------------------------------------------------

    def open(
        self, pipeline: str, buckets: int, *, take_over: bool = False, despite_damage: bool = False
    ) -> None:
        """Create or open the folder and become its owner.

        `despite_damage` accepts a damaged last intent.

        Raises:
            AlreadyRunning: another run is alive and `take_over` is not set.
        """
        for part in ("", "runs", SEGMENTS, "state", "staged"):
            (self.folder / part).mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self.folder / "job"
        if not path.exists():
            if self._newest_run() or self.batches("intent"):
                raise durable.damaged(path, "no such file, but records of earlier runs")
            identity = {"job": uuid.uuid4().hex, "pipeline": pipeline, "buckets": buckets}
            durable.write_new(path, "job", identity)
        self._job = durable.read(path, "job")
        if self._job["pipeline"] != pipeline:
            raise MillstreamError(
                f"the checkpoint {self.folder} needs the pipeline {self._job['pipeline']!r}",
                got=repr(pipeline),
                do="choose another folder with --checkpoint",
            )
        self.become_owner(take_over=take_over)
        self._refuse_lost_runs(despite_damage=despite_damage)
        self._take_records_over(despite_damage=despite_damage)

    @property
    def job(self) -> str:
        """The job's random id."""
        return str(self._identity["job"])

    @property
    def buckets(self) -> int:
        """The number of buckets of its keys, fixed at the first start."""
        return int(self._identity["buckets"])

    @property
    def _identity(self) -> dict[str, Any]:
        if self._job is None:
            self._job = durable.read(self.folder / "job", "job")
        return self._job

    def _take_records_over(self, *, despite_damage: bool) -> None:
        """Write down which records count; what earlier runs append from now on does not.

        An earlier run looks for a newer one after each record it has appended, and stops if there
        is one. Its record is therefore read here, or it does nothing more.
        """
        self._segments.refresh()
        appender = Appender(self._segments, self.incarnation)
        if self._segments.root is None and self._segments.index:
            migrate(self._segments, appender, despite_damage=despite_damage)
        else:
            appender.start(self._segments.all_parts())
        remove_earlier(self.folder)
        self._appender = appender

    def _refuse_lost_runs(self, *, despite_damage: bool) -> None:
        """Numbers are used once, so the records of earlier runs must exist."""
        if self.incarnation > 1:
            durable.read(self.run_record(self.incarnation - 1), "run")
        wrote = self._records.newest_run
        if wrote >= self.incarnation:
            raise durable.damaged(self.run_record(wrote), "no such file, but records of this run")
        started = [(batch, kind) for kind in ("intent", "rewind") for batch in self.batches(kind)]
        for batch, kind in sorted(started)[-1:]:
            try:
                ran = self.read(batch, kind)["incarnation"]
            except Damaged:
                if despite_damage:
                    return
                raise
            if ran >= self.incarnation:
                raise durable.damaged(self.run_record(ran), "no such file, but a batch of this run")

    def close(self) -> None:
        """Release the lock, so that the next run can start."""
        if self._appender is not None:
            self._appender.close()
            self._appender = None
        self.release()

    # -- the records of a batch -------------------------------------------------

    @property
    def _records(self) -> Segments:
        """The records so far: of a job that others may run, those that can be read now."""
        if self._appender is None:
            self._segments.refresh()
        return self._segments

    def next_batch(self) -> int:
        """A number above every intent that counts."""
        return max((number for _, number in self._records.index), default=0) + 1

    def intend(self, intent: Intent) -> Intent:
        """Write an intent; the owner uses one that already exists."""
        body = self._write_once(intent.batch, "intent", intent.to_json())
        return Intent.from_json(body)

    def prepare(self, prepared: Prepared) -> Prepared:
        """Record the accepted attempt; the owner uses one that already exists."""
        body = self._write_once(prepared.batch, "prepared", prepared.to_json())
        return Prepared.from_json(body)

    def commit(self, head: Head, after: Head, prepared: Prepared, facts: dict[str, Any]) -> None:
        """Commit a batch, by one atomic record."""
        full = head.batch == 0 or after.batch - self._full_at >= FULL_EVERY
        changes = prepared.to_json()
        self._write_commit(head.batch, after, facts, full=full,
                           sources=changes["sources"], steps=changes["steps"])  # fmt: skip

    def begin_rewind(self, batch: int, body: dict[str, Any]) -> None:
        """Record that the job is to be rewound; the next run completes it if this one does not."""
        self._write_once(batch, "rewind", body)

    def commit_rewind(self, parent: int, after: Head, facts: dict[str, Any]) -> None:
        """Commit the state of an earlier commit again, under a new number."""
        self._write_commit(parent, after, facts, full=True, sources={}, steps={})

    def _write_commit(
        self, parent: int, after: Head, facts: dict[str, Any],
        *, full: bool, sources: dict[str, Any], steps: dict[str, Any],
    ) -> None:  # fmt: skip
        body = {
            "batch": after.batch,
            "parent": parent,
            "intent": after.intent,
            "clock": after.clock,
            "sources": sources,
            "steps": steps,
            "written": after.written,
            "finished": after.finished,
            "ends": after.ends,
            "facts": facts,
            "full": full_of(after) if full else None,
            "rewound": after.rewound and asdict(after.rewound),
            "table_ends": after.table_ends,
            "ended": after.ended,
        }
        self._write_once(after.batch, "commit", body)
        self.newest = body

    def lineage(self) -> list[int]:
        """The commits that led to the newest one, without those that were rewound."""
        rewinds = [self.read(number, "rewind") for number in self.batches("rewind")]
        return [
            batch
            for batch in self.batches("commit")
            if not any(rewind["to"] < batch < rewind["batch"] for rewind in rewinds)
        ]

    def _write_once(self, batch: int, kind: str, body: dict[str, Any]) -> dict[str, Any]:
        assert self._appender is not None, "records are written by the run that owns the job"
        self.owned()
        reached(f"before {kind}", batch)
        if self.has(batch, kind):
            return self.read(batch, kind)
        self._appender.append(kind, batch, body)
        self.owned()
        reached(f"after {kind}", batch)
        if kind == "commit" and body["full"] is not None:
            self._full_at = batch
        return body

    def has(self, batch: int, kind: str) -> bool:
        """Whether a batch has such a record."""
        return (kind, batch) in self._records.index

    def read(self, batch: int, kind: str) -> dict[str, Any]:
        """The body of a record.

        Raises:
            Damaged: it is missing or changed.
        """
        return self._records.read(kind, batch)

    def place(self, batch: int, kind: str) -> Place | None:
        """Where a record lies."""
        return self._records.index.get((kind, batch))

    def batches(self, kind: str) -> list[int]:
        """The numbers of all batches with such a record, ascending."""
        return self._records.numbers(kind)

    def read_commit(self, batch: int) -> dict[str, Any]:
        """The body of a commit."""
        return self.read(batch, "commit")

    def damage_after(self, batch: int) -> Damaged | None:
        """The error for unreadable records after a commit, if there are any."""
        gaps = [gap for gap in self._records.gaps if gap.after >= batch]
        return None if not gaps else durable.damaged(
            gaps[0].path, f"unreadable records at byte {gaps[0].at}, before others"
        )  # fmt: skip

    def pending(self, head: Head) -> tuple[Intent, Prepared | None] | None:
        """The batch that was in progress when the last run ended, if there was one.

        Raises:
            Damaged: one of its records is damaged, or an earlier one is missing.
        """
        later = [batch for kind in ("intent", "prepared") for batch in self.batches(kind)
                 if batch > head.batch]  # fmt: skip
        if not later:
            return None
        intent = Intent.from_json(self.read(max(later), "intent"))
        if intent.parent != head.batch:
            raise durable.damaged(
                self.folder / SEGMENTS,
                f"no commit of batch {intent.parent}, but a later batch that started from it",
            )
        if not self.has(intent.batch, "prepared"):
            return intent, None
        return intent, Prepared.from_json(self.read(intent.batch, "prepared"))

    def head(self, batch: int | None = None) -> Head:
        """The newest commit (or a given one), added up from the last full one.

        Raises:
            Damaged: a record that it needs is damaged, or for the newest one, may be.
        """
        commits = self.batches("commit")
        if not commits and batch is None and (damage := self.damage_after(0)) is not None:
            raise damage
        if not commits:
            return Head()
        head, base = head_at(commits[-1] if batch is None else batch, self.read_commit)
        if batch is None and (damage := self.damage_after(base)) is not None:
            raise damage
        self._full_at = base
        return head

    # -- clean-up ----------------------------------------------------------------

    @property
    def segments(self) -> Segments:
        """The records, for clean-up by the run that owns the job."""
        return self._segments

    def to_compact(
        self, least: int, share: int, *, always: bool
    ) -> tuple[tuple[Part, ...], Path | None]:
        """The segments to compact, all but a new one, and the file to compact them into.

        None until those that were never compacted have `least` bytes, and a `share`-th of what
        was: a long history is not rewritten for a few records. Many are compacted in any case.
        """
        assert self._appender is not None
        parts = self._appender.parts()
        kept = sum(part.length for part in parts if part.name.endswith(KEPT))
        fresh = sum(part.length for part in parts) - kept
        few = len(parts) < MOST_SEGMENTS
        if few and not always and fresh < max(least, kept // share):
            return (), None
        self.owned()
        self._appender.start(parts)
        return parts, self._appender.kept_path()

    def replace_segments(self, old: tuple[Part, ...], kept: KeptFile) -> None:
        """List compacted records instead of the segments they come from."""
        assert self._appender is not None
        self._appender.replace(old, [kept.part])
        self._segments.replaced({part.name for part in old}, kept.part.name, kept.entries)
        reached("segments replaced", 0)

    def remove_unlisted(self) -> None:
        """Delete segments that are not listed, and the records of old runs, oldest first."""
        assert self._appender is not None
        listed = {part.name for part in self._appender.parts()}
        for path in (self.folder / SEGMENTS).iterdir():
            if path.name not in listed and not path.name.startswith("."):
                path.unlink(missing_ok=True)
        self.forget_old_runs()

    def restore_state(self, head: Head) -> None:
        """Put the state files of an earlier commit back that are archived."""
        archive = Archive(self.folder)
        for step, state in head.steps.items():
            for table, manifest in state.manifests.items():
                for name in manifest.files:
                    if not (self.state_folder(step, table) / name).exists():
                        archive.restore(f"{folder_name(step)}/{table}/{name}")

    # -- folders ---------------------------------------------------------------

    def state_folder(self, step: str, table: str | None = None) -> Path:
        """The folder of a step's spec, or of the runs of one of its tables."""
        folder = self.folder / "state" / folder_name(step)
        folder = folder if table is None else folder / table
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder

    @property
    def staged(self) -> Path:
        """The folder of rows that wait for sinks."""
        return self.folder / "staged"
