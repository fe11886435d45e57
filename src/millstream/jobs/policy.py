"""What to do about a job: a pure decision from what is wanted and what is seen.

Every state has one reason here. The supervisor asks again and again and does what it is told,
so a supervisor that was killed between asking and doing is simply asked anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from millstream.jobs.registry import JobRow, State

Action = Literal["nothing", "start", "stop", "kill", "settle", "forget"]

BACKOFF = (0.0, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
MOST_FAILURES = 10
STABLE = 60.0
FROZEN = 2.0
SILENT = 20.0
STUCK = 300.0
GRACE = 30.0
QUIET = 10.0
BEHIND = 5.0
HOPELESS = frozenset(
    {"InvalidSpec", "InvalidInput", "DataGone", "Damaged", "Fenced", "AlreadyFinished"}
)
FINISHED = "finished"


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How a run ended by its own account: `kind` names the error, or says it was finished."""

    code: int
    kind: str
    sentence: str


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A job's process as it looks from outside. Times are seconds from now.

    `silent` since it last said it is alive, `stuck` since its run last came round, `quiet`
    since it last read a row; `late_by` how long the unread records take at the present rate.
    """

    alive: bool
    frozen: bool = False
    silent: float = 0.0
    stuck: float = 0.0
    quiet: float = 0.0
    late_by: float = 0.0
    running: bool = False
    ending: Ending | None = None


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What to do now, and how the job stands."""

    action: Action
    state: State
    reason: str | None = None


def decide(job: JobRow, seen: Seen, now: float) -> Verdict:
    """What to do about a job."""
    if seen.alive:
        return _living(job, seen, now)
    if job.run is not None:
        return Verdict(action="settle", state=job.state, reason=job.reason)
    if job.wanted == "removed":
        return Verdict(action="forget", state="stopped")
    if job.wanted == "stopped":
        state: State = "failed" if job.state == "failed" and job.asked == job.ran else "stopped"
        return Verdict(action="nothing", state=state, reason=job.reason)
    if job.asked != job.ran:
        return Verdict(action="start", state="starting")
    if now < job.retry_at:
        return Verdict(action="nothing", state="failing", reason=job.reason)
    return Verdict(action="start", state="failing", reason=job.reason)


def _living(job: JobRow, seen: Seen, now: float) -> Verdict:
    if job.wanted != "running" or job.asked != job.ran:
        patient = job.stopping is None or now - job.stopping < GRACE
        if seen.frozen or not patient:
            return Verdict(action="kill", state=job.state, reason="it did not stop when asked to")
        return Verdict(action="nothing" if job.stopping else "stop", state=job.state)
    if seen.frozen and seen.silent > FROZEN:
        return Verdict(action="kill", state="hung", reason="its process was frozen")
    if seen.silent > SILENT:
        return Verdict(action="kill", state="hung",
                       reason=f"no sign of life for {seen.silent:.0f} s")  # fmt: skip
    if seen.running and seen.stuck > STUCK:
        return Verdict(action="nothing", state="hung",
                       reason=f"alive, but no progress for {seen.stuck:.0f} s")  # fmt: skip
    return Verdict(action="nothing", state=_pace(job, seen), reason=_why(job, seen))


def _pace(job: JobRow, seen: Seen) -> State:
    if not seen.running:
        return "failing" if job.failures else "starting"
    if seen.late_by > BEHIND:
        return "catching up"
    return "idle" if seen.quiet > QUIET else "running"


def _why(job: JobRow, seen: Seen) -> str | None:
    return job.reason if job.failures and not seen.running else None


@dataclass(frozen=True, kw_only=True)
class Settled:
    """What a run's end means for its job."""

    failures: int
    restarts: int
    retry_at: float
    wanted: Literal["running", "stopped", "removed"]
    state: State
    reason: str | None


def settle(job: JobRow, ending: Ending | None, now: float) -> Settled:
    """Deal with the end of a run: was it wished for, is it final, when is the next one due?"""
    lived = now - (job.launched or now)
    failures = 1 if lived > STABLE else job.failures + 1
    if job.wanted != "running" or job.asked != job.ran:
        wished: State = "starting" if job.wanted == "running" else "stopped"
        return Settled(failures=0, restarts=job.restarts, retry_at=0.0, wanted=job.wanted,
                       state=wished, reason=None)  # fmt: skip
    if ending is not None and ending.kind == FINISHED:
        return Settled(failures=0, restarts=job.restarts, retry_at=0.0, wanted="stopped",
                       state="stopped", reason=ending.sentence)  # fmt: skip
    reason = _told(job, ending)
    if (ending is not None and ending.kind in HOPELESS) or failures > MOST_FAILURES:
        return Settled(failures=failures, restarts=job.restarts, retry_at=0.0, wanted="stopped",
                       state="failed", reason=reason)  # fmt: skip
    wait = BACKOFF[min(failures, len(BACKOFF)) - 1]
    return Settled(failures=failures, restarts=job.restarts + 1, retry_at=now + wait,
                   wanted="running", state="failing", reason=reason)  # fmt: skip


def _told(job: JobRow, ending: Ending | None) -> str:
    if ending is not None:
        return ending.sentence
    return job.reason or "it hung" if job.state == "hung" else "its process was killed"
