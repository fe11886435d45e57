"""One batch through all its stages: from an intent to a prepared record."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from millstream.engine.checkpoint.fault_points import reached
from millstream.engine.checkpoint.protocol import (
    Head,
    Intent,
    Prepared,
    SourceState,
    StagedFiles,
    StepChange,
    StepState,
)
from millstream.engine.checkpoint.staging import unstage
from millstream.engine.dead_letters import envelopes, refused
from millstream.engine.lanes.prefetch import Track
from millstream.engine.lanes.work import Done, Files, Lane, Step, Work
from millstream.engine.reach import Reach
from millstream.errors import InvalidInput
from millstream.event_time.batch_time import END_OF_TIME, MIN_TIME
from millstream.event_time.watermark import Quiet, advance
from millstream.metrics.instances import bounded, of_source
from millstream.operators.kernel import Replicates
from millstream.plan.graph import Read, Stateful
from millstream.sinks.spec import Discard
from millstream.sources.decode import Report
from millstream.sources.spec import RecordLog
from millstream.state.runs.manifest import Change
from millstream.state.runs.runs import Run

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from millstream.engine.checkpoint.checkpoint import Checkpoint
    from millstream.engine.dead_letters.refused import Guard
    from millstream.engine.kernels.kernels import Typed
    from millstream.engine.lanes.prefetch import Prefetcher, Taken
    from millstream.engine.lanes.work import Decodes
    from millstream.plan.stages import Stage
    from millstream.sources.spec import Ranges, Reader
    from millstream.state.runs.merge import Merger

DEAD_AT_ONCE = 20_000


@dataclass
class BatchRun:
    """One attempt at one intent."""

    intent: Intent
    head: Head
    typed: Typed
    checkpoint: Checkpoint
    readers: dict[str, Reader]
    decoders: dict[str, Decodes]
    lane: Lane
    merger: Merger
    attempt: str
    stop_at_bad: bool = False
    ahead: Prefetcher | None = None
    guards: tuple[Guard, ...] = ()
    _reports: dict[str, Report] = field(default_factory=dict)
    _watermarks: dict[str, int] = field(default_factory=dict)
    _steps: dict[str, StepChange] = field(default_factory=dict)
    _outputs: list[StagedFiles] = field(default_factory=list)
    _under_way: Stage | None = None
    _decoded: dict[Read, pa.Table] = field(default_factory=dict)
    _flows: dict[Stateful, tuple[list[str], pa.Schema]] = field(default_factory=dict)

    @property
    def failed(self) -> Stage | None:
        """The stage that is under way, if its rows come from sources alone.

        What later stages take in are results: no single record is to blame for those.
        """
        stage = self._under_way
        if stage is None or not all(isinstance(leaf, Read) for leaf in stage.leaves):
            return None
        return stage

    def try_stage(self, stage: Stage) -> None:
        """Run one stage for nothing: only whether it raises is of interest."""
        self.lane.run(replace(self._work(stage), ahead=None))

    def run(self) -> Prepared:
        """Pass the whole graph in order; each operator takes in what those before it emitted."""
        counts, steps = {"late": 0, "dead": 0, "ahead": 0}, {}
        for stage in self.typed.stages.stages:
            began = time.perf_counter()
            self._under_way = stage
            done = self.lane.run(self._work(stage))
            self._settle(stage, done)
            told = {
                "in": done.rows_in,
                "out": done.left.get("results", 0),
                "late": done.late_rows,
                "behind": done.left.get("behind", 0),
                "unplaced": done.left.get("unplaced", 0),
                "dead": self._bury(stage, done) + self._bury_refused(stage, done),
                "ahead": done.ahead,
            }
            counts = {door: count + told[door] for door, count in counts.items()}
            steps[stage.name] = {
                **told,
                "seconds": time.perf_counter() - began,
                "instances": bounded(done.instances.values()),
            }
        reached("in the middle of a run", self.intent.batch)
        rows = {
            "rows": sum(report.rows for report in self._reports.values()),
            "bytes": sum(report.bytes for report in self._reports.values()),
            "extra": sum(report.extra for report in self._reports.values()),
            "read": {name: report.rows for name, report in self._reports.items()},
            "sizes": {name: (r.bytes, r.rows) for name, r in self._reports.items()},
            "sources": {name: of_source(report) for name, report in self._reports.items()},
        }
        return Prepared(
            batch=self.intent.batch,
            intent=self.intent.id,
            attempt=self.attempt,
            outputs=tuple(self._outputs),
            sources={name: self._source(name) for name in self.typed.stages.reads},
            steps=self._steps,
            facts={**rows, **counts, "steps": steps},
        )

    def _work(self, stage: Stage) -> Work:
        names = self.typed.stages.names
        reads = [leaf for leaf in stage.leaves if isinstance(leaf, Read)]
        return Work(
            stage=stage,
            step=self._step(stage),
            readers={
                read: (
                    self.readers[names[read]],
                    _filled(self.intent.sources[names[read]].ranges),
                    self.decoders[names[read]],
                )
                for read in reads
            },
            flows={leaf: self._flows[leaf] for leaf in stage.leaves if isinstance(leaf, Stateful)},
            reports=frozenset(read for read in reads if self.typed.stages.reporter(read) is stage),
            files=self._files(stage),
            sources=[*self.typed.stages.reads, self._made_by(stage)],
            columns=self.typed.columns[stage],
            arrow=self.typed.arrow[stage],
            clock=self.intent.clock,
            since=self.head.clock,
            before=self._before(stage),
            after=lambda reports: self._after(stage, reports),
            decoded=self._decoded,
            ahead=None if self.ahead is None else self._taken,
        )

    def _taken(self, read: Read, ranges: Ranges) -> Taken:
        """What has been read ahead of a source, which is left where this batch ends."""
        assert self.ahead is not None
        name = self.typed.stages.names[read]
        told = self.intent.sources[name]
        ends = {partition: end for partition, (_, end) in told.ranges.items()}
        return self.ahead.take(name, ranges, Track(ends, told.identity, self.decoders[name]))

    def _made_by(self, stage: Stage) -> str:
        """The steps whose results flow into a stage."""
        steps = [leaf for leaf in stage.leaves if isinstance(leaf, Stateful)]
        return ", ".join(self.typed.stages.names[step] for step in steps)

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
        known = self.head.steps.get(stage.name, StepState())
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

    def _before(self, stage: Stage) -> tuple[int, ...]:
        """The watermark of each side when the batch began."""
        known = self.head.steps.get(stage.name, StepState())
        return known.of_sides(len(stage.sides))

    def _after(self, stage: Stage, reports: dict[Read, Report]) -> tuple[int, ...]:
        """The watermark of each side's rows once this batch's are in."""
        for read, report in reports.items():
            self._reports[self.typed.stages.names[read]] = report
        return self._reached(stage)

    def _reached(self, stage: Stage) -> tuple[int, ...]:
        names = self.typed.stages.names
        reach = Reach(
            source=lambda read: self._source(names[read]).watermark,
            given=lambda step: self._steps[names[step]].out,
            idle=self._idle,
        )
        return reach.sides(stage.trees, self._before(stage))

    def _idle(self, read: Read) -> bool:
        name = self.typed.stages.names[read]
        told = self.intent.sources[name]
        known = set(self.head.sources.get(name, SourceState({}, {})).next) | set(told.ranges)
        return bool(known) and known <= set(told.idle)

    def _source(self, name: str) -> SourceState:
        """A source after this batch: what was read, and how far its time has come."""
        told = self.intent.sources[name]
        was = self.head.sources.get(name, SourceState({}, {}))
        times = dict(was.times)
        for partition, at in self._reports.get(name, Report()).times.items():
            times[partition] = max(at, times.get(partition, at))
        following = {**was.next, **{p: end for p, (_, end) in told.ranges.items()}}
        read = self.typed.stages.reads[name]
        watermark = advance(
            was.watermark,
            times,
            following,
            delay=read.delay,
            quiet=Quiet(frozenset(told.idle), told.drift),
            declared=END_OF_TIME if self.intent.finish else told.declared,
        )
        if not following and watermark == MIN_TIME:
            watermark = was.watermark
        return SourceState(following, times, watermark, told.identity)

    def _settle(self, stage: Stage, done: Done) -> None:
        """Write down what a stage gave, for the stages after it and for the prepared record."""
        for read, report in done.reports.items():
            self._reports[self.typed.stages.names[read]] = report
        if done.late:
            late = StagedFiles(stage.name, "late", done.left["late"], tuple(done.late))
            self._outputs.append(late)
        for output in stage.outputs:
            rows = done.left.get("results", 0)
            rows -= sum(count for _, count in done.refused_by(output.name))
            if rows:
                files = tuple(name for name, _ in done.results_of(output.name))
                self._outputs.append(StagedFiles(output.name, "result", rows, files))
        if stage.step is not None:
            self._steps[stage.name] = self._changed(stage, done)
            self._flows[stage.step] = (done.flow, self.typed.flow(stage.step))

    def _bury(self, stage: Stage, done: Done) -> int:
        """Stage the bad rows whole, as they lie in the log; how many there were."""
        staged = []
        for read, entries in done.bad.items():
            name = self.typed.stages.names[read]
            if self.stop_at_bad:
                self._refuse_bad(read, entries)
            tables = (
                dead
                for entry in entries
                for table in unstage(self.checkpoint.staged, entry)
                for part in _pieces(table)
                for dead in envelopes.dead(
                    part, self.readers[name], step=name, topic=_origin_of(read, name)
                )
            )
            staged.append(self._files(stage).stage("dead", tables))
        files = [entry for entry in staged if entry is not None]
        rows = sum(count for _, count in files)
        if files:
            names = tuple(name for name, _ in files)
            self._outputs.append(StagedFiles(stage.name, "dead", rows, names))
        return rows

    def _bury_refused(self, stage: Stage, done: Done) -> int:
        """Stage the rows that an output's sink can never take as dead; how many there were."""
        rows = 0
        for output in stage.outputs:
            entries = [entry for entry, _ in done.refused_by(output.name)]
            tables = [unstage(self.checkpoint.staged, entry) for entry in entries]
            if tables and self.stop_at_bad:
                raise refused.stop(output.name, next(tables[0]))
            names = [read.source.name for read in self.typed.stages.reads.values()]
            dead = envelopes.refused(
                (part for some in tables for table in some for part in _pieces(table)),
                output=output.name, topics=names, batch=self.intent.batch, clock=self.intent.clock,
            )  # fmt: skip
            staged = self._files(stage).stage("dead", dead)
            if staged is not None:
                self._outputs.append(StagedFiles(output.name, "dead", staged[1], (staged[0],)))
                rows += staged[1]
        return rows

    def _refuse_bad(self, read: Read, entries: list[str]) -> None:
        first = next(unstage(self.checkpoint.staged, entries[0])).slice(0, 1).to_pylist()[0]
        raise InvalidInput(
            f'the pipeline needs every record of {read.source.name} to be good (on_bad="stop")',
            got=f"a bad one at partition {first['partition']}, offset {first['offset']}: "
            f"{first['reason']}",
            do='fix the producer and rewind, or have bad rows set aside with on_bad="dead"',
        )

    def _changed(self, stage: Stage, done: Done) -> StepChange:
        assert stage.step is not None
        known = self.head.steps.get(stage.name, StepState())
        changes = {}
        for table in self.typed.kernels[stage.step].tables:
            segments = tuple(done.segments.get(table, ()))
            add = (Run(self._files(stage).name("run"), segments, 0),) if segments else ()
            replace = self.merger.take((stage.name, table), known.manifest(table))
            changes[table] = Change(add=add, replace=replace, floor=done.floors.get(table))
        sides = self._reached(stage)
        after = min(sides)
        return StepChange(changes, watermark=after, out=min(after, done.held), wake=done.wake,
                          sides=sides if len(sides) > 1 else ())  # fmt: skip


def _filled(ranges: Ranges) -> Ranges:
    """The ranges that hold something."""
    return {partition: (a, b) for partition, (a, b) in ranges.items() if b > a}


def _origin_of(read: Read, name: str) -> str:
    """Return what dead rows name as their source: the log, or the read, whose name is unique."""
    return read.source.log_name if isinstance(read.source, RecordLog) else name


def _pieces(table: pa.Table) -> Iterator[pa.Table]:
    for first in range(0, table.num_rows, DEAD_AT_ONCE):
        yield table.slice(first, DEAD_AT_ONCE)
