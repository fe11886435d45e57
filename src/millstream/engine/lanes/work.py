"""What a lane is handed for one stage of one batch, and what it hands back."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.engine.checkpoint.staging import stage as stage_file
from millstream.engine.checkpoint.staging import unstage
from millstream.engine.dead_letters import envelopes, refused
from millstream.event_time.batch_time import END_OF_TIME, BatchTime
from millstream.formats.times import GREATEST, LEAST
from millstream.metrics.instances import add as add_instance
from millstream.metrics.instances import instance, of_buckets
from millstream.operators.kernel import Late, Prepared, Replicates
from millstream.plan.graph import Read
from millstream.plan.stages import POSITION
from millstream.state.keys.hashing import hash_keys
from millstream.state.runs.runs import Segment, write_segment
from millstream.state.runs.view import View

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from millstream.engine.dead_letters.refused import Guard
    from millstream.engine.lanes.prefetch import Taken
    from millstream.metrics.instances import Instance
    from millstream.operators.kernel import Kernel
    from millstream.plan.graph import Stateful
    from millstream.plan.stages import Side, Stage
    from millstream.sources.decode import Report, Rows
    from millstream.sources.spec import Ranges, Reader
    from millstream.sql.arrow.values import ArrowSteps
    from millstream.state.runs.manifest import Manifest

FLOW = -1  # the source of results; the last of `Work.sources` names the steps they come from


class Decodes(Protocol):
    """How a source's raw records become rows: a plain value that is sent to Spark's workers."""

    @property
    def more(self) -> tuple[str, ...]:
        """Of a record's key and headers, what it needs."""

    def columns(self) -> pa.Schema:
        """The columns of good rows."""

    def __call__(self, raw: pa.Table) -> Rows:
        """Decode a slice of what the reader gave."""


@dataclass(frozen=True)
class Files:
    """How files of one attempt are called: batch, incarnation and attempt are in each name."""

    staged: Path
    stem: str
    guards: tuple[Guard, ...] = ()

    def name(self, what: str) -> str:
        """A name nobody has had before."""
        return f"{self.stem}-{what}-{uuid.uuid4().hex[:12]}.arrow"

    def stage(self, what: str, tables: Any) -> tuple[str, int] | None:
        """Write rows that wait for a sink or a later stage."""
        return stage_file(self.staged, self.name(what), tables)

    def leave(self, rows: Iterable[tuple[pa.Table, pa.Table]]) -> dict[str, Any]:
        """Stage results, without those that a sink can never take: see `refused.staged`."""
        return refused.staged(
            self.stage, lambda entry: unstage(self.staged, entry), self.guards, rows
        )


@dataclass(frozen=True)
class Step:
    """A stateful step as tasks need it: kernel, state, place."""

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
        """What the step remembers for the keys of these buckets, table by table."""
        shared = self.kernel.shared if isinstance(self.kernel, Replicates) else ()
        return {
            table: View(self.folders[table], spec, known.runs, floor=known.floor,
                        buckets=(0, self.buckets) if table in shared else buckets,
                        of=self.buckets)
            for table, spec in self.kernel.tables.items()
            for known in [self.manifests[table]]
        }  # fmt: skip


@dataclass(frozen=True)
class Work:
    """One stage of one batch.

    `columns`, `before` and what `after` gives are those of each side of the stage, `arrow` its
    stateless steps where they need no Spark. `ahead` hands over what has been read of a
    source's ranges before the batch began.
    """

    stage: Stage
    step: Step | None
    readers: dict[Read, tuple[Reader, Ranges, Decodes]]
    flows: dict[Stateful, tuple[list[str], pa.Schema]]
    reports: frozenset[Read]
    files: Files
    sources: list[str]
    columns: tuple[pa.Schema, ...]
    arrow: tuple[ArrowSteps | None, ...]
    clock: int
    since: int
    before: tuple[int, ...]
    after: Callable[[dict[Read, Report]], tuple[int, ...]]
    decoded: dict[Read, pa.Table] = field(default_factory=dict)
    ahead: Callable[[Read, Ranges], Taken] | None = None

    @property
    def empty(self) -> bool:
        """Whether nothing comes in: no range holds a record, no stage before it emitted."""
        return all(self.silent(side) for side in self.stage.sides)

    def silent(self, side: Side) -> bool:
        """Whether nothing comes in by one side."""
        return not any(
            self.readers[leaf][1] if isinstance(leaf, Read) else self.flows[leaf][0]
            for leaf in side.leaves
        )

    def batch_time(self, after: tuple[int, ...]) -> BatchTime:
        """When this stage happens."""
        sides = tuple(zip(self.before, after, strict=True)) if len(after) > 1 else ()
        return BatchTime(min(self.before), min(after), self.clock, self.since, sides)


@dataclass
class Done:
    """What a stage gave: reports per source, files by door, what the state gains."""

    reports: dict[Read, Report] = field(default_factory=dict)
    results: list[str] = field(default_factory=list)
    flow: list[str] = field(default_factory=list)
    late: list[str] = field(default_factory=list)
    bad: dict[Read, list[str]] = field(default_factory=dict)
    left: dict[str, int] = field(default_factory=dict)
    segments: dict[str, list[Segment]] = field(default_factory=dict)
    floors: dict[str, int] = field(default_factory=dict)
    held: int = END_OF_TIME
    wake: int = END_OF_TIME
    rows_in: int = 0
    ahead: int = 0
    instances: dict[str, Instance] = field(default_factory=dict)
    refused: dict[str, dict[str, Any]] = field(default_factory=dict)

    def take(self, part: dict[str, Any]) -> None:
        """Take in what one task did (as `execute` and `prepare` tell it)."""
        for output, own in part.get("refused", {}).items():
            self.refused.setdefault(output, {})[part["results"][0]] = own
        for door in ("results", "flow", "late"):
            if entry := part.get(door):
                getattr(self, door).append(entry[0])
                self.left[door] = self.left.get(door, 0) + entry[1]
        for count in ("discarded", "unplaced", "behind", "applied"):
            self.left[count] = self.left.get(count, 0) + part.get(count, 0)
        for table, segment in part.get("segments", {}).items():
            self.segments.setdefault(table, []).append(Segment(**segment))
        for table, floor in part.get("floors", {}).items():
            self.floors[table] = min(floor, self.floors.get(table, floor))
        self.held = min(self.held, part.get("held", END_OF_TIME))
        self.wake = min(self.wake, part.get("wake", END_OF_TIME))
        self.rows_in += part.get("rows_in", 0)
        if "instance" in part:
            add_instance(self.instances, part["instance"])

    def results_of(self, output: str) -> list[tuple[str, int | None]]:
        """The files of one output's rows; the number of rows where it is not all of the file."""
        own = self.refused.get(output, {})
        files = [own[entry][0] if entry in own else (entry, None) for entry in self.results]
        return [file for file in files if file is not None]

    def refused_by(self, output: str) -> list[tuple[str, int]]:
        """The files of the rows that an output's sink can never take, with their numbers."""
        return [dead for _, dead in self.refused.get(output, {}).values()]

    @property
    def late_rows(self) -> int:
        """How many rows were late, wherever they went."""
        return sum(self.left.get(count, 0) for count in ("late", "discarded", "applied"))


class Lane(Protocol):
    """A way to run a stage."""

    def run(self, work: Work) -> Done:
        """Run it: read, decode, stateless steps, then the kernel or the outputs."""


def timed(rows: pa.Table, time: tuple[str, int] | None) -> pa.Table:
    """The rows with `_time`, the event time in microseconds, where the stream has one."""
    if time is None or "_time" in rows.column_names:
        return rows
    column = rows[time[0]].cast(pa.int64())
    if time[1]:
        column = pc.add(column, time[1])
    return rows.append_column("_time", column)


def prepare(
    step: Step,
    rows: pa.Table,
    batch_time: BatchTime,
    files: Files,
    sources: Sequence[str],
    side: int = 0,
) -> tuple[Prepared, dict[str, Any]]:
    """Before the shuffle: the exchange table, and the late rows staged.

    Of a log of changes those behind the watermark are late, though they are applied.
    """
    rows = timed(rows, step.times[side])
    prepared = step.kernel.prepare(rows, batch_time, side)
    part: dict[str, Any] = {"rows_in": rows.num_rows, "unplaced": prepared.unplaced}
    if "_time" in rows.column_names:
        count = "applied" if POSITION in rows.column_names else "behind"
        part[count] = _behind(rows, batch_time.before_of(side)) - len(prepared.late)
    if len(prepared.late):
        late = Late(rows.take(pa.array(prepared.late)), prepared.late_windows)
        part |= _part_late(step, [late], batch_time, files, sources)
    return prepared, part


def _behind(rows: pa.Table, watermark: int) -> int:
    """How many rows are behind the watermark, late or not."""
    return int(np.count_nonzero(rows["_time"].to_numpy() < watermark))


def _part_late(
    step: Step, late: Sequence[Late], batch_time: BatchTime, files: Files, sources: Sequence[str]
) -> dict[str, Any]:
    """Late rows on their way to `rest`; only counted where the user said to discard them."""
    if not step.rest:
        return {"discarded": sum(part.rows.num_rows for part in late)}
    tables = (envelopes.late(part, step=step.name, sources=list(sources), batch_time=batch_time)
              for part in late)  # fmt: skip
    return {"late": files.stage("late", tables)}


def execute(
    step: Step,
    sides: Sequence[Sequence[pa.Table]],
    buckets: tuple[int, int],
    batch_time: BatchTime,
    files: Files,
    sources: Sequence[str],
) -> dict[str, Any]:
    """After the shuffle: run the kernel over a range of buckets, stage what leaves,
    write what it remembers."""
    began = time.perf_counter()
    outcome = step.kernel.run(sides, step.views(buckets), batch_time)
    results = map(_within_years, outcome.results)
    part = files.leave((rows, rows) for rows in results)
    if step.feeds:
        apart = None
        if outcome.flow is not None:
            apart = files.stage("flow", map(_within_years, outcome.flow))
        part["flow"] = part["results"] if outcome.flow is None else apart
    if outcome.late:
        part |= _part_late(step, outcome.late, batch_time, files, sources)
        part["behind"] = -sum(late.rows.num_rows for late in outcome.late)
    part |= {"held": outcome.held, "wake": outcome.wake, "floors": dict(outcome.floors)}
    part["segments"] = {
        table: write_segment(step.folders[table], files.name("run"), delta, buckets=buckets,
                             of=step.buckets).to_json()
        for table, delta in outcome.deltas.items() if delta.num_rows
    }  # fmt: skip
    taken = sum(table.num_rows for side in sides for table in side)
    did = {"in": taken, "out": part["results"][1] if part["results"] else 0,
           "late": late_of(part), "seconds": time.perf_counter() - began}  # fmt: skip
    part["instance"] = {**instance(of_buckets(buckets), **did), "buckets": list(buckets)}
    return part


def late_of(part: Mapping[str, Any]) -> int:
    """How many rows one task found to be late, wherever they went."""
    staged = part.get("late")
    return int((staged[1] if staged else 0) + part.get("discarded", 0) + part.get("applied", 0))


def _within_years(results: pa.Table) -> pa.Table:
    """Bounds of windows beyond the years 1 to 9999, which nobody could read, are at their edge."""
    for name in ("window_start", "window_end"):
        if name in results.column_names and results.num_rows:
            column = results[name].cast(pa.int64())
            ends = pc.min_max(column).as_py()
            if ends["min"] is not None and (ends["min"] < LEAST or ends["max"] > GREATEST):
                edged = pc.min_element_wise(pc.max_element_wise(column, LEAST), GREATEST)
                edged = pc.if_else(pc.is_null(column), column, edged)
                place = results.column_names.index(name)
                kind = results.schema.field(place).type
                results = results.set_column(place, name, edged.cast(kind))
    return results


def read_flow(
    staged: Path, entry: str, columns: pa.Schema, keys: Sequence[str]
) -> Iterator[pa.Table]:
    """What an earlier stage of this batch emitted into one file, each row with its origin.

    A row that a step let pass has the origin it came with. A result has one made of its
    time and its keys: the same in every lane and under any cut.
    """
    for table in unstage(staged, entry):
        rows = table if "_source" in table.column_names else _with_origin(table, keys)
        yield rows.select(columns.names).cast(columns)


def _with_origin(results: pa.Table, keys: Sequence[str]) -> pa.Table:
    count = results.num_rows
    hashes = hash_keys([results[key] for key in keys], count)
    return (
        results.append_column("_source", pa.array(np.full(count, FLOW, np.int32)))
        .append_column("_partition", pa.array(np.zeros(count, np.int32)))
        .append_column("_offset", pc.fill_null(results["_time"], 0))
        .append_column("_sub", pa.array(hashes.view(np.int64)))
    )
