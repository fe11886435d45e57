"""One batch through all its stages: from an intent to a prepared record.

for each stage: lane.read → watermarks → lane.close → its results, for the next stages
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from millstream.engine.checkpoint.fault_points import reached
from millstream.engine.checkpoint.protocol import (
    Prepared,
    SourceState,
    StagedFiles,
    StepChange,
    StepState,
)
from millstream.engine.checkpoint.staging import unstage
from millstream.engine.dead_letters import envelopes, refused
from millstream.engine.lanes.prefetch import Track
from millstream.engine.lanes.results import rows_of
from millstream.engine.lanes.work import Files, SourceWork, Step, Work
from millstream.engine.watermarks import NodeWatermarks, source_after
from millstream.errors import InvalidInput
from millstream.metrics.instances import bounded, source_instances
from millstream.operators.kernel import Replicates
from millstream.plan.graph import Read, Stateful
from millstream.sinks.spec import Discard
from millstream.sources.decode import DecodeContext, Report
from millstream.sources.spec import log_name
from millstream.state.runs.manifest import Change
from millstream.state.runs.runs import Run

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from millstream.engine.checkpoint.checkpoint import Checkpoint
    from millstream.engine.checkpoint.protocol import Head, Intent
    from millstream.engine.checkpoint.staging import StagedFile
    from millstream.engine.dead_letters.refused import Guard
    from millstream.engine.kernels.kernels import Typed
    from millstream.engine.lanes.prefetch import Prefetched, Prefetcher
    from millstream.engine.lanes.results import StageRead, StageResult
    from millstream.engine.lanes.work import Lane
    from millstream.plan.stages import Stage
    from millstream.sources.decode import RecordDecoder
    from millstream.sources.spec import Ranges, Reader
    from millstream.state.runs.merge import Merger

DEAD_AT_ONCE = 20_000
_NEW = SourceState({}, {})


@dataclass
class BatchRun:
    """One attempt at one intent."""

    intent: Intent
    head: Head
    typed: Typed
    checkpoint: Checkpoint
    readers: Mapping[str, Reader]
    decoders: Mapping[str, RecordDecoder]
    lane: Lane
    merger: Merger
    attempt: str
    stop_at_bad: bool = False
    prefetcher: Prefetcher | None = None
    guards: tuple[Guard, ...] = ()
    _reports: dict[str, Report] = field(default_factory=dict)
    _steps: dict[str, StepChange] = field(default_factory=dict)
    _outputs: list[StagedFiles] = field(default_factory=list)
    _current: Stage | None = None
    _decoded: dict[Read, pa.Table] = field(default_factory=dict)
    _flows: dict[Stateful, tuple[list[str], pa.Schema]] = field(default_factory=dict)

    @property
    def failed(self) -> Stage | None:
        """The stage that is running, if its rows come from sources alone.

        Later stages also read results, which cannot be traced to single records.
        """
        stage = self._current
        if stage is None or not all(isinstance(leaf, Read) for leaf in stage.leaves):
            return None
        return stage

    def try_stage(self, stage: Stage) -> None:
        """Run one stage only to see whether it raises."""
        self.prefetcher = None
        self._run_stage(stage)

    def run(self) -> Prepared:
        """Run all stages in order; each reads the results of earlier ones."""
        steps: dict[str, dict[str, Any]] = {}
        for stage in self.typed.stages.stages:
            began = time.perf_counter()
            read, sides, result = self._run_stage(stage)
            self._settle(stage, sides, result)
            steps[stage.name] = {
                "in": result.rows_in,
                "out": result.rows_out,
                "late": result.late_rows,
                "behind": result.behind,
                "unplaced": result.unplaced,
                "dead": self._stage_bad(stage, read) + self._stage_refused(stage, result),
                "ahead": read.prefetched,
                "seconds": time.perf_counter() - began,
                "instances": bounded(result.instances.values()),
            }
        reached("in the middle of a run", self.intent.batch)
        return Prepared(
            batch=self.intent.batch,
            intent=self.intent.id,
            attempt=self.attempt,
            outputs=tuple(self._outputs),
            sources={name: self._source(name) for name in self.typed.stages.reads},
            steps=self._steps,
            facts=self._facts(steps),
        )

    def _facts(self, steps: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        reports = self._reports
        return {
            "rows": sum(report.rows for report in reports.values()),
            "bytes": sum(report.bytes for report in reports.values()),
            "extra": sum(report.extra for report in reports.values()),
            "read": {name: report.rows for name, report in reports.items()},
            "sizes": {name: (report.bytes, report.rows) for name, report in reports.items()},
            "sources": {name: source_instances(report) for name, report in reports.items()},
            **{kind: sum(step[kind] for step in steps.values())
               for kind in ("late", "dead", "ahead")},
            "steps": steps,
        }  # fmt: skip

    def _run_stage(self, stage: Stage) -> tuple[StageRead, tuple[int, ...], StageResult]:
        """What the stage read, the watermarks after it, and its result."""
        self._current = stage
        work = self._work(stage)
        read = self.lane.read(work)
        self._decoded |= read.decoded
        for source, found in read.sources.items():
            self._reports[self.typed.stages.names[source]] = found.report
        sides = self._advance(stage)
        return read, sides, self.lane.close(work, read, work.batch_time(sides))

    # -- input of a stage ---------------------------------------------------------

    def _work(self, stage: Stage) -> Work:
        sources = {leaf: self._source_work(stage, leaf)
                   for leaf in stage.leaves if isinstance(leaf, Read)}  # fmt: skip
        flows = {leaf: self._flows[leaf] for leaf in stage.leaves if isinstance(leaf, Stateful)}
        made_by = ", ".join(self.typed.stages.names[step] for step in flows)
        return Work(
            stage=stage,
            step=self._step(stage),
            sources=sources,
            flows=flows,
            files=self._files(stage),
            source_names=(*self.typed.stages.reads, made_by),
            columns=self.typed.columns[stage],
            arrow=self.typed.arrow[stage],
            clock=self.intent.clock,
            since=self.head.clock,
            before=self._before(stage),
        )

    def _source_work(self, stage: Stage, read: Read) -> SourceWork:
        name = self.typed.stages.names[read]
        planned = self.intent.sources[name]
        ranges = {p: (a, b) for p, (a, b) in planned.ranges.items() if b > a}
        reports = self.typed.stages.reporter(read) is stage
        return SourceWork(
            reader=self.readers[name],
            ranges=ranges,
            decoder=self.decoders[name],
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

    def _files(self, stage: Stage) -> Files:
        place = self.typed.stages.stages.index(stage)
        stem = f"{self.intent.batch:012d}-{self.checkpoint.incarnation}-{self.attempt}-{place}"
        mine = {output.name for output in stage.outputs}
        guards = tuple(guard for guard in self.guards if guard.output in mine)
        return Files(self.checkpoint.staged, stem, guards)

    def _step(self, stage: Stage) -> Step | None:
        node = stage.step
        if node is None:
            return None
        kernel = self.typed.kernels[node]
        known = self._known(stage)
        if isinstance(kernel, Replicates):
            kernel = kernel.planned({table: sum(run.bytes for run in known.manifest(table).runs)
                                     for table in kernel.tables})  # fmt: skip
        folder = self.checkpoint.state_folder
        return Step(
            name=stage.name,
            kernel=kernel,
            folders={table: folder(stage.name, table) for table in kernel.tables},
            manifests={table: known.manifest(table) for table in kernel.tables},
            buckets=self.checkpoint.buckets,
            times=tuple(None if one.time is None else (one.time.column, one.time.shift)
                        for one in node.inputs),
            rest=not isinstance(node.rest, Discard),
            feeds=any(node in later.leaves for later in self.typed.stages.stages),
        )  # fmt: skip

    # -- event time ---------------------------------------------------------------

    def _known(self, stage: Stage) -> StepState:
        return self.head.steps.get(stage.name, StepState())

    def _before(self, stage: Stage) -> tuple[int, ...]:
        """The watermark of each side when the batch began."""
        return self._known(stage).of_sides(len(stage.sides))

    def _advance(self, stage: Stage) -> tuple[int, ...]:
        """The watermark of each side after this batch's rows."""
        names = self.typed.stages.names
        watermarks = NodeWatermarks(
            source=lambda read: self._source(names[read]).watermark,
            emitted=lambda step: self._steps[names[step]].out,
            idle=self._idle,
        )
        return watermarks.sides(stage.trees, self._before(stage))

    def _idle(self, read: Read) -> bool:
        name = self.typed.stages.names[read]
        planned = self.intent.sources[name]
        known = set(self.head.sources.get(name, _NEW).next) | set(planned.ranges)
        return bool(known) and known <= set(planned.idle)

    def _source(self, name: str) -> SourceState:
        """A source after this batch."""
        times = self._reports[name].times if name in self._reports else {}
        delay = self.typed.stages.reads[name].delay
        return source_after(
            self.head.sources.get(name, _NEW), self.intent, name, times, delay=delay
        )

    # -- output of a stage -------------------------------------------------------

    def _settle(self, stage: Stage, sides: tuple[int, ...], result: StageResult) -> None:
        """Keep a stage's result for later stages and for the prepared record."""
        if result.late:
            self._output(stage.name, "late", result.late)
        for output in stage.outputs:
            rows = result.rows_out - rows_of(result.refused_by(output.name))
            if rows:
                files = tuple(result.files_of(output.name))
                self._outputs.append(StagedFiles(output.name, "result", rows, files))
        if stage.step is not None:
            self._steps[stage.name] = self._changed(stage, sides, result)
            entries = [file.entry for file in result.flow]
            self._flows[stage.step] = (entries, self.typed.flow(stage.step))

    def _output(self, name: str, kind: str, files: list[StagedFile]) -> int:
        """Add staged files of an output; returns how many rows they hold."""
        if files:
            entries = tuple(file.entry for file in files)
            self._outputs.append(StagedFiles(name, kind, rows_of(files), entries))
        return rows_of(files)

    def _stage_bad(self, stage: Stage, read: StageRead) -> int:
        """Stage bad records with their raw bytes; returns how many there were."""
        staged: list[StagedFile] = []
        for source, found in read.sources.items():
            name = self.typed.stages.names[source]
            if self.stop_at_bad and found.bad:
                self._refuse_bad(source, found.bad[0])
            topic = log_name(source.source) or name
            staged += self._files(stage).stage("dead", (
                dead
                for file in found.bad
                for part in self._staged_pieces(file)
                for dead in envelopes.dead(part, self.readers[name], step=name, topic=topic)
            ))  # fmt: skip
        return self._output(stage.name, "dead", staged)

    def _stage_refused(self, stage: Stage, result: StageResult) -> int:
        """Stage rows that an output's sink can never accept; returns how many there were."""
        rows = 0
        for output in stage.outputs:
            files = result.refused_by(output.name)
            if files and self.stop_at_bad:
                raise refused.stop(output.name, next(self._staged_pieces(files[0])))
            names = [read.source.name for read in self.typed.stages.reads.values()]
            dead = envelopes.refused(
                (part for file in files for part in self._staged_pieces(file)),
                output=output.name, topics=names, batch=self.intent.batch, clock=self.intent.clock,
            )  # fmt: skip
            rows += self._output(output.name, "dead", self._files(stage).stage("dead", dead))
        return rows

    def _staged_pieces(self, file: StagedFile) -> Iterator[pa.Table]:
        for table in unstage(self.checkpoint.staged, file.entry):
            for first in range(0, table.num_rows, DEAD_AT_ONCE):
                yield table.slice(first, DEAD_AT_ONCE)

    def _refuse_bad(self, read: Read, file: StagedFile) -> None:
        first = next(self._staged_pieces(file)).slice(0, 1).to_pylist()[0]
        raise InvalidInput(
            f'the pipeline needs every record of {read.source.name} to be good (on_bad="stop")',
            got=f"a bad one at partition {first['partition']}, offset {first['offset']}: "
            f"{first['reason']}",
            do='fix the producer and rewind, or set bad rows aside with on_bad="dead"',
        )

    def _changed(self, stage: Stage, sides: tuple[int, ...], result: StageResult) -> StepChange:
        assert stage.step is not None
        known, changes = self._known(stage), {}
        for table in self.typed.kernels[stage.step].tables:
            segments = tuple(result.segments.get(table, ()))
            add = (Run(self._files(stage).name("run"), segments, 0),) if segments else ()
            replace = self.merger.take((stage.name, table), known.manifest(table))
            changes[table] = Change(add=add, replace=replace, floor=result.floors.get(table))
        after = min(sides)
        return StepChange(changes, watermark=after, out=min(after, result.held), wake=result.wake,
                          sides=sides if len(sides) > 1 else ())  # fmt: skip
