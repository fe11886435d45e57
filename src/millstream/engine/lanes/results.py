"""What a lane returns to the batch: first what it read for a stage, then the stage's result.

Tasks and whole stages use the same dataclass, and `add` sums the tasks up. Spark tasks return it to
the driver as JSON; the rows themselves are in staged files and state segments.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Self

from millstream.engine.checkpoint.staging import StagedFile
from millstream.engine.dead_letters.refused import RefusedRows
from millstream.engine.lanes.exchange import Exchanged
from millstream.event_time.batch_time import END_OF_TIME
from millstream.metrics.instances import add as add_instance
from millstream.sources.decode import Report
from millstream.state.runs.runs import Segment

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pyarrow as pa

    from millstream.metrics.instances import Instance
    from millstream.plan.graph import Read


@dataclass
class StageResult:
    """What one task of a stage did, or all of its tasks together.

    `results` go to sinks, those that are `retracted` before all others, `flow` to later stages,
    `late` to `rest=`; `refused` are results that a sink can never accept; `exchanged` are partial
    results for the kernels. `segments` and `floors` change the step's state tables. The step may
    still emit event times from `held` on, and may fire at the batch clock `wake` without new rows.

    `behind` counts rows behind the watermark that were still used, `applied` late changes of a
    table, `discarded` late rows that are dropped, `unplaced` rows that belong to no window.
    """

    results: list[StagedFile] = field(default_factory=list)
    retracted: list[StagedFile] = field(default_factory=list)
    flow: list[StagedFile] = field(default_factory=list)
    late: list[StagedFile] = field(default_factory=list)
    refused: list[RefusedRows] = field(default_factory=list)
    exchanged: list[Exchanged] = field(default_factory=list)
    segments: dict[str, list[Segment]] = field(default_factory=dict)
    floors: dict[str, int] = field(default_factory=dict)
    held: int = END_OF_TIME
    wake: int = END_OF_TIME
    rows_in: int = 0
    behind: int = 0
    applied: int = 0
    discarded: int = 0
    unplaced: int = 0
    instances: dict[str, Instance] = field(default_factory=dict)

    @classmethod
    def of(cls, parts: Iterable[StageResult]) -> Self:
        """The sum of the parts."""
        total = cls()
        for part in parts:
            total.add(part)
        return total

    def add(self, other: StageResult) -> None:
        """Add the result of another task."""
        self.results += other.results
        self.retracted += other.retracted
        self.flow += other.flow
        self.late += other.late
        self.refused += other.refused
        self.exchanged += other.exchanged
        for table, segments in other.segments.items():
            self.segments.setdefault(table, []).extend(segments)
        for table, floor in other.floors.items():
            self.floors[table] = min(floor, self.floors.get(table, floor))
        self.held, self.wake = min(self.held, other.held), min(self.wake, other.wake)
        self.rows_in += other.rows_in
        self.behind += other.behind
        self.applied += other.applied
        self.discarded += other.discarded
        self.unplaced += other.unplaced
        for instance in other.instances.values():
            add_instance(self.instances, instance)

    @property
    def rows_out(self) -> int:
        """How many rows were emitted, including those that a sink refused."""
        return rows_of(self.results) + rows_of(self.retracted)

    @property
    def late_rows(self) -> int:
        """How many rows were late: staged, discarded or applied."""
        return rows_of(self.late) + self.discarded + self.applied

    def files_of(self, output: str) -> list[str]:
        """The files of one output's rows, without rows that its sink refuses."""
        own = {refused.file: refused.kept for refused in self.refused if refused.output == output}
        files = [own.get(file.entry, file) for file in (*self.retracted, *self.results)]
        return [file.entry for file in files if file is not None]

    def refused_by(self, output: str) -> list[StagedFile]:
        """The files of the rows that an output's sink refuses."""
        return [refused.rows for refused in self.refused if refused.output == output]

    def to_json(self) -> dict[str, Any]:
        """The fields that are not empty."""
        return {name: value for name, value in asdict(self).items() if value not in ([], {})}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`."""
        files = {name: [StagedFile(*file) for file in body.get(name, ())]
                 for name in ("results", "retracted", "flow", "late")}  # fmt: skip
        return cls(**{
            **body,
            **files,
            "refused": [RefusedRows.from_json(one) for one in body.get("refused", ())],
            "exchanged": [Exchanged.from_json(one) for one in body.get("exchanged", ())],
            "segments": {table: [Segment.from_json(one) for one in some]
                         for table, some in body.get("segments", {}).items()},
        })  # fmt: skip


@dataclass
class SourceRead:
    """What was read of one source: the decoder's report, and files with bad records."""

    report: Report = field(default_factory=Report)
    bad: list[StagedFile] = field(default_factory=list)

    def add(self, other: SourceRead) -> None:
        """Add what another task read."""
        self.report.add(other.report)
        self.bad += other.bad


@dataclass
class StageRead:
    """What a lane read for one stage, before the watermark of the batch is known.

    `sources` has the reports that advance watermarks, `result` what is already done: late rows,
    results of stages without a step, exchange files. `sides` are partial results for the kernel
    that stay in memory; `decoded` the rows of sources, for later stages that read them too;
    `prefetched` counts rows that were read before the batch started.
    """

    sources: dict[Read, SourceRead] = field(default_factory=dict)
    result: StageResult = field(default_factory=StageResult)
    sides: list[list[pa.Table]] = field(default_factory=list)
    decoded: dict[Read, pa.Table] = field(default_factory=dict)
    prefetched: int = 0
    seconds: float = 0.0

    @property
    def bad_records(self) -> int:
        """How many records were bad."""
        return sum(source.report.bad for source in self.sources.values())


def rows_of(files: Iterable[StagedFile]) -> int:
    """How many rows the files hold."""
    return sum(file.rows for file in files)
