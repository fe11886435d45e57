"""What runs inside Spark's Python workers, as plain importable objects.

Each is called once per partition with its record batches. Files are written under
names of their own, and only what a finished task reports counts: a task that is run
twice, by a retry or by speculation, leaves nothing but an orphan.
"""

from __future__ import annotations

import gc
import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from millstream.engine.lanes import exchange_files
from millstream.engine.lanes.work import Files, Step, execute, late_of, prepare, read_flow, timed
from millstream.metrics.instances import here, instance, taking
from millstream.sources.decode import ORIGIN, Report
from millstream.state.arrays.numpy_columns import taken
from millstream.state.keys.hashing import hash_range
from millstream.state.sorting import hashes_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray
    from pyspark.accumulators import Accumulator

    from millstream.engine.lanes.exchange_files import Exchanged
    from millstream.engine.lanes.work import Decodes
    from millstream.event_time.batch_time import BatchTime
    from millstream.sources.spec import Fetching
    from millstream.sql.arrow.values import ArrowSteps

PART = "part string"
CHUNK_BYTES = 32 << 20
_IMPORTING_TASKS = 2
_begun: list[None] = []


def begin_task() -> None:
    """Called first in every task.

    Spark's daemon collects garbage after each one: 40 ms for the modules alone. Once they are
    imported, they are set aside from that.
    """
    if len(_begun) < _IMPORTING_TASKS:
        _begun.append(None)
        gc.freeze()


@dataclass(frozen=True)
class Decode:
    """Raw records in, rows out; bad ones staged; the report goes to the driver.

    Reports are kept by the first record of a slice: a slice that is read twice (by a
    retry, by speculation, on both sides of a union) reports the same twice, and counts
    once. With `steps`, what comes out are the rows after them.
    """

    decoder: Decodes
    leaf: int
    files: Files
    reports: bool
    heard: Accumulator[dict[Any, Any]]
    fetch: Fetching | None = None
    steps: ArrowSteps | None = None

    def tables(
        self, batches: Iterable[pa.RecordBatch], report: Report | None = None
    ) -> Iterator[pa.Table]:
        """Chunks of rows, and in the end the report, which is added to `report`."""
        report, bad, first = Report() if report is None else report, [], None
        mark = time.perf_counter()
        for raw in chunks(batches if self.fetch is None else self.fetch(batches)):
            first = first or (raw["partition"][0].as_py(), raw["offset"][0].as_py())
            rows = self.decoder(raw)
            rows.report.took(time.perf_counter() - mark, here())
            report.add(rows.report)
            bad.append(rows.bad)
            yield rows.good if self.steps is None else self.steps(rows.good)
            mark = time.perf_counter()
        if self.reports and first is not None:
            dead = self.files.stage("bad", bad)
            self.heard.add({(self.leaf, *first): {"report": report, "dead": dead}})

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begin_task()
        for table in self.tables(batches):
            yield from table.to_batches()


@dataclass(frozen=True)
class Flow:
    """Rows an earlier stage staged, from a frame that lists their files; after `steps`."""

    files: Files
    columns: pa.Schema
    keys: tuple[str, ...]
    steps: ArrowSteps | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begin_task()
        for batch in batches:
            for entry in batch.column("file").to_pylist():
                for rows in read_flow(self.files.staged, entry, self.columns, self.keys):
                    yield from (rows if self.steps is None else self.steps(rows)).to_batches()


@dataclass(frozen=True)
class Exchange:
    """Rows in; partial results, cut by who owns their keys, into one file of the batch.

    What a task wrote counts once the driver has its account of it.
    """

    step: Step
    side: int
    batch_time: BatchTime
    files: Files
    sources: tuple[str, ...]
    parallel: int
    decode: Decode | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begin_task()
        began, report = time.perf_counter(), Report()
        tables = _rows(batches, self.decode, report)
        outgoing: list[list[pa.Table]] = [[] for _ in range(self.parallel)]
        everywhere: list[pa.Table] = []
        did = instance(taking())
        for rows in tables:
            prepared, part = prepare(
                self.step, rows, self.batch_time, self.files, self.sources, self.side
            )
            did["in"] += rows.num_rows
            did["late"] += late_of(part)
            yield told(part)
            cut = parted(prepared.exchange, self.step.buckets, self.parallel)
            for pid, table in enumerate(cut):
                if table.num_rows:
                    outgoing[pid].append(table)
                    did["out"] += table.num_rows
            if prepared.everywhere is not None and prepared.everywhere.num_rows:
                everywhere.append(prepared.everywhere)
        if any(outgoing):
            yield told({"exchange": self._written(outgoing, self.side)})
        if everywhere:
            whole = self._written([everywhere], self.step.sides)
            yield told({"exchange": {**whole, "everywhere": True}})
        seconds = time.perf_counter() - began
        yield told({"instance": {**did, "dead": report.bad, "seconds": seconds}})

    def _written(self, parts: list[list[pa.Table]], side: int) -> dict[str, Any]:
        name = self.files.name("exchange")
        size, counts = exchange_files.write(self.files.staged / name, parts)
        return {"file": name, "parts": counts, "bytes": size, "side": side}


@dataclass(frozen=True)
class Close:
    """The exchanged rows of one part of the state, through the kernel."""

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
                yield told(
                    execute(self.step, sides, buckets, self.batch_time, self.files, self.sources)
                )


@dataclass(frozen=True)
class Leave:
    """Rows that go to outputs as they are: staged."""

    files: Files
    time: tuple[str, int] | None
    columns: tuple[str, ...]
    decode: Decode | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begin_task()
        began, report = time.perf_counter(), Report()
        tables = _rows(batches, self.decode, report)
        part = self.files.leave((self.leaving(rows), rows) for rows in tables)
        rows = part["results"][1] if part["results"] else 0
        did = {"in": rows, "out": rows, "dead": report.bad, "seconds": time.perf_counter() - began}
        yield told({**part, "rows_in": rows, "instance": instance(taking(), **did)})

    def leaving(self, rows: pa.Table) -> pa.Table:
        """The output's columns, with the event time beside them."""
        more = [name for name in ("_time", "_sign") if name in rows.column_names]
        rows = timed(rows, self.time)
        names = dict.fromkeys([*self.columns, *(["_time"] if self.time else []), *more])
        return rows.select(list(names))


def _rows(
    batches: Iterable[pa.RecordBatch], decode: Decode | None, report: Report
) -> Iterator[pa.Table]:
    """Chunks of the rows that come in, or of those that are decoded of what comes in."""
    if decode is not None:
        return decode.tables(batches, report)
    return (table.combine_chunks() for table in chunks(batches))


def chunks(batches: Iterable[pa.RecordBatch], size: int = CHUNK_BYTES) -> Iterator[pa.Table]:
    """Record batches put together, uncopied, to tables of a size worth a kernel's while."""
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
    """An exchange table cut by who owns its keys."""
    if parallel == 1:
        return [exchange]
    hashes = hashes_of(exchange)
    ranges = [owned(pid, buckets, parallel) for pid in range(parallel)]
    return [taken(exchange, _within(hashes, mine, buckets)) for mine in ranges]


def _within(hashes: NDArray[np.uint64], mine: tuple[int, int], buckets: int) -> NDArray[np.int64]:
    """The places of the hashes in a range of buckets, which may be empty."""
    if mine[0] == mine[1]:
        return np.zeros(0, np.int64)
    least, greatest = hash_range(mine, buckets)
    return np.flatnonzero((hashes >= np.uint64(least)) & (hashes <= np.uint64(greatest)))


def told(part: dict[str, Any]) -> pa.RecordBatch:
    """One task's account of itself, as the row it returns."""
    return pa.record_batch([pa.array([json.dumps(part)])], names=["part"])


def without_origin(names: Iterable[str]) -> tuple[str, ...]:
    """The user's columns among these."""
    return tuple(name for name in names if name not in ORIGIN and not name.startswith("_"))
