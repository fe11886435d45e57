"""The checkpoint: one folder that holds all a job needs to go on.

    job                     who this is: a random id, made at the first start
    runs/<n>                one record per run; the highest number owns the job
    runs/<n>.lock           held by that run as long as its process lives
    batches/<n>.intent      .prepared  .commit  .rewind
    state/<step>/…          Arrow runs, named by commits
    staged/…                rows on their way to sinks, named by prepared records
    dead/ late/             bad and late rows of a pipeline without topics

Numbers are never used twice, files never overwritten. Whoever loses the race for a
name looks at the runs: the owner adopts the record it found, anyone else has been
fenced and stops.
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
        """Make or open the folder and become its owner; `despite_damage` of the last intent.

        Raises:
            AlreadyRunning: another run is alive, and `take_over` was not said.
        """
        for part in ("", "runs", "batches", "state", "staged"):
            (self.folder / part).mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self.folder / "job"
        if not path.exists():
            if self._newest_run() or self.batches("intent"):
                raise durable.damaged(path, "no such file, though earlier runs left theirs")
            identity = {"job": uuid.uuid4().hex, "pipeline": pipeline, "buckets": buckets}
            durable.write_new(path, "job", identity)
        self._job = durable.read(path, "job")
        if self._job["pipeline"] != pipeline:
            raise MillstreamError(
                f"the checkpoint {self.folder} needs the pipeline {self._job['pipeline']!r}",
                got=repr(pipeline),
                do="name another folder with --checkpoint",
            )
        self._become_owner(take_over=take_over)
        self._refuse_lost_runs(despite_damage=despite_damage)

    @property
    def job(self) -> str:
        """The job's own random id."""
        return str(self._identity["job"])

    @property
    def buckets(self) -> int:
        """Into how many buckets its keys fall, fixed at the first start."""
        return int(self._identity["buckets"])

    @property
    def _identity(self) -> dict[str, Any]:
        if self._job is None:
            self._job = durable.read(self.folder / "job", "job")
        return self._job

    def _become_owner(self, *, take_over: bool) -> None:
        """Write the next run's record, under a lock that lives as long as this process.

        The lock is taken before its record is seen: whoever finds the record can tell
        whether its run is alive.
        """
        record = {"pid": os.getpid(), "host": socket.gethostname(), "at": time.time()}
        while not self.incarnation:
            newest = self._newest_run()
            if newest and not take_over and not self._owner_is_frozen():
                self._locked(newest).close()
            self._lock = self._locked(newest + 1)
            self.beat()
            if durable.write_new(self._run(newest + 1), "run", record):
                self.incarnation = newest + 1
            else:
                self.close()

    def _refuse_lost_runs(self, *, despite_damage: bool) -> None:
        """A number is used once: the runs before this one have left their records."""
        if self.incarnation > 1:
            durable.read(self._run(self.incarnation - 1), "run")
        begun = [(batch, kind) for kind in ("intent", "rewind") for batch in self.batches(kind)]
        for batch, kind in sorted(begun)[-1:]:
            try:
                ran = durable.read(self.path(batch, kind), kind)["incarnation"]
            except Damaged:
                if despite_damage:
                    return
                raise
            if ran >= self.incarnation:
                raise durable.damaged(self._run(ran), "no such file, though it ran a batch")

    def _run(self, number: int) -> Path:
        return self.folder / "runs" / f"{number:08d}"

    def _locked(self, number: int) -> IO[str]:
        """The lock of a run, taken; a run that is alive, or just starting, refuses it."""
        lock = self._run(number).with_suffix(".lock").open("a+")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            raise AlreadyRunning(
                f"one job has one runner: {self.folder} needs to be free",
                got=self._owner(),
                do="stop that run, or say --take-over to shut it out",
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
            return "another run that is just starting"
        run = durable.read(self._run(number), "run")
        return f"process {run['pid']} on {run['host']}"

    def beat(self) -> None:
        """Say that this run is alive; a run that stops saying so may be taken over."""
        (self.folder / "beat").touch()

    def _newest_run(self) -> int:
        names = (path.name for path in (self.folder / "runs").glob("[0-9]*"))
        return max((int(name) for name in names if name.isdecimal()), default=0)

    def owned(self) -> None:
        """Raise Fenced if another run has taken the job over."""
        if self._run(self.incarnation + 1).exists():
            raise Fenced(
                f"the job in {self.folder} needs one runner",
                got="a newer run has taken it over",
                do="let that one work; this one stops and changes nothing",
            )

    def close(self) -> None:
        """Let the next run in."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    # -- the records of a batch -------------------------------------------------

    def next_batch(self) -> int:
        """A number above every intent ever written."""
        names = (path.name for path in (self.folder / "batches").glob("[0-9]*.*"))
        return max((int(name.split(".")[0]) for name in names), default=0) + 1

    def intend(self, intent: Intent) -> Intent:
        """Make an intent durable; the owner adopts one that is already there."""
        body = self._settle(intent.batch, "intent", intent.body())
        return Intent.of(body)

    def prepare(self, prepared: Prepared) -> Prepared:
        """Make the accepted attempt durable; the owner adopts one that is already there."""
        body = self._settle(prepared.batch, "prepared", prepared.body())
        return Prepared.of(body)

    def commit(self, head: Head, after: Head, prepared: Prepared, facts: dict[str, Any]) -> None:
        """The one atomic record that makes a batch true."""
        full = head.batch == 0 or after.batch - self._full_at >= FULL_EVERY
        body = {
            "batch": after.batch,
            "parent": head.batch,
            "intent": after.intent,
            "clock": after.clock,
            "sources": prepared.body()["sources"],
            "steps": prepared.body()["steps"],
            "written": after.written,
            "finished": after.finished,
            "ends": after.ends,
            "facts": facts,
            "full": _full(after) if full else None,
            "rewound": after.rewound and asdict(after.rewound),
            "table_ends": after.table_ends,
            "ended": after.ended,
        }
        self._settle(after.batch, "commit", body)

    def begin_rewind(self, batch: int, body: dict[str, Any]) -> None:
        """From here on the job will be rewound, by whoever opens it next."""
        self._settle(batch, "rewind", body)

    def commit_rewind(self, parent: int, after: Head, facts: dict[str, Any]) -> None:
        """The state of an earlier commit, true once more under a number of its own."""
        body = {
            "batch": after.batch,
            "parent": parent,
            "intent": after.intent,
            "clock": after.clock,
            "sources": {},
            "steps": {},
            "written": after.written,
            "finished": after.finished,
            "ends": after.ends,
            "facts": facts,
            "full": _full(after),
            "rewound": after.rewound and asdict(after.rewound),
            "table_ends": after.table_ends,
            "ended": after.ended,
        }
        self._settle(after.batch, "commit", body)

    def lineage(self) -> list[int]:
        """The commits that led to the newest one: those that a rewind left behind are not among
        them."""
        rewinds = [durable.read(self.path(n, "rewind"), "rewind") for n in self.batches("rewind")]
        return [
            batch
            for batch in self.batches("commit")
            if not any(going["to"] < batch < going["batch"] for going in rewinds)
        ]

    def _settle(self, batch: int, kind: str, body: dict[str, Any]) -> dict[str, Any]:
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
        """Where a batch's record lies."""
        return self.folder / "batches" / f"{batch:010d}.{kind}"

    def batches(self, kind: str) -> list[int]:
        """The numbers of all batches with such a record, ascending."""
        return sorted(
            int(p.name.split(".")[0]) for p in (self.folder / "batches").glob(f"[0-9]*.{kind}")
        )

    def read_commit(self, batch: int) -> dict[str, Any]:
        """One commit's body."""
        return durable.read(self.path(batch, "commit"), "commit")

    def pending(self, head: Head) -> tuple[Intent, Prepared | None] | None:
        """The batch that was under way when the last run ended, if there was one.

        Raises:
            Damaged: one of its records cannot be trusted, or an earlier one is missing.
        """
        later = [batch for kind in ("intent", "prepared") for batch in self.batches(kind)
                 if batch > head.batch]  # fmt: skip
        if not later:
            return None
        intent = Intent.of(durable.read(self.path(max(later), "intent"), "intent"))
        if intent.parent != head.batch:
            lost = self.path(intent.parent, "commit")
            raise durable.damaged(lost, "no such file, though a later batch was begun from it")
        path = self.path(intent.batch, "prepared")
        prepared = Prepared.of(durable.read(path, "prepared")) if path.exists() else None
        return intent, prepared

    def head(self, batch: int | None = None) -> Head:
        """Where the job stands: the newest commit (or a given one), added up from the last full."""
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
            head = _followed(head, body)
        return head

    # -- folders ---------------------------------------------------------------

    def state_folder(self, step: str, table: str | None = None) -> Path:
        """Where a step's spec lies, or the runs of one of its tables."""
        folder = self.folder / "state" / folder_name(step)
        folder = folder if table is None else folder / table
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder

    @property
    def staged(self) -> Path:
        """Where rows wait for sinks."""
        return self.folder / "staged"


def _full(head: Head) -> dict[str, Any]:
    return {
        "sources": {name: _source(state) for name, state in head.sources.items()},
        "steps": {name: state.body() for name, state in head.steps.items()},
    }


def _source(state: SourceState) -> dict[str, Any]:
    return {"next": state.next, "times": state.times, "watermark": state.watermark,
            "identity": state.identity}  # fmt: skip


def _from_full(body: dict[str, Any]) -> Head:
    full = body["full"]
    return Head(
        batch=body["batch"],
        intent=body["intent"],
        clock=body["clock"],
        sources={name: SourceState.of(part) for name, part in full["sources"].items()},
        steps={name: StepState.of(part) for name, part in full["steps"].items()},
        written=body["written"],
        finished=body["finished"],
        ends=ends_of(body["ends"]),
        rewound=Rewound.of(body.get("rewound")),
        table_ends=ends_of(body.get("table_ends")) or {},
        ended=body.get("ended"),
    )


def _followed(head: Head, body: dict[str, Any]) -> Head:
    steps = dict(head.steps)
    for name, part in body["steps"].items():
        steps[name] = steps.get(name, StepState()).then(StepChange.of(part))
    sources = {name: SourceState.of(part) for name, part in body["sources"].items()}
    return Head(
        batch=body["batch"],
        intent=body["intent"],
        clock=body["clock"],
        sources={**head.sources, **sources},
        steps=steps,
        written=body["written"],
        finished=body["finished"],
        ends=ends_of(body["ends"]),
        rewound=Rewound.of(body.get("rewound")),
        table_ends=ends_of(body.get("table_ends")) or {},
        ended=body.get("ended"),
    )
