"""What the tasks of wide batches run in Spark's Python workers, as importable classes.

    Decode, Flow       numbered slices → rows
    Send, Leave        rows → the exchange, or staged rows
    Close              the exchanged rows of one part of the state → results, state

Files have unique names, and only those that a finished task returns are used: a task that runs
twice, by a retry or by speculation, leaves an orphaned file and nothing else. Tasks without Spark
SQL before them are RDD jobs and return pickled results; after Spark SQL, rows come in as record
batches and the result leaves as a row of JSON.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa

from millstream.engine.lanes.execution import execute, leaving, prepare, read_flow
from millstream.engine.lanes.results import SourceRead, StageResult
from millstream.engine.spark.rdd_jobs import begin_task
from millstream.metrics.instances import input_name, instance, worker_name
from millstream.state.arrays.numpy_columns import taken
from millstream.state.keys.hashing import hash_range
from millstream.state.sorting import hashes_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from numpy.typing import NDArray
    from pyspark.accumulators import Accumulator

    from millstream.engine.lanes.exchange import Exchange, Exchanged
    from millstream.engine.lanes.work import Files, Step
    from millstream.engine.spark.per_run import PerRun
    from millstream.event_time.batch_time import BatchTime
    from millstream.sources.decode import DecodeContext, RecordDecoder
    from millstream.sources.spec import Fetching
    from millstream.sql.arrow.values import ArrowSteps

PART = "part string"
CHUNK_BYTES = 32 << 20

Slice = tuple[int, int, int]  # a leaf, and the partition and offset of the first record read
SliceReads = dict[Slice, SourceRead]


@dataclass
class Reads:
    """What a task reads: the sum of it, and slice by slice what its stage reports."""

    total: SourceRead = field(default_factory=SourceRead)
    slices: SliceReads = field(default_factory=dict)


class Rows(Protocol):
    """Rows of a side, made in a task from numbered slices."""

    def tables(self, numbers: Iterable[int], reads: Reads) -> Iterator[pa.Table]:
        """The rows of these slices, in chunks."""


@dataclass(frozen=True)
class Decode:
    """Fetches and decodes raw records; stages bad ones; applies `steps` to the decoded rows.

    The first record of a slice identifies its report: a slice that is read twice (by a retry, by
    speculation, on both sides of a union) is reported twice and counted once. Before Spark SQL,
    reports leave by an accumulator.
    """

    decoder: PerRun[RecordDecoder]
    context: DecodeContext
    leaf: int
    files: Files
    reports: bool
    fetch: Fetching
    steps: PerRun[ArrowSteps] | None = None
    accumulator: Accumulator[SliceReads] | None = None

    def tables(self, numbers: Iterable[int], reads: Reads) -> Iterator[pa.Table]:
        """Chunks of rows."""
        source, bad, first = SourceRead(), [], None
        decode, steps = self.decoder.value, None if self.steps is None else self.steps.value
        mark = time.perf_counter()
        for raw in chunks(self.fetch(numbers)):
            first = first or (raw["partition"][0].as_py(), raw["offset"][0].as_py())
            rows = decode(raw, self.context)
            rows.report.took(time.perf_counter() - mark, worker_name())
            source.report.add(rows.report)
            bad.append(rows.bad)
            yield rows.good if steps is None else steps(rows.good)
            mark = time.perf_counter()
        if first is None:
            return
        if self.reports:
            source.bad += self.files.stage("bad", bad)
            reads.slices[self.leaf, *first] = source
        reads.total.add(source)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begin_task()
        reads = Reads()
        for table in self.tables(_numbers(batches), reads):
            yield from table.to_batches()
        if self.accumulator is not None:
            self.accumulator.add(reads.slices)


@dataclass(frozen=True)
class Flow:
    """Reads rows that an earlier stage staged, one file per number; applies `steps`."""

    files: Files
    entries: tuple[str, ...]
    columns: pa.Schema
    keys: tuple[str, ...]
    steps: PerRun[ArrowSteps] | None = None

    def tables(self, numbers: Iterable[int], reads: Reads) -> Iterator[pa.Table]:
        """Chunks of rows; nothing is read from a source."""
        steps = None if self.steps is None else self.steps.value
        for number in numbers:
            for rows in read_flow(self.files, self.entries[number], self.columns, self.keys):
                yield rows if steps is None else steps(rows)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begin_task()
        for table in self.tables(_numbers(batches), Reads()):
            yield from table.to_batches()


@dataclass(frozen=True)
class Send:
    """Sends partial results, split by the part of the state that owns their keys."""

    step: Step
    side: int
    batch_time: BatchTime
    files: Files
    exchange: Exchange
    sources: tuple[str, ...]
    parallel: int

    def result(self, tables: Iterable[pa.Table], reads: Reads) -> StageResult:
        """What the rows of one task give; `reads` is complete once they have been taken."""
        began, result, out = time.perf_counter(), StageResult(), 0
        outgoing: list[list[pa.Table]] = [[] for _ in range(self.parallel)]
        broadcast: list[pa.Table] = []
        for rows in tables:
            prepared, part = prepare(
                self.step, rows, self.batch_time, self.files, self.sources, self.side
            )
            result.add(part)
            cut = parted(prepared.exchange, self.step.buckets, self.parallel)
            for pid, table in enumerate(cut):
                if table.num_rows:
                    outgoing[pid].append(table)
                    out += table.num_rows
            if prepared.broadcast is not None and prepared.broadcast.num_rows:
                broadcast.append(prepared.broadcast)
        if any(outgoing):
            result.exchanged.append(self.exchange.send(outgoing, self.side))
        if broadcast:
            result.exchanged.append(
                self.exchange.send([broadcast], self.step.sides, broadcast=True)
            )
        counts = {"in": result.rows_in, "out": out, "late": result.late_rows,
                  "dead": reads.total.report.bad}  # fmt: skip
        return _by_this_task(result, counts, began)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begin_task()
        yield reported(self.result(_combined(batches), Reads()))


@dataclass(frozen=True)
class Leave:
    """Stages the rows of a stage without a stateful step."""

    files: Files
    time: tuple[str, int] | None
    columns: tuple[str, ...]

    def result(self, tables: Iterable[pa.Table], reads: Reads) -> StageResult:
        """What the rows of one task give."""
        began = time.perf_counter()
        result = self.files.stage_results(
            (leaving(rows, self.time, self.columns), rows) for rows in tables
        )
        result.rows_in = result.rows_out
        counts = {"in": result.rows_out, "out": result.rows_out, "dead": reads.total.report.bad}
        return _by_this_task(result, counts, began)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begin_task()
        yield reported(self.result(_combined(batches), Reads()))


@dataclass(frozen=True)
class ReadPart:
    """One task of the job that reads a side without Spark SQL."""

    rows: Rows
    last: Send | Leave

    def __call__(self, numbers: Iterable[int]) -> tuple[StageResult, SliceReads]:
        reads = Reads()
        result = self.last.result(self.rows.tables(numbers, reads), reads)
        return result, reads.slices


@dataclass(frozen=True)
class Close:
    """One task of the job that runs the kernel: over the exchanged rows of a part of the state."""

    step: Step
    batch_time: BatchTime
    files: Files
    exchange: Exchange
    sources: tuple[str, ...]
    parallel: int
    exchanged: tuple[Exchanged, ...]

    def __call__(self, numbers: Iterable[int]) -> StageResult:
        parts = []
        for pid in numbers:
            sides = self.exchange.receive(self.exchanged, pid, self.step.sides)
            buckets = owned(pid, self.step.buckets, self.parallel)
            parts.append(
                execute(self.step, sides, buckets, self.batch_time, self.files, self.sources)
            )
        return StageResult.of(parts)


def _by_this_task(result: StageResult, counts: Mapping[str, float], began: float) -> StageResult:
    """The result with this task as its instance."""
    one = instance(input_name(), **counts, seconds=time.perf_counter() - began)
    result.instances = {one["instance"]: one}
    return result


def _combined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    return (table.combine_chunks() for table in chunks(batches))


def _numbers(batches: Iterable[pa.RecordBatch]) -> Iterator[int]:
    """The numbers in a frame of slices."""
    for batch in batches:
        yield from batch.column("id").to_pylist()


def chunks(batches: Iterable[pa.RecordBatch], size: int = CHUNK_BYTES) -> Iterator[pa.Table]:
    """Record batches combined, without a copy, into tables large enough for a kernel."""
    waiting: list[pa.RecordBatch] = []
    held = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        waiting.append(batch)
        held += batch.nbytes
        if held >= size:
            yield pa.Table.from_batches(waiting)
            waiting, held = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def owned(pid: int, buckets: int, parallel: int) -> tuple[int, int]:
    """The range of buckets that part `pid` of `parallel` owns."""
    return pid * buckets // parallel, (pid + 1) * buckets // parallel


def parted(exchange: pa.Table, buckets: int, parallel: int) -> list[pa.Table]:
    """An exchange table split by the part of the state that owns its keys."""
    if parallel == 1:
        return [exchange]
    hashes = hashes_of(exchange)
    ranges = [owned(pid, buckets, parallel) for pid in range(parallel)]
    return [taken(exchange, _within(hashes, mine, buckets)) for mine in ranges]


def _within(hashes: NDArray[np.uint64], mine: tuple[int, int], buckets: int) -> NDArray[np.int64]:
    """The indexes of the hashes in a range of buckets, which may be empty."""
    if mine[0] == mine[1]:
        return np.zeros(0, np.int64)
    least, greatest = hash_range(mine, buckets)
    return np.flatnonzero((hashes >= np.uint64(least)) & (hashes <= np.uint64(greatest)))


def reported(result: StageResult) -> pa.RecordBatch:
    """A task's result as the row that it returns."""
    return pa.record_batch([pa.array([json.dumps(result.to_json())])], names=["part"])


def read_report(part: str) -> StageResult:
    """The inverse of `reported`."""
    return StageResult.from_json(json.loads(part))
