"""The process of one job: `python -m millstream.cli.job_process NAME RUN`.

Started by the supervisor. Runs the pipeline as `millstream run` does, writes a heartbeat and its
batches to the run log once a second, at once what it waits for, and at the end how it ended.
It waits for Kafka and for databases as long as they are down.
"""

from __future__ import annotations

import getpass
import hashlib
import math
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from millstream.cli.terminal.pipelines import Loaded, load
from millstream.errors import MillstreamError
from millstream.jobs.alerts.rules import rules_of
from millstream.jobs.folders import JobFolder, stack_folder
from millstream.jobs.logs import Log, rotate_open_file
from millstream.jobs.policy import FINISHED, Ending
from millstream.jobs.registry import JobRegistry
from millstream.jobs.reports.run_log import BATCHES_KEPT, RUNNING, RunLog
from millstream.jobs.stack import KAFKA
from millstream.jobs.summaries import Summary

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

    from millstream.api.pipeline import Pipeline
    from millstream.engine.job import Job
    from millstream.jobs.registry import JobRow
    from millstream.kafka.settings import Cluster
    from millstream.metrics.facts import Facts
    from millstream.outages import Outage
    from millstream.sinks.spec import Sink

_HEARTBEAT = 1.0
_JOIN_TIMEOUT = 30.0


class _StoppedEarly(BaseException):
    """A signal arrived before the run has started, while the file is still being loaded."""


class JobProcess:
    """One run of one job, from its entry in the registry to the end in its run log."""

    def __init__(self, job: JobRow, folder: JobFolder, run: str, kafka: str | None) -> None:
        self._job, self._folder, self._kafka = job, folder, kafka
        self._log = Log(folder.log, pipeline=job.name, run_id=run)
        self._run_log = RunLog(folder.run_log, run, os.getpid())
        self._run: Job | None = None
        self._about: dict[str, Any] = {}
        self._summary, self._batches = Summary(), 0
        self._outages: dict[str, Outage] = {}
        self._done, self._news = threading.Event(), threading.Event()
        self._heartbeat = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def on_signal(self, number: int, _frame: FrameType | None) -> None:
        """Stop after the current batch, or at once if the run has not started."""
        if self._run is None:
            raise _StoppedEarly
        self._run.stop()

    def run(self) -> int:
        """Run to the end and return the exit code."""
        self._heartbeat.start()
        self._log("started", pid=os.getpid(), owner=getpass.getuser(), file=self._job.file)
        ending = self._run_to_end()
        self._done.set()
        self._news.set()
        self._heartbeat.join(_JOIN_TIMEOUT)
        with suppress(Exception):
            self._write_heartbeat()
        self._run_log.end(ending)
        self._log_summary(now=True)
        self._log("ended", "info" if ending.code == 0 else "error", code=ending.code,
                  kind=ending.kind, error=ending.sentence)  # fmt: skip
        return ending.code

    def _run_to_end(self) -> Ending:
        try:
            return self._run_pipeline()
        except _StoppedEarly:
            return Ending(code=0, kind="stopped", sentence="stopped before it started")
        except MillstreamError as error:
            return Ending(code=error.exit_code, kind=type(error).__name__, sentence=str(error))
        except Exception as error:
            sentence = f"unexpected error in millstream: {type(error).__name__}: {error}"
            return Ending(code=1, kind=type(error).__name__, sentence=sentence)

    def _run_pipeline(self) -> Ending:
        loaded, pipeline = load(f"{self._job.file}:{self._job.pipeline}")
        cluster = _cluster(self._kafka)
        self._about = about_run(loaded, pipeline, cluster, Path(self._job.checkpoint))
        self._run_log.about(self._about)
        self._copy_missing_batches()
        loaded.for_spark()
        from millstream.engine.job import Job

        self._run = Job(
            pipeline,
            kafka=cluster,
            checkpoint=self._job.checkpoint,
            lane=cast("Literal['wide', 'narrow'] | None", self._job.lane),
            on_batch=self._batch,
            on_phase=self._phase,
            on_outage=self._news.set,
            patience=math.inf,
            warn=lambda text: self._log("set aside", "warning", message=text),
        )
        self._run.run()
        if self._run.finished_before:
            return Ending(code=0, kind=FINISHED, sentence="it is finished: its sources have ended")
        return Ending(code=0, kind="stopped", sentence="stopped after its batch")

    def _copy_missing_batches(self) -> None:
        """Write the batches that the last run committed but did not log into the run log."""
        folder = Path(self._job.checkpoint)
        if not (folder / "job").exists():
            return
        from millstream.engine.inspection.inspect import open_checkpoint

        known, checkpoint = self._run_log.last_batch(), open_checkpoint(folder)
        for number in [n for n in checkpoint.batches("commit") if n > known][-BATCHES_KEPT:]:
            commit = checkpoint.read_commit(number)
            self._run_log.batch(commit["facts"], commit["clock"] / 1e6)

    def _batch(self, facts: Facts, lag: dict[str, int]) -> None:
        self._run_log.phase = RUNNING
        self._run_log.batch(facts.body())
        self._summary.add(facts, sum(lag.values()))
        self._batches += 1
        if self._batches == 1:
            self._log("first batch", batch_id=facts.batch, rows=facts.rows, lane=facts.lane,
                      where=facts.where, duration_ms=round(facts.seconds * 1000))  # fmt: skip

    def _phase(self, phase: str) -> None:
        """Record the phase; while running, what takes long until the next batch. What the run
        waits for is recorded by itself."""
        if self._run is not None and self._run.outages:
            return
        running = self._run_log.phase.startswith(RUNNING)
        if phase != self._run_log.phase and not running:
            self._log("phase", phase=phase)
        self._run_log.phase = f"{RUNNING}: {phase}" if running and phase != RUNNING else phase

    def _beat(self) -> None:
        while not self._done.is_set():
            self._news.wait(_HEARTBEAT)
            self._news.clear()
            try:
                self._log_outages()
                self._write_heartbeat()
                self._log_summary()
                rotate_open_file(self._folder.output)
            except Exception as error:
                self._log.rarely("heartbeat failed", "error", kind=type(error).__name__,
                                 error=str(error))  # fmt: skip

    def _log_outages(self) -> None:
        """Log what the run has begun to wait for, and what it no longer waits for."""
        now = {} if self._run is None else {one.system: one for one in self._run.outages}
        for system in now.keys() - self._outages.keys():
            self._log(now[system].kind, "warning", system=system, why=now[system].why)
        for system in self._outages.keys() - now.keys():
            away = time.time() - self._outages[system].since
            self._log("answers again", system=system, away_seconds=round(away, 1))
        self._outages = now

    def _log_summary(self, *, now: bool = False) -> None:
        summary = self._summary.take(now=now)
        if summary is not None:
            self._log("summary", **summary)

    def _write_heartbeat(self) -> None:
        run = self._run
        if run is not None and "spark_ui" not in self._about:
            self._write_spark_ui(run.spark_ui)
        polled = time.time() if run is None else run.last_poll
        self._run_log.beat(polled, None if run is None else run.positions(),
                           () if run is None or self._done.is_set() else run.outages)  # fmt: skip

    def _write_spark_ui(self, address: str | None) -> None:
        """Record where Spark's own page is, once Spark has started."""
        if address is not None:
            self._about["spark_ui"] = address
            self._run_log.about(self._about)
            self._log("spark", address=address)


def _cluster(kafka: str | None) -> Cluster:
    from millstream.kafka.settings import Cluster

    return Cluster.resolve(kafka)


def about_run(
    loaded: Loaded, pipeline: Pipeline, cluster: Cluster, checkpoint: Path
) -> dict[str, Any]:
    """Describe the run for the page and the commands: topics, formats, plan, lanes, alerts."""
    from millstream.engine.dead_letters.side_outputs import SideOutputs
    from millstream.engine.inspection.physical import leaving, outlined
    from millstream.plan.explain.explain import describe
    from millstream.plan.side_outputs import uses_kafka
    from millstream.plan.stages import cut
    from millstream.sources.kafka.topic import Topic
    from millstream.viewing.binary_values import format_to_json

    kafka = uses_kafka(pipeline.outputs, pipeline.dead)
    stages, side = cut(pipeline.outputs), SideOutputs(pipeline, checkpoint)
    late = _by_kind([side.late(node.rest) for node in stages.steps.values()])
    dead = _by_kind([side.dead()])
    written = [output.sink.name for output in pipeline.outputs if isinstance(output.sink, Topic)]
    return {
        "kafka": cluster.address,
        "version": version_of(loaded.file),
        "topics": {
            n: r.source.name for n, r in stages.reads.items() if isinstance(r.source, Topic)
        },
        "formats": {
            r.source.name: how
            for r in stages.reads.values()
            if isinstance(r.source, Topic) and (how := format_to_json(r.source)) is not None
        },
        "writes": sorted({*written, *late["topics"], *dead["topics"]}),
        "late": late,
        "dead": {**dead, "marks": "topic" if kafka else "files"},
        "alerts": rules_of(pipeline),
        "plan": describe(pipeline.name, pipeline.outputs, pipeline.dead),
        "lanes": outlined(pipeline),
        "leaving": leaving(pipeline),
    }


def _by_kind(sinks: Sequence[Sink]) -> dict[str, list[Any]]:
    """The sinks of late or bad rows by kind: topics, files (path and format), others."""
    from millstream.sinks.spec import Discard
    from millstream.sources.files.files import Files
    from millstream.sources.kafka.topic import Topic

    files = {(str(sink.path), sink.format) for sink in sinks if isinstance(sink, Files)}
    return {
        "topics": sorted({sink.name for sink in sinks if isinstance(sink, Topic)}),
        "files": [list(one) for one in sorted(files)],
        "other_sinks": sorted(
            {repr(s) for s in sinks if not isinstance(s, Topic | Files | Discard)}
        ),
    }


def version_of(file: Path) -> str:
    """Twelve hexadecimal digits of the file's hash."""
    return hashlib.sha256(file.read_bytes()).hexdigest()[:12]


def _redirect_output(path: Path) -> None:
    """Append everything this process and its children print to a file."""
    sys.stdout.flush()
    sys.stderr.flush()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    os.close(descriptor)


def main(name: str, run: str) -> int:
    """Run the job of that name and return the exit code."""
    stack = stack_folder()
    folder = stack.job(name)
    _redirect_output(folder.output)
    with JobRegistry(stack.registry) as registry:
        job = registry.job(name)
        kafka = job.kafka or registry.setting(KAFKA)
    process = JobProcess(job, folder, run, kafka)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, process.on_signal)
    return process.run()


if __name__ == "__main__":
    code = main(sys.argv[1], sys.argv[2])
    sys.stdout.flush()
    os._exit(code)  # hanging threads of clients must not keep the process alive
