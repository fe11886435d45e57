"""The supervisor's decisions: pure functions of a job's desired and observed state.

The supervisor evaluates them again and again and carries out the result. One that is killed in
between is replaced by another that comes to the same decision.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from millstream.jobs.registry import JobRow, State
    from millstream.outages import Outage

Action = Literal["nothing", "start", "stop", "kill", "settle", "forget"]

BACKOFF = (0.0, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
MOST_FAILURES = 10
STABLE_AFTER = 60.0
FROZEN_TIMEOUT = 2.0
HEARTBEAT_TIMEOUT = 20.0
PROGRESS_TIMEOUT = 300.0
STOP_TIMEOUT = 30.0
IDLE_AFTER = 10.0
CATCHING_UP_AFTER = 5.0
FINAL_ERRORS = frozenset(
    {"InvalidSpec", "InvalidInput", "NotFound", "Refused", "DataGone", "Damaged", "Fenced",
     "AlreadyFinished"}
)  # fmt: skip
HEALS = frozenset({"Unavailable", "Lost"})
RETRY_SECONDS = 5.0
FINISHED = "finished"
CATCHING_UP = "catching up: unread records take longer than five seconds"
_KILLED = "its process was killed"


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How a run ended, as it reported: `kind` is the error's class, `stopped` or `finished`."""

    code: int
    kind: str
    sentence: str


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A job's process as observed from outside. Times are in seconds.

    `heartbeat_age` is the time since the last heartbeat, `loop_age` since the run last completed
    a round of its loop, `idle_for` since it last read a row; `catch_up_time` is how long the
    unread records take at the current rate. `outages` are the systems that are down, `warnings` are
    about its unread records.
    """

    alive: bool
    frozen: bool = False
    heartbeat_age: float = 0.0
    loop_age: float = 0.0
    idle_for: float = 0.0
    catch_up_time: float = 0.0
    running: bool = False
    outages: tuple[Outage, ...] = ()
    warnings: tuple[str, ...] = ()
    ending: Ending | None = None


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The action to take, and the job's state and its reason."""

    action: Action
    state: State
    reason: str | None = None


def decide(job: JobRow, seen: Seen, now: float) -> Verdict:
    """Decide what to do about a job."""
    if seen.alive:
        return _living(job, seen, now)
    if job.run is not None:
        return Verdict(action="settle", state=job.state, reason=job.reason)
    if job.wanted == "removed":
        return Verdict(action="forget", state="stopped")
    if job.wanted == "stopped":
        ended: tuple[State, ...] = ("failed", "finished")
        state: State = job.state if job.state in ended and job.asked == job.ran else "stopped"
        return Verdict(action="nothing", state=state, reason=job.reason)
    if job.asked != job.ran:
        return Verdict(action="start", state="starting")
    return Verdict(action="nothing" if now < job.retry_at else "start", state=_between_runs(job),
                   reason=job.reason)  # fmt: skip


def _between_runs(job: JobRow) -> State:
    """The state until the next run works: why the last one ended."""
    if job.state == "waiting":
        return "waiting"
    return "failing" if job.failures else "starting"


def _living(job: JobRow, seen: Seen, now: float) -> Verdict:
    if job.wanted != "running" or job.asked != job.ran:
        patient = job.stopping is None or now - job.stopping < STOP_TIMEOUT
        if seen.frozen or not patient:
            return Verdict(action="kill", state=job.state, reason="it did not stop in time")
        return Verdict(action="nothing" if job.stopping else "stop", state=job.state)
    if seen.frozen and seen.heartbeat_age > FROZEN_TIMEOUT:
        return Verdict(action="kill", state="failing", reason=f"{_KILLED}: it was suspended")
    if seen.heartbeat_age > HEARTBEAT_TIMEOUT:
        silent = f"{_KILLED}: no heartbeat for {seen.heartbeat_age:.0f} s"
        return Verdict(action="kill", state="failing", reason=silent)
    state, reason = _state_of_process(job, seen)
    return Verdict(action="nothing", state=state, reason=reason)


def _state_of_process(job: JobRow, seen: Seen) -> tuple[State, str | None]:
    """What a job with a process does: what keeps it from working comes first."""
    for outage in seen.outages:
        if outage.kind == "waiting":
            return "waiting", f"waiting for {outage.sentence()}"
    if not seen.running:
        return _between_runs(job), job.reason if _between_runs(job) != "starting" else None
    troubles = [outage.sentence() for outage in seen.outages] + list(seen.warnings)
    if seen.loop_age > PROGRESS_TIMEOUT:
        troubles.insert(0, f"no progress for more than {PROGRESS_TIMEOUT:.0f} s")
    if troubles:
        return "degraded", troubles[0]
    if seen.catch_up_time > CATCHING_UP_AFTER:
        return "running", CATCHING_UP
    return ("idle" if seen.idle_for > IDLE_AFTER else "running"), None


@dataclass(frozen=True, kw_only=True)
class Settled:
    """The job's columns after the end of a run."""

    failures: int
    restarts: int
    retry_at: float
    wanted: Literal["running", "stopped", "removed"]
    state: State
    reason: str | None


def settle(job: JobRow, ending: Ending | None, now: float) -> Settled:
    """Decide what follows the end of a run: whether it is final, and when to restart."""
    lived = now - (job.launched or now)
    failures = 1 if lived > STABLE_AFTER else job.failures + 1
    if job.wanted != "running" or job.asked != job.ran:
        state: State = "starting" if job.wanted == "running" else "stopped"
        return Settled(failures=0, restarts=job.restarts, retry_at=0.0, wanted=job.wanted,
                       state=state, reason=None)  # fmt: skip
    if ending is not None and ending.kind == FINISHED:
        return Settled(failures=0, restarts=job.restarts, retry_at=0.0, wanted="stopped",
                       state="finished", reason=ending.sentence)  # fmt: skip
    reason = _reason(job, ending)
    if ending is not None and ending.kind in HEALS:
        wait = 0.0 if lived > STABLE_AFTER else RETRY_SECONDS
        return Settled(failures=job.failures, restarts=job.restarts + 1, retry_at=now + wait,
                       wanted="running", state="waiting", reason=reason)  # fmt: skip
    if (ending is not None and ending.kind in FINAL_ERRORS) or failures > MOST_FAILURES:
        return Settled(failures=failures, restarts=job.restarts, retry_at=0.0, wanted="stopped",
                       state="failed", reason=reason)  # fmt: skip
    wait = BACKOFF[min(failures, len(BACKOFF)) - 1]
    return Settled(failures=failures, restarts=job.restarts + 1, retry_at=now + wait,
                   wanted="running", state="failing", reason=reason)  # fmt: skip


def _reason(job: JobRow, ending: Ending | None) -> str:
    if ending is not None:
        return ending.sentence
    return job.reason if job.reason and job.reason.startswith(_KILLED) else _KILLED
