"""The supervisor: looks at every job again and again, and does what the policy says.

It holds nothing in memory that matters. What is wanted stands in the book, whether a process
lives is told by its lock, what it did by its diary: a supervisor that was killed is replaced by
another that looks at the same things and goes on. Jobs live on meanwhile.
"""

from __future__ import annotations

import shutil
import signal
import threading
import time
import uuid
from typing import TYPE_CHECKING

from millstream.jobs import policy, process
from millstream.jobs.alerts.rules import AlertWatch
from millstream.jobs.folders import StackPlace, stack_place
from millstream.jobs.logs import Log, rotate_open_file
from millstream.jobs.registry import Book
from millstream.jobs.reports.lag import LagWatch
from millstream.jobs.reports.run_log import RUNNING, DiaryReader
from millstream.jobs.stack import PARTS, UP, keep
from millstream.kafka.local import running as local

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import psutil

    from millstream.jobs.registry import JobRow

_TURN = 0.2
_RATE_WINDOW = 5.0
_ASLEEP = 5.0


class Supervisor:
    """The jobs of one stack, watched by one process.

    Silence counts from when the supervisor itself was last awake: a laptop that was closed for
    an hour has not made its jobs hang.
    """

    def __init__(self, place: StackPlace, lag: Callable[[str], int | None], log: Log) -> None:
        self._place, self._lag, self._log = place, lag, log
        self._book = Book(place.book)
        self._diaries: dict[str, DiaryReader] = {}
        self._turned = self._awake = time.time()

    def wanted(self) -> bool:
        """Whether the stack is meant to be up."""
        return self._book.setting(UP) is not None

    def turn(self) -> None:
        """Look at every job once, and do what is to be done."""
        keep(self._place, "console", up=self.wanted())
        for printed in (*map(self._place.output, PARTS), *local.outputs()):
            rotate_open_file(printed)
        now = time.time()
        if now - self._turned > _ASLEEP:
            self._awake = now
        for job in self._book.all():
            self._deal(job, now)
        self._turned = time.time()

    def close(self) -> None:
        """Let go of files; jobs are left as they are."""
        for diary in self._diaries.values():
            diary.close()
        self._book.close()

    def _deal(self, job: JobRow, now: float) -> None:
        seen = self._seen(job, now)
        verdict = policy.decide(job, seen, now)
        if verdict.state != job.state or verdict.reason != job.reason:
            self._stands(job, verdict, now)
        if verdict.action == "start":
            self._start(job, now)
        elif verdict.action == "stop":
            self._book.note(job.name, "stopping", stopping=now)
            process.ask_to_stop(self._place.job(job.name))
        elif verdict.action == "kill":
            self._log("kill", "warning", pipeline=job.name, run=job.run, reason=verdict.reason)
            self._book.tell("killed", verdict.reason, job.name)
            process.kill(self._place.job(job.name), job.run)
        elif verdict.action == "settle":
            self._settle(job, seen.ending, now)
        elif verdict.action == "forget":
            self._forget(job)

    def _stands(self, job: JobRow, verdict: policy.Verdict, now: float) -> None:
        since = {"since": now} if verdict.state != job.state else {}
        event = verdict.state if verdict.state != job.state else None
        self._book.note(job.name, event, verdict.reason, state=verdict.state,
                        reason=verdict.reason, **since)  # fmt: skip
        if event:
            self._log("state", pipeline=job.name, state=event, reason=verdict.reason)

    def _start(self, job: JobRow, now: float) -> None:
        """The run is in the book before it is launched, so that none is ever forgotten."""
        run = uuid.uuid4().hex
        self._book.note(job.name, "launched", run, run=run, ran=job.asked, launched=now,
                        stopping=None)  # fmt: skip
        launched = process.launch(self._place.job(job.name), job.name, run)
        self._log("launch" if launched else "found alive", pipeline=job.name, run=run)

    def _settle(self, job: JobRow, ending: policy.Ending | None, now: float) -> None:
        assert job.run is not None
        swept = process.sweep(job.run, process.TIDY)
        settled = policy.settle(job, ending, now)
        self._book.note(
            job.name, "ended", settled.reason or (ending.sentence if ending else None),
            run=None, stopping=None, failures=settled.failures, restarts=settled.restarts,
            retry_at=settled.retry_at, wanted=settled.wanted, state=settled.state, since=now,
            reason=settled.reason,
        )  # fmt: skip
        self._log("ended", "info" if ending and ending.code == 0 else "warning", pipeline=job.name,
                  run=job.run, state=settled.state, reason=settled.reason, swept=swept)  # fmt: skip

    def _forget(self, job: JobRow) -> None:
        diary = self._diaries.pop(job.name, None)
        if diary is not None:
            diary.close()
        shutil.rmtree(self._place.job(job.name).path, ignore_errors=True)
        self._book.forget(job.name)
        self._log("removed", pipeline=job.name)

    # -- what a job looks like ---------------------------------------------------

    def _seen(self, job: JobRow, now: float) -> policy.Seen:
        place = self._place.job(job.name)
        diary = self._diaries.setdefault(job.name, DiaryReader(place.facts))
        if not place.life.held():
            entry = None if job.run is None else diary.run(job.run)
            return policy.Seen(alive=False, ending=entry.ending if entry else None)
        holder: psutil.Process | None = place.life.holder()
        entry = diary.run(job.run)
        launched = job.launched or now
        if entry is None:
            return policy.Seen(alive=True, silent=now - max(launched, self._awake),
                               frozen=holder is not None and process.is_frozen(holder))  # fmt: skip
        rate = diary.rows_since(now - _RATE_WINDOW) / _RATE_WINDOW
        lag = self._lag(job.name) or 0
        return policy.Seen(
            alive=True,
            frozen=holder is not None and process.is_frozen(holder),
            silent=now - max(entry.beat, self._awake),
            stuck=now - max(entry.turned, self._awake),
            quiet=now - max(entry.began, diary.last_rows_at() or 0.0),
            late_by=lag / rate if rate else (policy.BEHIND + 1 if lag > 1000 else 0.0),
            running=entry.phase.startswith(RUNNING),
        )


def run(home: Path | None = None) -> None:
    """Supervise until SIGTERM or SIGINT; the process holds the lock it was launched with."""
    place = stack_place(home)
    place.make()
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    log = Log(place.log("supervisor"), process="supervisor")
    log("supervisor began")
    watch = LagWatch(place, log)
    watch.start()
    alerts = AlertWatch(place, watch.of, log)
    alerts.start()
    supervisor = Supervisor(place, watch.of, log)
    try:
        while not ended.is_set() and supervisor.wanted():
            began = time.monotonic()
            _guarded(supervisor, log)
            ended.wait(max(0.01, _TURN - (time.monotonic() - began)))
    finally:
        alerts.close()
        watch.close()
        supervisor.close()
        log("supervisor ended")
        log.close()


def _guarded(supervisor: Supervisor, log: Log) -> None:
    """One turn; what goes wrong in it is written down and tried again in the next."""
    try:
        supervisor.turn()
    except Exception as error:
        log("turn failed", "error", kind=type(error).__name__, error=str(error))


if __name__ == "__main__":
    run()
