"""What a lane is handed for one stage of one batch, and what it hands back."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from millstream.eventtime.moment import END_OF_TIME, Moment
from millstream.runtime import envelopes
from millstream.runtime.staging import stage as stage_file
from millstream.runtime.staging import unstage
from millstream.state.hashing import hash_keys
from millstream.state.runs import Segment, write_segment
from millstream.state.view import View

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from millstream.plan.graph import Read, Stateful
    from millstream.plan.stages import Stage
    from millstream.sources.decode import Decoder, Report
    from millstream.sources.spec import Ranges, Reader
    from millstream.state.manifest import Manifest
    from millstream.steps.kernel import Kernel

FLOW = -1  # the source of results; the last of `Work.sources` names the steps they come from


@dataclass(frozen=True)
class Files:
    """How files of one attempt are called: batch, incarnation and attempt are in each name."""

    staged: Path
    stem: str

    def name(self, what: str) -> str:
        """A name nobody has had before."""
        return f"{self.stem}-{what}-{uuid.uuid4().hex[:12]}.arrow"

    def stage(self, what: str, tables: Any) -> tuple[str, int] | None:
        """Write rows that wait for a sink or a later stage."""
        return stage_file(self.staged, self.name(what), tables)


@dataclass(frozen=True)
class Step:
    """A stateful step as tasks need it: kernel, state, place."""

    name: str
    kernel: Kernel
    folder: Path
    manifest: Manifest
    buckets: int
    time: tuple[str, int] | None
    window_size: int
    rest: bool

    def view(self, low: int, high: int, manifest: Manifest | None = None) -> View:
        """What the step remembers for the keys of these buckets."""
        known = manifest or self.manifest
        return View(self.folder, self.kernel.state, known.runs, floor=known.floor,
                    buckets=(low, high), of=self.buckets)  # fmt: skip


@dataclass(frozen=True)
class Work:
    """One stage of one batch."""

    stage: Stage
    step: Step | None
    readers: dict[Read, tuple[Reader, Ranges, Decoder]]
    flows: dict[Stateful, tuple[list[str], pa.Schema]]
    reports: frozenset[Read]
    files: Files
    sources: list[str]
    columns: pa.Schema
    clock: int
    before: int
    after: Callable[[dict[Read, Report]], int]
    parallel: int

    @property
    def empty(self) -> bool:
        """Whether nothing comes in: no range holds a record, no stage before it emitted."""
        flowing = any(entries for entries, _ in self.flows.values())
        return not flowing and not any(ranges for _, ranges, _ in self.readers.values())

    def moment(self, after: int) -> Moment:
        """When this stage happens."""
        return Moment(self.before, after, self.clock)


@dataclass
class Done:
    """What a stage gave: reports per source, files by door, what the state gains."""

    reports: dict[Read, Report] = field(default_factory=dict)
    results: list[str] = field(default_factory=list)
    late: list[str] = field(default_factory=list)
    bad: dict[Read, list[str]] = field(default_factory=dict)
    left: dict[str, int] = field(default_factory=dict)
    segments: list[Segment] = field(default_factory=list)
    floor: int | None = None
    held: int = END_OF_TIME
    rows_in: int = 0

    def take(self, part: dict[str, Any]) -> None:
        """Take in what one task did (as `execute` and `part_late` tell it)."""
        for door in ("results", "late"):
            if entry := part.get(door):
                getattr(self, door).append(entry[0])
                self.left[door] = self.left.get(door, 0) + entry[1]
        self.left["late"] = self.left.get("late", 0) + part.get("discarded", 0)
        if part.get("segment"):
            self.segments.append(Segment(**part["segment"]))
        if part.get("floor") is not None:
            self.floor = part["floor"] if self.floor is None else max(self.floor, part["floor"])
        self.held = min(self.held, part.get("held", END_OF_TIME))
        self.rows_in += part.get("rows_in", 0)


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
        import pyarrow.compute as pc

        column = pc.add(column, time[1])
    return rows.append_column("_time", column)


def prepare(
    step: Step, rows: pa.Table, moment: Moment, files: Files, sources: Sequence[str]
) -> tuple[pa.Table, dict[str, Any]]:
    """Before the shuffle: the exchange table, and the late rows staged."""
    rows = timed(rows, step.time)
    prepared = step.kernel.prepare(rows, moment)
    part: dict[str, Any] = {"rows_in": rows.num_rows}
    if len(prepared.late) and not step.rest:
        part["discarded"] = len(prepared.late)
    elif len(prepared.late):
        table = envelopes.late(rows, prepared, step=step.name, sources=list(sources),
                               size=step.window_size, moment=moment)  # fmt: skip
        part["late"] = files.stage("late", [table])
    return prepared.exchange, part


def execute(
    step: Step, inputs: Sequence[pa.Table], buckets: tuple[int, int], moment: Moment, files: Files,
    manifest: Manifest | None = None,
) -> dict[str, Any]:  # fmt: skip
    """After the shuffle: run the kernel over a range of buckets, stage what leaves,
    write what it remembers."""
    outcome = step.kernel.run(inputs, step.view(*buckets, manifest), moment)
    part: dict[str, Any] = {"results": files.stage("results", outcome.results)}
    part["held"] = outcome.held
    part["floor"] = outcome.floor
    if outcome.delta is not None and outcome.delta.num_rows:
        segment = write_segment(step.folder, files.name("run"), outcome.delta,
                                buckets=buckets, of=step.buckets)  # fmt: skip
        part["segment"] = segment.to_json()
    return part


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
        .append_column("_offset", results["_time"])
        .append_column("_sub", pa.array(hashes.view(np.int64)))
    )
