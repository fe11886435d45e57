"""Small batches on Spark: all stages of a batch in one job with one stage and one task.

    driver                                   Spark task, in a Python worker that is reused
    Attempt (intent, head)  -- property -->  StageRuns: fetch, decode, steps, kernels, files
    BatchRun: Prepared      <-- one row ---  what each stage did

What a run's batches share is pickled once. The job runs on a kept RDD, whose function never
changes; an attempt travels as a local property of the job. A run has a worker of its own, which
keeps connections, state maps, decoders and prefetched rows from batch to batch.
"""

from __future__ import annotations

import base64
import pickle
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

import pyarrow as pa

from millstream.engine.checkpoint.fault_points import IN_TASK, reached
from millstream.engine.checkpoint.protocol import Head
from millstream.engine.lanes.cutting import CutShort, reading
from millstream.engine.lanes.narrow import NarrowLane
from millstream.engine.lanes.prefetch import Prefetcher
from millstream.engine.spark.job_thread import CallSite, JobThread
from millstream.engine.spark.per_run import PerRun
from millstream.engine.spark.rdd_jobs import OwnWorker, begin_task, collected, pickled, unpickled
from millstream.engine.spark.shipped_plan import plan_bytes
from millstream.engine.stage_runs import StageRuns, Where
from millstream.errors import DamagedLog, MillstreamError
from millstream.sources.spec import ReadsInTasks, raw_schema, read_columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyspark import RDD

    from millstream.engine.checkpoint.protocol import Intent
    from millstream.engine.dead_letters.refused import Guard
    from millstream.engine.spark.session import Spark
    from millstream.engine.stage_runs import RunPlan, StageOutcome
    from millstream.plan.stages import Stage
    from millstream.sources.spec import Offsets, Ranges, Reader, RecordReader, Scan

ATTEMPT = "millstream.attempt"


@dataclass(frozen=True)
class Attempt:
    """What a task is sent for one attempt at one intent.

    `head` has only what stages read of it; `scans` are the slices of sources that have no
    `ReadsInTasks`. With `only` one stage is run, to see whether it raises.
    """

    intent: Intent
    head: Head
    attempt: str
    scans: dict[str, Scan]
    guards: tuple[Guard, ...] = ()
    prefetch: bool = False
    only: int | None = None


@dataclass(frozen=True)
class Failure:
    """Why a task could not run its stages: the number of the stage, and the error.

    `cut` names the source of a batch that has to end earlier, and the offsets it ends at.
    """

    stage: int | None
    error: Exception
    cut: tuple[str, Offsets, DamagedLog | None] | None = None


@dataclass(frozen=True)
class Scanned:
    """Records of a source that tasks read slice by slice."""

    scan: Scan

    def table(self, ranges: Ranges, more: Sequence[str] = ()) -> pa.Table:
        """The records, which were listed for these ranges."""
        batches = list(self.scan.fetch(range(self.scan.count)))
        return pa.Table.from_batches(batches, schema=raw_schema(read_columns(more)))


# -- on the driver --------------------------------------------------------------------


class NarrowTasks:
    """Runs small batches of one run in Spark tasks."""

    def __init__(self, spark: Spark, plan: RunPlan, readers: Mapping[str, Reader]) -> None:
        self.plan, self.readers = plan, readers
        self._context = spark.get().sparkContext
        self._thread = JobThread(spark, readers)
        self._site = CallSite.of(plan.typed.stages.stages)
        self._worker = OwnWorker()
        self.in_tasks = {source: reader.in_task() for source, reader in readers.items()
                         if isinstance(reader, ReadsInTasks)}  # fmt: skip
        self._kept: RDD[bytes] | None = None

    def run(self, attempt: Attempt) -> list[StageOutcome] | Failure:
        """Run an attempt as one Spark job."""
        payload = base64.b64encode(pickle.dumps(attempt, pickle.HIGHEST_PROTOCOL)).decode()
        names = ", ".join(stage.name for stage in self.plan.typed.stages.stages)
        label = self.plan.label(attempt.intent)
        reply = self._thread.run(
            self._collected, f"{label} · {names}", self._site, label, {ATTEMPT: payload}
        )
        return cast("list[StageOutcome] | Failure", unpickled(reply))

    def close(self) -> None:
        """End the thread that runs the jobs, and leave their worker to others."""
        self._worker.close()
        self._thread.close()

    def _collected(self) -> bytes:
        if self._kept is None:
            task = RunStages(PerRun(self.plan, plan_bytes), self.in_tasks)
            rdd = self._context.parallelize([0], 1).mapPartitions(task)
            self._kept = self._worker.placed(rdd)
        [reply] = collected(self._kept)
        return reply


@dataclass
class TaskRuns:
    """The stages of one attempt, run in one Spark task."""

    tasks: NarrowTasks
    intent: Intent
    head: Head
    attempt: str
    guards: tuple[Guard, ...] = ()
    prefetch: bool = False
    current: Stage | None = None
    where: Where = field(default="spark", init=False)

    def outcomes(self) -> Iterator[tuple[Stage, StageOutcome]]:
        """All stages in order; each reads the results of earlier ones."""
        yield from zip(self._stages, self._run(), strict=True)

    def try_stage(self, stage: Stage) -> None:
        """Run one stage only to see whether it raises."""
        self._run(only=self._stages.index(stage))

    @property
    def _stages(self) -> tuple[Stage, ...]:
        return self.tasks.plan.typed.stages.stages

    def _run(self, only: int | None = None) -> list[StageOutcome]:
        head = Head(clock=self.head.clock, sources=self.head.sources, steps=self.head.steps)
        prefetch = self.prefetch and only is None
        reply = self.tasks.run(
            Attempt(self.intent, head, self.attempt, self._scans(), self.guards, prefetch, only)
        )
        if not isinstance(reply, Failure):
            return reply
        self.current = None if reply.stage is None else self._stages[reply.stage]
        if reply.cut is not None:
            name, ends, why = reply.cut
            raise CutShort(self.tasks.plan.typed.stages.reads[name], ends, why)
        raise reply.error

    def _scans(self) -> dict[str, Scan]:
        """The slices of sources that tasks cannot read by ranges."""
        found = {}
        for name, reader in self.tasks.readers.items():
            if name not in self.tasks.in_tasks:
                ranges = self.intent.sources[name].ranges
                some = {p: (a, b) for p, (a, b) in ranges.items() if b > a}
                with reading(self.tasks.plan.typed.stages.reads[name]):
                    found[name] = reader.scan(some, 1, self.tasks.plan.decoders[name].more)
        return found


# -- in a task ------------------------------------------------------------------------


@runtime_checkable
class PrefetchesInTasks(Protocol):
    """Records that a worker can read before the next batch."""

    def prefetch_reader(self, more: Sequence[str]) -> Any: ...


_prefetchers: dict[int, Prefetcher] = {}


@dataclass(frozen=True)
class RunStages:
    """The function of the kept RDD: runs the attempt that its job was sent."""

    plan: PerRun[RunPlan]
    in_tasks: Mapping[str, RecordReader]

    def __call__(self, rows: Iterable[int]) -> Iterator[bytes]:
        from pyspark import TaskContext

        begin_task()
        for _ in rows:  # a worker is reused only if its input was read to the end
            task = TaskContext.get()
            assert task is not None
            payload = task.getLocalProperty(ATTEMPT)
            assert payload is not None
            attempt: Attempt = pickle.loads(base64.b64decode(payload))  # noqa: S301
            yield pickled(self._run(attempt))

    def _run(self, attempt: Attempt) -> list[StageOutcome] | Failure:
        plan = self.plan.value
        stages = plan.typed.stages
        readers = {name: Scanned(attempt.scans[name]) if name in attempt.scans
                   else self.in_tasks[name] for name in stages.reads}  # fmt: skip
        runs = StageRuns(
            plan, attempt.intent, attempt.head, attempt.attempt,
            cast("Mapping[str, Reader]", readers), NarrowLane(None), "spark",
            attempt.guards, self._prefetcher(plan, attempt),
        )  # fmt: skip
        try:
            if attempt.only is None:
                outcomes = [outcome for _, outcome in runs.outcomes()]
                reached(IN_TASK, attempt.intent.batch)
                return outcomes
            runs.try_stage(stages.stages[attempt.only])
        except CutShort as error:
            cut = stages.names[error.read], error.ends, error.why
            return Failure(_number(runs), MillstreamError(str(error)), cut)
        except Exception as error:
            return Failure(_number(runs), error)
        return []

    def _prefetcher(self, plan: RunPlan, attempt: Attempt) -> Prefetcher | None:
        """This worker's prefetcher of the run; one of an earlier run is closed."""
        known = _prefetchers.get(id(plan))
        if not attempt.prefetch:
            if known is not None:
                known.stop()
            return None
        if known is None:
            while _prefetchers:
                _prefetchers.popitem()[1].close()
            able = {name: reader for name, reader in self.in_tasks.items()
                    if isinstance(reader, PrefetchesInTasks)}  # fmt: skip
            known = _prefetchers[id(plan)] = Prefetcher(
                cast("Mapping[str, Reader]", able), plan.decoders
            )
        return known


def _number(runs: StageRuns) -> int | None:
    return None if runs.current is None else runs.plan.typed.stages.stages.index(runs.current)
