"""The checkpoint: one folder that holds all a job needs to continue.

    job                     the job's random id, made at the first start
    runs/<n>                one record per run; the highest number owns the job
    runs/<n>.lock           held by that run while its process is alive
    batches/<n>.intent      .prepared  .commit  .rewind
    state/<step>/…          Arrow runs, referenced by commits
    staged/…                rows on their way to sinks, referenced by prepared records
    dead/ late/             bad and late rows of a pipeline without topics

Numbers are never reused and files never overwritten. A run that finds a record already written
checks whether it still owns the job: if so it uses that record, if not it is fenced and stops.
"""

from __future__ import annotations

import fcntl
import os
import socket
import time
import uuid
from dataclasses import asdict
from typing import IO, TYPE_CHECKING, Any

from millstream.engine.checkpoint import durable
from millstream.engine.checkpoint.fault_points import reached
from millstream.engine.checkpoint.protocol import (
    Head,
    Intent,
    Prepared,
    Rewound,
    SourceState,
    StepChange,
    StepState,
    ends_of,
)
from millstream.errors import AlreadyRunning, Damaged, Fenced, MillstreamError
from millstream.plan.names import folder_name

if TYPE_CHECKING:
    from pathlib import Path

FULL_EVERY = 100
STALE_SECONDS = 10.0


class Checkpoint:
    """One job's folder, opened by one run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.incarnation = 0
        self._lock: IO[str] | None = None
        self._job: dict[str, Any] | None = None
        self._full_at = 0

    # -- identity and ownership -------------------------------------------------

    def open(
        self, pipeline: str, buckets: int, *, take_over: bool = False, despite_damage: bool = False
    ) -> None:
        """Create or open the folder and become its owner.

        `despite_damage` accepts a damaged last intent.

        Raises:
            AlreadyRunning: another run is alive and `take_over` is not set.
        """
        for part in ("", "runs", "batches", "state", "staged"):
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
        self._become_owner(take_over=take_over)
        self._refuse_lost_runs(despite_damage=despite_damage)

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

    def _become_owner(self, *, take_over: bool) -> None:
        """Write the next run's record, under a lock held while this process is alive.

        The lock is taken before the record is visible, so a process that finds the record can
        check whether its run is alive.
        """
        record = {"pid": os.getpid(), "host": socket.gethostname(), "at": time.time()}
        while not self.incarnation:
            newest = self._newest_run()
            if newest and not take_over and not self._owner_is_frozen():
                self._take_lock(newest).close()
            self._lock = self._take_lock(newest + 1)
            self.beat()
            if durable.write_new(self._run(newest + 1), "run", record):
                self.incarnation = newest + 1
            else:
                self.close()

    def _refuse_lost_runs(self, *, despite_damage: bool) -> None:
        """Numbers are used once, so the records of earlier runs must exist."""
        if self.incarnation > 1:
            durable.read(self._run(self.incarnation - 1), "run")
        started = [(batch, kind) for kind in ("intent", "rewind") for batch in self.batches(kind)]
        for batch, kind in sorted(started)[-1:]:
            try:
                ran = durable.read(self.path(batch, kind), kind)["incarnation"]
            except Damaged:
                if despite_damage:
                    return
                raise
            if ran >= self.incarnation:
                raise durable.damaged(self._run(ran), "no such file, but a batch of this run")

    def _run(self, number: int) -> Path:
        return self.folder / "runs" / f"{number:08d}"

    def _take_lock(self, number: int) -> IO[str]:
        """Take the lock of a run; it fails while that run is alive or starting."""
        lock = self._run(number).with_suffix(".lock").open("a+")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            raise AlreadyRunning(
                f"a job can run once at a time: {self.folder} needs to be free",
                got=self._owner(),
                do="stop that run, or pass --take-over to fence it",
            ) from None
        return lock

    def _owner_is_frozen(self) -> bool:
        try:
            return time.time() - (self.folder / "beat").stat().st_mtime > STALE_SECONDS
        except FileNotFoundError:
            return False

    def _owner(self) -> str:
        number = self._newest_run()
        if not number:
            return "another run that is starting"
        run = durable.read(self._run(number), "run")
        return f"process {run['pid']} on {run['host']}"

    def beat(self) -> None:
        """Write a heartbeat; a run without one for ten seconds may be taken over."""
        (self.folder / "beat").touch()

    def _newest_run(self) -> int:
        names = (path.name for path in (self.folder / "runs").glob("[0-9]*"))
        return max((int(name) for name in names if name.isdecimal()), default=0)

    def owned(self) -> None:
        """Raise Fenced if another run has taken the job over."""
        if self._run(self.incarnation + 1).exists():
            raise Fenced(
                f"the job in {self.folder} needs one run at a time",
                got="a newer run has taken it over",
                do="leave it to the newer run; this one stops and changes nothing",
            )

    def close(self) -> None:
        """Release the lock, so that the next run can start."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    # -- the records of a batch -------------------------------------------------

    def next_batch(self) -> int:
        """A number above every intent ever written."""
        names = (path.name for path in (self.folder / "batches").glob("[0-9]*.*"))
        return max((int(name.split(".")[0]) for name in names), default=0) + 1

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
            "full": _full(after) if full else None,
            "rewound": after.rewound and asdict(after.rewound),
            "table_ends": after.table_ends,
            "ended": after.ended,
        }
        self._write_once(after.batch, "commit", body)

    def lineage(self) -> list[int]:
        """The commits that led to the newest one, without those that were rewound."""
        rewinds = [durable.read(self.path(n, "rewind"), "rewind") for n in self.batches("rewind")]
        return [
            batch
            for batch in self.batches("commit")
            if not any(rewind["to"] < batch < rewind["batch"] for rewind in rewinds)
        ]

    def _write_once(self, batch: int, kind: str, body: dict[str, Any]) -> dict[str, Any]:
        path = self.path(batch, kind)
        self.owned()
        reached(f"before {kind}", batch)
        if not durable.write_new(path, kind, body):
            self.owned()
            return durable.read(path, kind)
        reached(f"after {kind}", batch)
        if kind == "commit" and body["full"] is not None:
            self._full_at = batch
        return body

    def path(self, batch: int, kind: str) -> Path:
        """The path of a batch's record."""
        return self.folder / "batches" / f"{batch:010d}.{kind}"

    def batches(self, kind: str) -> list[int]:
        """The numbers of all batches with such a record, ascending."""
        return sorted(
            int(p.name.split(".")[0]) for p in (self.folder / "batches").glob(f"[0-9]*.{kind}")
        )

    def read_commit(self, batch: int) -> dict[str, Any]:
        """The body of a commit."""
        return durable.read(self.path(batch, "commit"), "commit")

    def pending(self, head: Head) -> tuple[Intent, Prepared | None] | None:
        """The batch that was in progress when the last run ended, if there was one.

        Raises:
            Damaged: one of its records is damaged, or an earlier one is missing.
        """
        later = [batch for kind in ("intent", "prepared") for batch in self.batches(kind)
                 if batch > head.batch]  # fmt: skip
        if not later:
            return None
        intent = Intent.from_json(durable.read(self.path(max(later), "intent"), "intent"))
        if intent.parent != head.batch:
            lost = self.path(intent.parent, "commit")
            raise durable.damaged(lost, "no such file, but a later batch that started from it")
        path = self.path(intent.batch, "prepared")
        prepared = Prepared.from_json(durable.read(path, "prepared")) if path.exists() else None
        return intent, prepared

    def head(self, batch: int | None = None) -> Head:
        """The newest commit (or a given one), added up from the last full one."""
        commits = self.batches("commit")
        if not commits:
            return Head()
        chain: list[dict[str, Any]] = []
        number = commits[-1] if batch is None else batch
        while True:
            body = self.read_commit(number)
            chain.append(body)
            if body["full"] is not None:
                break
            number = body["parent"]
        head = _from_full(chain.pop())
        self._full_at = head.batch
        for body in reversed(chain):
            head = _next_head(head, body)
        return head

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


def _full(head: Head) -> dict[str, Any]:
    return {
        "sources": {name: asdict(state) for name, state in head.sources.items()},
        "steps": {name: state.to_json() for name, state in head.steps.items()},
    }


def _from_full(body: dict[str, Any]) -> Head:
    full = body["full"]
    steps = {name: StepState.from_json(part) for name, part in full["steps"].items()}
    return _head(body, _sources(full), steps)


def _next_head(head: Head, body: dict[str, Any]) -> Head:
    steps = dict(head.steps)
    for name, part in body["steps"].items():
        steps[name] = steps.get(name, StepState()).then(StepChange.from_json(part))
    return _head(body, {**head.sources, **_sources(body)}, steps)


def _sources(body: dict[str, Any]) -> dict[str, SourceState]:
    return {name: SourceState.from_json(part) for name, part in body["sources"].items()}


def _head(
    body: dict[str, Any], sources: dict[str, SourceState], steps: dict[str, StepState]
) -> Head:
    return Head(
        batch=body["batch"],
        intent=body["intent"],
        clock=body["clock"],
        sources=sources,
        steps=steps,
        written=body["written"],
        finished=body["finished"],
        ends=ends_of(body["ends"]),
        rewound=Rewound.from_json(body.get("rewound")),
        table_ends=ends_of(body.get("table_ends")) or {},
        ended=body.get("ended"),
    )
