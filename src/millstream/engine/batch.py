"""One attempt at one intent: what its stages did becomes a prepared record.

for each stage: its outcome → staged outputs, changes of state, dead rows
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from millstream.engine.checkpoint.fault_points import reached
from millstream.engine.checkpoint.protocol import Prepared, StagedFiles, StepChange, StepState
from millstream.engine.checkpoint.staging import unstage
from millstream.engine.dead_letters import envelopes, refused
from millstream.engine.lanes.results import rows_of
from millstream.engine.stage_runs import SourceProgress, stage_files
from millstream.errors import InvalidInput
from millstream.metrics.instances import bounded, source_instances
from millstream.plan.graph import Read
from millstream.sources.spec import log_name
from millstream.state.runs.manifest import Change
from millstream.state.runs.runs import Run

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from millstream.engine.checkpoint.protocol import Head, Intent
    from millstream.engine.checkpoint.staging import StagedFile
    from millstream.engine.lanes.results import StageResult
    from millstream.engine.lanes.work import Files
    from millstream.engine.stage_runs import RunPlan, StageOutcome, StageRunner
    from millstream.plan.stages import Stage
    from millstream.sources.spec import Reader
    from millstream.state.runs.merge import Merger

DEAD_AT_ONCE = 20_000


@dataclass
class BatchRun:
    """One attempt at one intent."""

    intent: Intent
    head: Head
    plan: RunPlan
    runner: StageRunner
    readers: Mapping[str, Reader]
    merger: Merger
    attempt: str
    stop_at_bad: bool = False
    _steps: dict[str, StepChange] = field(default_factory=dict)
    _outputs: list[StagedFiles] = field(default_factory=list)

    @property
    def failed(self) -> Stage | None:
        """The stage that is running, if its rows come from sources alone.

        Later stages also read results, which cannot be traced to single records.
        """
        stage = self.runner.current
        if stage is None or not all(isinstance(leaf, Read) for leaf in stage.leaves):
            return None
        return stage

    def run(self) -> Prepared:
        """Run all stages, and collect what they did."""
        steps: dict[str, dict[str, Any]] = {}
        progress = SourceProgress(self.intent, self.head, self.plan.typed.stages)
        for stage, outcome in self.runner.outcomes():
            began, result = time.perf_counter(), outcome.result
            progress.add(outcome.sources)
            self._settle(stage, outcome)
            steps[stage.name] = {
                "in": result.rows_in,
                "out": result.rows_out,
                "late": result.late_rows,
                "behind": result.behind,
                "unplaced": result.unplaced,
                "dead": self._stage_bad(stage, outcome) + self._stage_refused(stage, result),
                "ahead": outcome.prefetched,
                "seconds": outcome.seconds + time.perf_counter() - began,
                "instances": bounded(result.instances.values()),
            }
        reached("in the middle of a run", self.intent.batch)
        return Prepared(
            batch=self.intent.batch,
            intent=self.intent.id,
            attempt=self.attempt,
            outputs=tuple(self._outputs),
            sources={name: progress.after(name) for name in self.plan.typed.stages.reads},
            steps=self._steps,
            facts=self._facts(steps, progress),
        )

    def _facts(
        self, steps: Mapping[str, Mapping[str, Any]], progress: SourceProgress
    ) -> dict[str, Any]:
        reports = progress.reports
        return {
            "where": self.runner.where,
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

    # -- output of a stage -------------------------------------------------------

    def _settle(self, stage: Stage, outcome: StageOutcome) -> None:
        """Keep what a stage did for the prepared record."""
        result = outcome.result
        if result.late:
            self._output(stage.name, "late", result.late)
        for output in stage.outputs:
            rows = result.rows_out - rows_of(result.refused_by(output.name))
            if rows:
                files = tuple(result.files_of(output.name))
                self._outputs.append(StagedFiles(output.name, "result", rows, files))
        if stage.step is not None:
            self._steps[stage.name] = self._changed(stage, outcome)

    def _output(self, name: str, kind: str, files: list[StagedFile]) -> int:
        """Add staged files of an output; returns how many rows they hold."""
        if files:
            entries = tuple(file.entry for file in files)
            self._outputs.append(StagedFiles(name, kind, rows_of(files), entries))
        return rows_of(files)

    def _stage_bad(self, stage: Stage, outcome: StageOutcome) -> int:
        """Stage bad records with their raw bytes; returns how many there were."""
        staged: list[StagedFile] = []
        for name, found in outcome.sources.items():
            read = self.plan.typed.stages.reads[name]
            if self.stop_at_bad and found.bad:
                self._refuse_bad(read, found.bad[0])
            topic = log_name(read.source) or name
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
            names = [read.source.name for read in self.plan.typed.stages.reads.values()]
            dead = envelopes.refused(
                (part for file in files for part in self._staged_pieces(file)),
                output=output.name, topics=names, batch=self.intent.batch, clock=self.intent.clock,
            )  # fmt: skip
            rows += self._output(output.name, "dead", self._files(stage).stage("dead", dead))
        return rows

    def _staged_pieces(self, file: StagedFile) -> Iterator[pa.Table]:
        for table in unstage(self.plan.files.staged, file.entry):
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

    def _files(self, stage: Stage) -> Files:
        return stage_files(self.plan, self.intent, self.attempt, stage)

    def _changed(self, stage: Stage, outcome: StageOutcome) -> StepChange:
        assert stage.step is not None
        result, sides = outcome.result, outcome.sides
        known, changes = self.head.steps.get(stage.name, StepState()), {}
        for table in self.plan.typed.kernels[stage.step].tables:
            segments = tuple(result.segments.get(table, ()))
            add = (Run(self._files(stage).name("run"), segments, 0),) if segments else ()
            replace = self.merger.take((stage.name, table), known.manifest(table))
            changes[table] = Change(add=add, replace=replace, floor=result.floors.get(table))
        return StepChange(changes, watermark=min(sides), out=outcome.out, wake=result.wake,
                          sides=sides if len(sides) > 1 else ())  # fmt: skip
