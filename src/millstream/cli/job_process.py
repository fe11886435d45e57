"""The process of one job: `python -m millstream.cli.job_process NAME RUN`.

Started by the supervisor. Runs the pipeline as `millstream run` does, says once a second in its
diary that it is alive and
what it did, and writes down how it ended.
"""

from __future__ import annotations

import getpass
import hashlib
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

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

    from millstream.api.pipeline import Pipeline
    from millstream.engine.job import Job
    from millstream.jobs.registry import JobRow
    from millstream.kafka.settings import Cluster
    from millstream.metrics.facts import Facts
    from millstream.sinks.spec import Sink

_BEAT = 1.0
_WAITED = 30.0


class _StoppedEarly(BaseException):
    """Somebody wants the run to stop that has not begun yet: the file is still being read."""


class JobProcess:
    """One run of one job, from the book's entry to the diary's ending."""

    def __init__(self, job: JobRow, folder: JobFolder, run: str, kafka: str | None) -> None:
        self._job, self._folder, self._kafka = job, folder, kafka
        self._log = Log(folder.log, pipeline=job.name, run_id=run)
        self._run_log = RunLog(folder.run_log, run, os.getpid())
        self._run: Job | None = None
        self._over = threading.Event()
        self._beating = threading.Thread(target=self._beat, name="beat", daemon=True)

    def hear(self, number: int, _frame: FrameType | None) -> None:
        """A signal: the run ends after the batch in hand, or at once if it has not begun."""
        if self._run is None:
            raise _StoppedEarly
        self._run.stop()

    def run(self) -> int:
        """Run to the end; the exit code."""
        self._beating.start()
        self._log("started", pid=os.getpid(), owner=getpass.getuser(), file=self._job.file)
        ending = self._ended()
        self._over.set()
        self._beating.join(_WAITED)
        with suppress(Exception):
            self._tell()
        self._run_log.end(ending)
        self._log("ended", "info" if ending.code == 0 else "error", code=ending.code,
                  kind=ending.kind, error=ending.sentence)  # fmt: skip
        return ending.code

    def _ended(self) -> Ending:
        try:
            return self._whole_run()
        except _StoppedEarly:
            return Ending(code=0, kind="stopped", sentence="stopped before it began")
        except MillstreamError as error:
            return Ending(code=error.exit_code, kind=type(error).__name__, sentence=str(error))
        except Exception as error:
            sentence = (
                f"millstream met something it did not foresee: {type(error).__name__}: {error}"
            )
            return Ending(code=1, kind=type(error).__name__, sentence=sentence)

    def _whole_run(self) -> Ending:
        loaded, pipeline = load(f"{self._job.file}:{self._job.pipeline}")
        cluster = _cluster(self._kafka)
        self._run_log.about(about_run(loaded, pipeline, cluster, Path(self._job.checkpoint)))
        self._catch_up()
        loaded.for_spark()
        from millstream.engine.job import Job

        self._run = Job(
            pipeline,
            kafka=cluster,
            checkpoint=self._job.checkpoint,
            lane=cast("Literal['wide', 'narrow'] | None", self._job.lane),
            on_batch=self._batch,
            on_phase=self._phase,
            warn=lambda text: self._log("set aside", "warning", message=text),
        )
        self._run.run()
        if self._run.finished_before:
            return Ending(code=0, kind=FINISHED, sentence="it is finished: its sources have ended")
        return Ending(code=0, kind="stopped", sentence="stopped after the batch in hand")

    def _catch_up(self) -> None:
        """Batches that were committed after the last run's last entry belong into the diary too."""
        folder = Path(self._job.checkpoint)
        if not (folder / "job").exists():
            return
        from millstream.engine.inspection.inspect import looked_at

        known, checkpoint = self._run_log.last_batch(), looked_at(folder)
        for number in [n for n in checkpoint.batches("commit") if n > known][-BATCHES_KEPT:]:
            commit = checkpoint.read_commit(number)
            self._run_log.batch(commit["facts"], commit["clock"] / 1e6)

    def _batch(self, facts: Facts, lag: dict[str, int]) -> None:
        self._run_log.phase = RUNNING
        self._run_log.batch(facts.body())
        if facts.rows or facts.late or facts.dead:
            self._log("batch", batch_id=facts.batch, rows=facts.rows, late=facts.late,
                      dead=facts.dead, lane=facts.lane, outputs=facts.outputs,
                      duration_ms=round(facts.seconds * 1000), lag=sum(lag.values()))  # fmt: skip

    def _phase(self, phase: str) -> None:
        """What the run does; once it runs, what it waits for until the next batch."""
        begun = self._run_log.phase.startswith(RUNNING) and phase != RUNNING
        now = f"{RUNNING}: {phase}" if begun else phase
        if now != self._run_log.phase:
            self._run_log.phase = now
            self._log("phase", phase=phase)

    def _beat(self) -> None:
        while not self._over.wait(_BEAT):
            try:
                self._tell()
                rotate_open_file(self._folder.output)
            except Exception as error:
                self._log("beat failed", "error", kind=type(error).__name__, error=str(error))

    def _tell(self) -> None:
        run = self._run
        turned = time.time() if run is None else run.turned
        self._run_log.beat(turned, None if run is None else run.positions())


def _cluster(kafka: str | None) -> Cluster:
    from millstream.kafka.settings import Cluster

    return Cluster.resolve(kafka)


def about_run(
    loaded: Loaded, pipeline: Pipeline, cluster: Cluster, checkpoint: Path
) -> dict[str, Any]:
    """What the run is a run of, for those who look at it from outside."""
    from millstream.engine.dead_letters.side_outputs import SideOutputs
    from millstream.engine.inspection.physical import leaving, outlined
    from millstream.plan.explain.explain import describe
    from millstream.plan.side_outputs import uses_kafka
    from millstream.plan.stages import cut
    from millstream.sources.kafka.topic import Topic
    from millstream.viewing.binary_values import format_to_json

    kafka = uses_kafka(pipeline.outputs, pipeline.dead)
    stages, side = cut(pipeline.outputs), SideOutputs(pipeline, checkpoint)
    late = _taking([side.late(node.rest) for node in stages.steps.values()])
    dead = _taking([side.dead()])
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


def _taking(sinks: Sequence[Sink]) -> dict[str, list[Any]]:
    """What takes late or bad rows: topics, files (path and format), and whatever else."""
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
    """Twelve letters that change when the file does."""
    return hashlib.sha256(file.read_bytes()).hexdigest()[:12]


def _print_into(path: Path) -> None:
    """From here on whatever this process and its children print goes to the end of a file."""
    sys.stdout.flush()
    sys.stderr.flush()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    os.close(descriptor)


def main(name: str, run: str) -> int:
    """Run the job of that name; the exit code."""
    stack = stack_folder()
    folder = stack.job(name)
    _print_into(folder.output)
    with JobRegistry(stack.registry) as registry:
        job = registry.job(name)
        kafka = job.kafka or registry.setting(KAFKA)
    here = JobProcess(job, folder, run, kafka)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, here.hear)
    return here.run()


if __name__ == "__main__":
    code = main(sys.argv[1], sys.argv[2])
    sys.stdout.flush()
    os._exit(code)  # threads of clients that hang must not keep a run that has ended
