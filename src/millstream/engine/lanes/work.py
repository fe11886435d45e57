"""What a lane gets for one stage of one batch: plain values, without a reference to the batch."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from millstream.engine.checkpoint.staging import stage as stage_file
from millstream.engine.checkpoint.staging import unstage
from millstream.engine.dead_letters import refused
from millstream.engine.lanes.results import StageResult
from millstream.event_time.batch_time import BatchTime
from millstream.operators.kernel import Replicates
from millstream.plan.graph import Read
from millstream.state.runs.view import View

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import pyarrow as pa

    from millstream.engine.checkpoint.staging import StagedFile
    from millstream.engine.dead_letters.refused import Guard
    from millstream.engine.lanes.prefetch import Prefetched
    from millstream.engine.lanes.results import StageRead
    from millstream.operators.kernel import Kernel
    from millstream.plan.graph import Stateful
    from millstream.plan.stages import Side, Stage
    from millstream.sources.decode import DecodeContext, RecordDecoder
    from millstream.sources.spec import Ranges, Reader
    from millstream.sql.arrow.values import ArrowSteps
    from millstream.state.runs.manifest import Manifest


@dataclass(frozen=True)
class Files:
    """Names the files of one attempt, by batch, incarnation and attempt."""

    staged: Path
    stem: str
    guards: tuple[Guard, ...] = ()

    def name(self, what: str) -> str:
        """A unique name."""
        return f"{self.stem}-{what}-{uuid.uuid4().hex[:12]}.arrow"

    def stage(self, what: str, tables: Iterable[pa.Table]) -> list[StagedFile]:
        """Write rows for a sink or a later stage; no file if there are none."""
        file = self._stage(what, tables)
        return [] if file is None else [file]

    def stage_results(self, rows: Iterable[tuple[pa.Table, pa.Table]]) -> StageResult:
        """Stage results, and separately those that a sink refuses: see `refused.staged`."""
        file, found = refused.staged(
            self._stage, lambda entry: unstage(self.staged, entry), self.guards, rows
        )
        return StageResult(results=[] if file is None else [file], refused=found)

    def _stage(self, what: str, tables: Iterable[pa.Table]) -> StagedFile | None:
        return stage_file(self.staged, self.name(what), tables)


@dataclass(frozen=True)
class Step:
    """A stateful step for tasks: its kernel, its state files, and which results it emits."""

    name: str
    kernel: Kernel
    folders: dict[str, Path]
    manifests: dict[str, Manifest]
    buckets: int
    times: tuple[tuple[str, int] | None, ...]
    rest: bool
    feeds: bool

    @property
    def sides(self) -> int:
        """How many inputs it has."""
        return len(self.times)

    def views(self, buckets: tuple[int, int]) -> dict[str, View]:
        """The state of the keys in these buckets, per table."""
        shared = self.kernel.shared if isinstance(self.kernel, Replicates) else ()
        return {
            table: View(self.folders[table], spec, known.runs, floor=known.floor,
                        buckets=(0, self.buckets) if table in shared else buckets,
                        of=self.buckets)
            for table, spec in self.kernel.tables.items()
            for known in [self.manifests[table]]
        }  # fmt: skip


@dataclass(frozen=True)
class SourceWork:
    """What a stage reads of one source.

    `reports` is false if an earlier stage has reported the same records; `rows` are the decoded
    records, if an earlier stage has kept them; `prefetched` are rows read before the batch started.
    """

    reader: Reader
    ranges: Ranges
    decoder: RecordDecoder
    context: DecodeContext
    reports: bool
    rows: pa.Table | None = None
    prefetched: Prefetched | None = None


@dataclass(frozen=True)
class Work:
    """One stage of one batch.

    `flows` are the files of earlier stages of this batch. `columns`, `before` and `arrow` have one
    entry for each side of the stage: its columns, its watermark when the batch began, and its
    stateless steps if they need no Spark.
    """

    stage: Stage
    step: Step | None
    sources: dict[Read, SourceWork]
    flows: dict[Stateful, tuple[list[str], pa.Schema]]
    files: Files
    source_names: tuple[str, ...]
    columns: tuple[pa.Schema, ...]
    arrow: tuple[ArrowSteps | None, ...]
    clock: int
    since: int
    before: tuple[int, ...]
    label: str

    @property
    def empty(self) -> bool:
        """Whether there is no input: no range has a record, and no earlier stage emitted rows."""
        return all(self.silent(side) for side in self.stage.sides)

    def silent(self, side: Side) -> bool:
        """Whether one side has no input."""
        return not any(
            self.sources[leaf].ranges if isinstance(leaf, Read) else self.flows[leaf][0]
            for leaf in side.leaves
        )

    def batch_time(self, after: tuple[int, ...] | None = None) -> BatchTime:
        """Watermarks and clock of this stage; without `after`, its new watermarks are not known."""
        after = self.before if after is None else after
        sides = tuple(zip(self.before, after, strict=True)) if len(after) > 1 else ()
        return BatchTime(min(self.before), min(after), self.clock, self.since, sides)

    @property
    def output_time(self) -> tuple[str, int] | None:
        """The event time of rows that go to outputs without a stateful step."""
        time = self.stage.trees[0].time
        return None if time is None else (time.column, time.shift)


class Lane(Protocol):
    """One way to run a stage. Between the two calls the batch advances the watermarks."""

    def read(self, work: Work) -> StageRead:
        """Fetch, decode and transform the rows, up to the partial results of the step.

        Rows of a stage without a step are staged for its outputs.
        """

    def close(self, work: Work, read: StageRead, batch_time: BatchTime) -> StageResult:
        """Run the step's kernel over the partial results, and close what the watermark allows."""
