"""The supervisor: observes every job again and again, and carries out the policy's decisions.

It keeps nothing important in memory: the desired state is in the job registry, a lock shows
whether a process runs, the run log what it did. A supervisor that was killed is replaced by
another that reads the same; jobs keep running meanwhile.
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
from millstream.jobs.folders import StackFolder, stack_folder
from millstream.jobs.logs import Log, rotate_open_file
from millstream.jobs.registry import JobRegistry
from millstream.jobs.reports.lag import LagWatch
from millstream.jobs.reports.run_log import RUNNING, RunLogReader
from millstream.jobs.stack import PARTS, UP, end_shared_spark, ensure_running
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
    """Supervises the jobs of one stack.

    Heartbeats are overdue only while the supervisor itself was awake: a laptop that was closed
    for an hour does not make its jobs hang.
    """

    def __init__(
        self,
        stack: StackFolder,
        lag: Callable[[str], int | None],
        log: Log,
        warnings: Callable[[str], tuple[str, ...]] = lambda job: (),
    ) -> None:
        self._stack, self._lag, self._warnings, self._log = stack, lag, warnings, log
        self._registry = JobRegistry(stack.registry)
        self._run_logs: dict[str, RunLogReader] = {}
        self._turned = self._awake = time.time()

    def should_run(self) -> bool:
        """Whether the stack is meant to be up."""
        return self._registry.setting(UP) is not None

    def turn(self) -> None:
        """Check every job once, and do what the policy decides."""
        ensure_running(self._stack, "console", up=self.should_run())
        for printed in (*map(self._stack.output, (*PARTS, "spark")), *local.output_files()):
            rotate_open_file(printed)
        now = time.time()
        if now - self._turned > _ASLEEP:
            self._awake = now
        jobs = self._registry.all()
        self._care_for_shared_spark([job for job in jobs if job.share])
        for job in jobs:
            self._handle(job, now)
        self._turned = time.time()

    def close(self) -> None:
        """Close files; jobs keep running."""
        for run_log in self._run_logs.values():
            run_log.close()
        self._registry.close()

    def _care_for_shared_spark(self, sharing: list[JobRow]) -> None:
        """Run the shared application while a job is meant to use it, or still does."""
        wanted = any(job.wanted == "running" for job in sharing)
        if ensure_running(self._stack, "spark", up=wanted and self.should_run()):
            self._log("launch", part="spark")
        used = wanted or any(self._stack.job(job.name).lock.held() for job in sharing)
        if not used and self._stack.lock("spark").held():
            end_shared_spark(self._stack)

    def _handle(self, job: JobRow, now: float) -> None:
        seen = self._observe(job, now)
        verdict = policy.decide(job, seen, now)
        if verdict.state != job.state or verdict.reason != job.reason:
            self._record_state(job, verdict, now)
        if verdict.action == "start":
            self._start(job, now)
        elif verdict.action == "stop":
            self._registry.update(job.name, "stopping", stopping=now)
            process.ask_to_stop(self._stack.job(job.name))
        elif verdict.action == "kill":
            self._log("kill", "warning", pipeline=job.name, run=job.run, reason=verdict.reason)
            self._registry.add_event("killed", verdict.reason, job.name)
            process.kill(self._stack.job(job.name), job.run)
        elif verdict.action == "settle":
            self._settle(job, seen.ending, now)
        elif verdict.action == "forget":
            self._forget(job)

    def _record_state(self, job: JobRow, verdict: policy.Verdict, now: float) -> None:
        since = {"since": now} if verdict.state != job.state else {}
        event = verdict.state if verdict.state != job.state else None
        self._registry.update(job.name, event, verdict.reason, state=verdict.state,
                        reason=verdict.reason, **since)  # fmt: skip
        if event:
            self._log("state", pipeline=job.name, state=event, reason=verdict.reason)

    def _start(self, job: JobRow, now: float) -> None:
        """Record the run before launching it, so that a crash in between loses no process."""
        run = uuid.uuid4().hex
        self._registry.update(job.name, "launched", run, run=run, ran=job.asked, launched=now,
                        stopping=None)  # fmt: skip
        launched = process.launch(
            self._stack.job(job.name), job.name, run,
            shared_spark=self._stack.shared_spark if job.share else None,
        )  # fmt: skip
        self._log("launch" if launched else "found alive", pipeline=job.name, run=run)

    def _settle(self, job: JobRow, ending: policy.Ending | None, now: float) -> None:
        assert job.run is not None
        swept = process.sweep(job.run, process.TIDY)
        settled = policy.settle(job, ending, now)
        self._registry.update(
            job.name, "ended", settled.reason or (ending.sentence if ending else None),
            run=None, stopping=None, failures=settled.failures, restarts=settled.restarts,
            retry_at=settled.retry_at, wanted=settled.wanted, state=settled.state, since=now,
            reason=settled.reason,
        )  # fmt: skip
        self._log("ended", "info" if ending and ending.code == 0 else "warning", pipeline=job.name,
                  run=job.run, state=settled.state, reason=settled.reason, swept=swept)  # fmt: skip

    def _forget(self, job: JobRow) -> None:
        run_log = self._run_logs.pop(job.name, None)
        if run_log is not None:
            run_log.close()
        shutil.rmtree(self._stack.job(job.name).path, ignore_errors=True)
        self._registry.forget(job.name)
        self._log("removed", pipeline=job.name)

    # -- observing a job ---------------------------------------------------------

    def _observe(self, job: JobRow, now: float) -> policy.Seen:
        folder = self._stack.job(job.name)
        run_log = self._run_logs.setdefault(job.name, RunLogReader(folder.run_log))
        if not folder.lock.held():
            entry = None if job.run is None else run_log.run(job.run)
            return policy.Seen(alive=False, ending=entry.ending if entry else None)
        holder: psutil.Process | None = folder.lock.holder()
        entry = run_log.run(job.run)
        launched = job.launched or now
        if entry is None:
            return policy.Seen(alive=True, heartbeat_age=now - max(launched, self._awake),
                               frozen=holder is not None and process.is_frozen(holder))  # fmt: skip
        rate = run_log.rows_since(now - _RATE_WINDOW) / _RATE_WINDOW
        lag = self._lag(job.name) or 0
        return policy.Seen(
            alive=True,
            frozen=holder is not None and process.is_frozen(holder),
            heartbeat_age=now - max(entry.beat, self._awake),
            loop_age=now - max(entry.last_poll, self._awake),
            idle_for=now - max(entry.began, run_log.last_rows_at() or 0.0),
            catch_up_time=lag / rate
            if rate
            else (policy.CATCHING_UP_AFTER + 1 if lag > 1000 else 0.0),
            running=entry.phase.startswith(RUNNING),
            outages=run_log.outages(job.run),
            warnings=self._warnings(job.name),
        )


def run(home: Path | None = None) -> None:
    """Supervise until SIGTERM or SIGINT; the process inherits its lock from the launcher."""
    stack = stack_folder(home)
    stack.make()
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    log = Log(stack.log("supervisor"), process="supervisor")
    log("supervisor began")
    watch = LagWatch(stack, log)
    watch.start()
    alerts = AlertWatch(stack, watch.of, log)
    alerts.start()
    supervisor = Supervisor(stack, watch.of, log, watch.warnings)
    try:
        while not ended.is_set() and supervisor.should_run():
            began = time.monotonic()
            _turn_safely(supervisor, log)
            ended.wait(max(0.01, _TURN - (time.monotonic() - began)))
    finally:
        alerts.close()
        watch.close()
        supervisor.close()
        log("supervisor ended")
        log.close()


def _turn_safely(supervisor: Supervisor, log: Log) -> None:
    """Run one turn; an error is logged, and the next turn tries again."""
    try:
        supervisor.turn()
    except Exception as error:
        log.rarely("turn failed", "error", kind=type(error).__name__, error=str(error))


if __name__ == "__main__":
    run()
