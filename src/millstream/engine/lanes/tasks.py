"""The functions that run in Spark's Python workers, as importable classes.

Spark calls each once per partition with its record batches; it returns one row, the JSON of its
`StageResult`. Files have unique names, and only those that a finished task returns are used: a task
that runs twice, by a retry or by speculation, leaves an orphaned file and nothing else.
"""

from __future__ import annotations

import gc
import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.engine.lanes import exchange_files
from millstream.engine.lanes.execution import execute, leaving, prepare, read_flow
from millstream.engine.lanes.results import SourceRead, StageResult
from millstream.metrics.instances import input_name, instance, worker_name
from millstream.state.arrays.numpy_columns import taken
from millstream.state.keys.hashing import hash_range
from millstream.state.sorting import hashes_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray
    from pyspark.accumulators import Accumulator

    from millstream.engine.lanes.exchange_files import Exchanged
    from millstream.engine.lanes.work import Files, Step
    from millstream.engine.spark.per_run import PerRun
    from millstream.event_time.batch_time import BatchTime
    from millstream.sources.decode import DecodeContext, RecordDecoder
    from millstream.sources.spec import Fetching
    from millstream.sql.arrow.values import ArrowSteps

PART = "part string"
CHUNK_BYTES = 32 << 20
_IMPORTING_TASKS = 2
_begun: list[None] = []

Slice = tuple[int, int, int]  # a leaf, and the partition and offset of the first record read
SliceReads = dict[Slice, SourceRead]


def begin_task() -> None:
    """Called first in every task.

    Spark's daemon collects garbage after each task: 40 ms for the modules alone. Once they are
    imported, they are excluded from collections.
    """
    if len(_begun) < _IMPORTING_TASKS:
        _begun.append(None)
        gc.freeze()


@dataclass(frozen=True)
class Decode:
    """Decodes raw records; stages bad ones and sends the report to the driver.

    The first record of a slice identifies its report: a slice that is read twice (by a retry, by
    speculation, on both sides of a union) is reported twice and counted once. `steps` are applied
    to the decoded rows.
    """

    decoder: PerRun[RecordDecoder]
    context: DecodeContext
    leaf: int
    files: Files
    reports: bool
    slices: Accumulator[SliceReads]
    fetch: Fetching | None = None
    steps: PerRun[ArrowSteps] | None = None

    def tables(
        self, batches: Iterable[pa.RecordBatch], source: SourceRead | None = None
    ) -> Iterator[pa.Table]:
        """Chunks of rows; adds to `source` what was read, and reports it at the end."""
        source, bad, first = SourceRead() if source is None else source, [], None
        decode, steps = self.decoder.value, None if self.steps is None else self.steps.value
        mark = time.perf_counter()
        for raw in chunks(batches if self.fetch is None else self.fetch(batches)):
            first = first or (raw["partition"][0].as_py(), raw["offset"][0].as_py())
            rows = decode(raw, self.context)
            rows.report.took(time.perf_counter() - mark, worker_name())
            source.report.add(rows.report)
            bad.append(rows.bad)
            yield rows.good if steps is None else steps(rows.good)
            mark = time.perf_counter()
        if self.reports and first is not None:
            source.bad += self.files.stage("bad", bad)
            self.slices.add({(self.leaf, *first): source})

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begin_task()
        for table in self.tables(batches):
            yield from table.to_batches()


@dataclass(frozen=True)
class Flow:
    """Reads rows that an earlier stage staged, from a frame of file names; applies `steps`."""

    files: Files
    columns: pa.Schema
    keys: tuple[str, ...]
    steps: PerRun[ArrowSteps] | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begin_task()
        steps = None if self.steps is None else self.steps.value
        for batch in batches:
            for entry in batch.column("file").to_pylist():
                for rows in read_flow(self.files, entry, self.columns, self.keys):
                    yield from (rows if steps is None else steps(rows)).to_batches()


@dataclass(frozen=True)
class Exchange:
    """Writes partial results to a file, split by the part of the state that owns their keys."""

    step: Step
    side: int
    batch_time: BatchTime
    files: Files
    sources: tuple[str, ...]
    parallel: int
    decode: Decode | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begin_task()
        began, source, result, out = time.perf_counter(), SourceRead(), StageResult(), 0
        outgoing: list[list[pa.Table]] = [[] for _ in range(self.parallel)]
        broadcast: list[pa.Table] = []
        for rows in _rows(batches, self.decode, source):
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
            result.exchanged.append(exchange_files.write(self._path(), outgoing, self.side))
        if broadcast:
            result.exchanged.append(exchange_files.write(
                self._path(), [broadcast], self.step.sides, broadcast=True))  # fmt: skip
        counts = {"in": result.rows_in, "out": out, "late": result.late_rows,
                  "dead": source.report.bad}  # fmt: skip
        yield reported(_by_this_task(result, counts, began))

    def _path(self) -> Path:
        return self.files.staged / self.files.name("exchange")


@dataclass(frozen=True)
class Close:
    """Runs the kernel over the exchanged rows of one part of the state."""

    step: Step
    batch_time: BatchTime
    files: Files
    sources: tuple[str, ...]
    parallel: int
    exchanged: tuple[Exchanged, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begin_task()
        for batch in batches:
            for pid in batch.column("id").to_pylist():
                sides = exchange_files.sides(
                    self.files.staged, self.exchanged, pid, count=self.step.sides
                )
                buckets = owned(pid, self.step.buckets, self.parallel)
                yield reported(
                    execute(self.step, sides, buckets, self.batch_time, self.files, self.sources)
                )


@dataclass(frozen=True)
class Leave:
    """Stages the rows of a stage without a stateful step."""

    files: Files
    time: tuple[str, int] | None
    columns: tuple[str, ...]
    decode: Decode | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begin_task()
        began, source = time.perf_counter(), SourceRead()
        result = self.files.stage_results(
            (leaving(rows, self.time, self.columns), rows)
            for rows in _rows(batches, self.decode, source)
        )
        result.rows_in = result.rows_out
        counts = {"in": result.rows_out, "out": result.rows_out, "dead": source.report.bad}
        yield reported(_by_this_task(result, counts, began))


def _by_this_task(result: StageResult, counts: Mapping[str, float], began: float) -> StageResult:
    """The result with this task as its instance."""
    one = instance(input_name(), **counts, seconds=time.perf_counter() - began)
    result.instances = {one["instance"]: one}
    return result


def _rows(
    batches: Iterable[pa.RecordBatch], decode: Decode | None, source: SourceRead
) -> Iterator[pa.Table]:
    """Chunks of the input rows, decoded if there is a decoder."""
    if decode is not None:
        return decode.tables(batches, source)
    return (table.combine_chunks() for table in chunks(batches))


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
