"""The stages of one batch, run in order in one process: the driver, or a Spark task.

for each stage: lane.read → watermarks → lane.close → its results, for the next stages

Nothing here knows the sinks, the merges of state or the checkpoint's records. What a stage did is
a plain value, so a task can run all stages of a small batch and return it to the driver.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

from millstream.engine.checkpoint.protocol import SourceState, StepState
from millstream.engine.lanes.prefetch import Track
from millstream.engine.lanes.work import Files, SourceWork, Step, Work
from millstream.engine.watermarks import NodeWatermarks, source_after
from millstream.operators.kernel import Replicates
from millstream.plan.graph import Read, Stateful
from millstream.plan.names import folder_name
from millstream.sinks.spec import Discard
from millstream.sources.decode import DecodeContext, Report

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa

    from millstream.engine.checkpoint.checkpoint import Checkpoint
    from millstream.engine.checkpoint.protocol import Head, Intent
    from millstream.engine.dead_letters.refused import Guard
    from millstream.engine.kernels.kernels import Typed
    from millstream.engine.lanes.prefetch import Prefetched, Prefetcher
    from millstream.engine.lanes.results import SourceRead, StageResult
    from millstream.engine.lanes.work import Lane
    from millstream.plan.stages import Stage, Stages
    from millstream.sources.decode import RecordDecoder
    from millstream.sources.spec import Ranges, Reader

Where = Literal["spark", "bridge", "driver"]

_NEW = SourceState({}, {})


@dataclass(frozen=True)
class CheckpointFiles:
    """Where the files of one run are, and how they are named."""

    folder: Path
    buckets: int
    incarnation: int

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> CheckpointFiles:
        """Those of an open checkpoint."""
        return cls(checkpoint.folder.absolute(), checkpoint.buckets, checkpoint.incarnation)

    @property
    def staged(self) -> Path:
        """Where rows wait for sinks."""
        return self.folder / "staged"

    def state_folder(self, step: str, table: str) -> Path:
        """Where the runs of a step's table are."""
        folder = self.folder / "state" / folder_name(step) / table
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder


@dataclass(frozen=True)
class RunPlan:
    """What all batches of a run share: sent to Spark's workers once."""

    name: str
    typed: Typed
    decoders: Mapping[str, RecordDecoder]
    files: CheckpointFiles

    def label(self, intent: Intent) -> str:
        """What a batch is called in Spark's UI."""
        return f"{self.name} · batch {intent.batch}"


@dataclass(frozen=True)
class StageOutcome:
    """What one stage of a batch did.

    `sources` has the reports of its sources and the places of bad records, `sides` the watermark
    of each input after the batch's rows, `prefetched` the rows that were read before the batch.
    """

    sources: dict[str, SourceRead]
    prefetched: int
    sides: tuple[int, ...]
    result: StageResult
    seconds: float

    @property
    def out(self) -> int:
        """The watermark of what the stage emits."""
        return min(*self.sides, self.result.held)


@dataclass
class SourceProgress:
    """The sources of a batch, as far as its stages have read them."""

    intent: Intent
    head: Head
    stages: Stages
    reports: dict[str, Report] = field(default_factory=dict)

    def add(self, read: Mapping[str, SourceRead]) -> None:
        """Take in what a stage has read."""
        for name, found in read.items():
            self.reports[name] = found.report

    def after(self, name: str) -> SourceState:
        """A source after this batch."""
        times = self.reports[name].times if name in self.reports else {}
        known = self.head.sources.get(name, _NEW)
        return source_after(known, self.intent, name, times, delay=self.stages.reads[name].delay)


class StageRunner(Protocol):
    """Runs the stages of one attempt.

    `current` is the stage that is running, or that failed; `where` is what runs them: `spark`,
    the driver alone (`driver`), or the driver while Spark starts (`bridge`).
    """

    current: Stage | None

    where: Where

    def outcomes(self) -> Iterator[tuple[Stage, StageOutcome]]:
        """All stages in order; each reads the results of earlier ones."""

    def try_stage(self, stage: Stage) -> None:
        """Run one stage only to see whether it raises."""


@dataclass
class StageRuns:
    """The stages of one attempt at one intent, run in this process."""

    plan: RunPlan
    intent: Intent
    head: Head
    attempt: str
    readers: Mapping[str, Reader]
    lane: Lane
    where: Where
    guards: tuple[Guard, ...] = ()
    prefetcher: Prefetcher | None = None
    current: Stage | None = None
    _decoded: dict[Read, pa.Table] = field(default_factory=dict)
    _flows: dict[Stateful, tuple[list[str], pa.Schema]] = field(default_factory=dict)
    _emitted: dict[Stateful, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._stages = self.plan.typed.stages
        self._progress = SourceProgress(self.intent, self.head, self._stages)

    def outcomes(self) -> Iterator[tuple[Stage, StageOutcome]]:
        """All stages in order; each reads the results of earlier ones."""
        for stage in self._stages.stages:
            yield stage, self._outcome(stage)

    def try_stage(self, stage: Stage) -> None:
        """Run one stage only to see whether it raises."""
        self.prefetcher = None
        self._outcome(stage)

    def _outcome(self, stage: Stage) -> StageOutcome:
        self.current, began = stage, time.perf_counter()
        work = self._work(stage)
        read = self.lane.read(work)
        self._decoded |= read.decoded
        sources = {self._stages.names[source]: found for source, found in read.sources.items()}
        self._progress.add(sources)
        sides = self._advance(stage)
        result = self.lane.close(work, read, work.batch_time(sides))
        seconds = time.perf_counter() - began
        outcome = StageOutcome(sources, read.prefetched, sides, result, seconds)
        if stage.step is not None:
            entries = [file.entry for file in result.flow]
            self._flows[stage.step] = (entries, self.plan.typed.flow(stage.step))
            self._emitted[stage.step] = outcome.out
        return outcome

    # -- input of a stage ---------------------------------------------------------

    def _work(self, stage: Stage) -> Work:
        sources = {leaf: self._source_work(stage, leaf)
                   for leaf in stage.leaves if isinstance(leaf, Read)}  # fmt: skip
        flows = {leaf: self._flows[leaf] for leaf in stage.leaves if isinstance(leaf, Stateful)}
        made_by = ", ".join(self._stages.names[step] for step in flows)
        return Work(
            stage=stage,
            step=self._step(stage),
            sources=sources,
            flows=flows,
            files=stage_files(self.plan, self.intent, self.attempt, stage, self.guards),
            source_names=(*self._stages.reads, made_by),
            columns=self.plan.typed.columns[stage],
            arrow=self.plan.typed.arrow[stage],
            clock=self.intent.clock,
            since=self.head.clock,
            before=self._before(stage),
            label=self.plan.label(self.intent),
        )

    def _source_work(self, stage: Stage, read: Read) -> SourceWork:
        name = self._stages.names[read]
        planned = self.intent.sources[name]
        ranges = {p: (a, b) for p, (a, b) in planned.ranges.items() if b > a}
        reports = self._stages.reporter(read) is stage
        return SourceWork(
            reader=self.readers[name],
            ranges=ranges,
            decoder=self.plan.decoders[name],
            context=DecodeContext(self.intent.clock, planned.skips),
            reports=reports,
            rows=self._decoded.get(read),
            prefetched=self._prefetched(name, ranges) if reports else None,
        )

    def _prefetched(self, name: str, ranges: Ranges) -> Prefetched | None:
        """Prefetched rows of a source; the prefetcher continues where this batch ends."""
        if self.prefetcher is None:
            return None
        planned = self.intent.sources[name]
        ends = {partition: end for partition, (_, end) in planned.ranges.items()}
        return self.prefetcher.take(name, ranges, Track(ends, planned.identity, planned.skips))

    def _step(self, stage: Stage) -> Step | None:
        node = stage.step
        if node is None:
            return None
        kernel = self.plan.typed.kernels[node]
        known = self._known(stage)
        if isinstance(kernel, Replicates):
            kernel = kernel.planned({table: sum(run.bytes for run in known.manifest(table).runs)
                                     for table in kernel.tables})  # fmt: skip
        folder = self.plan.files.state_folder
        return Step(
            name=stage.name,
            kernel=kernel,
            folders={table: folder(stage.name, table) for table in kernel.tables},
            manifests={table: known.manifest(table) for table in kernel.tables},
            buckets=self.plan.files.buckets,
            times=tuple(None if one.time is None else (one.time.column, one.time.shift)
                        for one in node.inputs),
            rest=not isinstance(node.rest, Discard),
            feeds=any(node in later.leaves for later in self._stages.stages),
        )  # fmt: skip

    # -- event time ---------------------------------------------------------------

    def _known(self, stage: Stage) -> StepState:
        return self.head.steps.get(stage.name, StepState())

    def _before(self, stage: Stage) -> tuple[int, ...]:
        """The watermark of each side when the batch began."""
        return self._known(stage).of_sides(len(stage.sides))

    def _advance(self, stage: Stage) -> tuple[int, ...]:
        """The watermark of each side after this batch's rows."""
        names = self._stages.names
        watermarks = NodeWatermarks(
            source=lambda read: self._progress.after(names[read]).watermark,
            emitted=self._emitted.__getitem__,
            idle=self._idle,
        )
        return watermarks.sides(stage.trees, self._before(stage))

    def _idle(self, read: Read) -> bool:
        name = self._stages.names[read]
        planned = self.intent.sources[name]
        known = set(self.head.sources.get(name, _NEW).next) | set(planned.ranges)
        return bool(known) and known <= set(planned.idle)


def stage_files(
    plan: RunPlan, intent: Intent, attempt: str, stage: Stage, guards: Sequence[Guard] = ()
) -> Files:
    """The files of one stage of an attempt: how they are named, and which results stay out."""
    place = plan.typed.stages.stages.index(stage)
    stem = f"{intent.batch:012d}-{plan.files.incarnation}-{attempt}-{place}"
    mine = {output.name for output in stage.outputs}
    own = tuple(guard for guard in guards if guard.output in mine)
    return Files(plan.files.staged, stem, own)
