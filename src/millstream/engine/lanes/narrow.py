"""The narrow lane: the driver reads rows as Arrow and runs the kernels. No shuffle."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pyarrow as pa

from millstream.engine.lanes.cutting import reading
from millstream.engine.lanes.execution import execute, leaving, prepare, read_flow, without_origin
from millstream.engine.lanes.prefetch import concat_rows
from millstream.engine.lanes.results import SourceRead, StageRead, StageResult
from millstream.engine.spark.failures import user_code
from millstream.engine.spark.frames import build, packed, unpacked
from millstream.metrics.instances import buckets_name, input_name, instance, worker_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from millstream.engine.lanes.work import Step, Work
    from millstream.engine.spark.session import Spark
    from millstream.event_time.batch_time import BatchTime
    from millstream.plan.graph import Node, Read


class NarrowLane:
    """Runs a stage on the driver; Spark only runs SQL that needs it."""

    def __init__(self, spark: Spark | None) -> None:
        self._spark = spark

    def read(self, work: Work) -> StageRead:
        """Fetch and decode rows, run SQL, and compute the partial results of the step."""
        began, read = time.perf_counter(), StageRead()
        tables: dict[Node, pa.Table] = {}
        for leaf in work.sources:
            tables[leaf] = _decoded(leaf, work, read)
        for node, (entries, schema) in work.flows.items():
            parts = [table for entry in entries
                     for table in read_flow(work.files, entry, schema, node.keys)]  # fmt: skip
            tables[node] = pa.concat_tables([schema.empty_table(), *parts])
        sides = [self._rows(work, place, tables) for place in range(len(work.stage.sides))]
        if work.step is None:
            _leave(work, sides[0], read)
        else:
            _prepare(work.step, work, sides, read)
        read.seconds = time.perf_counter() - began
        return read

    def close(self, work: Work, read: StageRead, batch_time: BatchTime) -> StageResult:
        """Run the kernel over all buckets."""
        began, parts = time.perf_counter(), [read.result]
        if work.step is not None:
            with user_code(work.stage.name, *work.stage.trees):
                parts.append(execute(work.step, read.sides, (0, work.step.buckets), batch_time,
                                     work.files, work.source_names))  # fmt: skip
        result = StageResult.of(parts)
        _one_instance(work, read, result, read.seconds + time.perf_counter() - began)
        return result

    def _rows(self, work: Work, place: int, tables: dict[Node, pa.Table]) -> pa.Table:
        """The rows of one side."""
        side, columns, steps = work.stage.sides[place], work.columns[place], work.arrow[place]
        if side.bare:
            return tables[side.tree]
        if steps is not None:
            return steps(tables[side.leaves[0]])
        if not any(tables[leaf].num_rows for leaf in side.leaves):
            return columns.empty_table()
        with user_code(work.stage.name, side.tree):
            assert self._spark is not None, "a task runs no Spark SQL"
            spark = self._spark.get()
            frames: dict[Node, DataFrame] = {
                leaf: packed(spark.createDataFrame(tables[leaf]), side.carried)
                for leaf in side.leaves
            }
            built = build(side.tree, frames, work.clock)
            made = unpacked(built, side.carried).toArrow()
        return made.select(columns.names).cast(columns)


def _decoded(leaf: Read, work: Work, read: StageRead) -> pa.Table:
    """The rows of a source, fetched and decoded once per batch."""
    source = work.sources[leaf]
    if source.rows is not None:
        return source.rows
    parts = [] if source.prefetched is None else list(source.prefetched.rows)
    left = source.ranges if source.prefetched is None else source.prefetched.left
    read.prefetched += sum(part.report.rows for part in parts)
    if left or not parts:
        began = time.perf_counter()
        with reading(leaf):
            raw = source.reader.table(left, source.decoder.more)
        parts.append(source.decoder(raw, source.context))
        parts[-1].report.took(time.perf_counter() - began, worker_name())
    rows = concat_rows(parts, partitions=len(source.ranges))
    if source.reports:
        read.sources[leaf] = SourceRead(rows.report, work.files.stage("bad", [rows.bad]))
    read.decoded[leaf] = rows.good
    return rows.good


def _leave(work: Work, rows: pa.Table, read: StageRead) -> None:
    """Stage the rows of a stage without a step."""
    left = leaving(rows, work.output_time, without_origin(work.columns[0].names))
    read.result = work.files.stage_results([(left, rows)])
    read.result.rows_in = rows.num_rows


def _prepare(step: Step, work: Work, rows: list[pa.Table], read: StageRead) -> None:
    """The partial results of each side; broadcast ones are one more side."""
    batch_time, broadcast = work.batch_time(), []
    for side, table in enumerate(rows):
        prepared, result = prepare(step, table, batch_time, work.files, work.source_names, side)
        read.result.add(result)
        read.sides.append([prepared.exchange])
        if prepared.broadcast is not None:
            broadcast.append(prepared.broadcast)
    if broadcast:
        read.sides.append(broadcast)


def _one_instance(work: Work, read: StageRead, result: StageResult, seconds: float) -> None:
    """The stage has one instance, which reads all rows and owns all buckets."""
    counts = {"in": result.rows_in, "out": result.rows_out, "late": result.late_rows,
              "dead": read.bad_records, "seconds": seconds}  # fmt: skip
    if work.step is None:
        one = instance(input_name(), **counts)
    else:
        buckets = (0, work.step.buckets)
        one = {**instance(buckets_name(buckets), **counts), "buckets": list(buckets)}
    result.instances = {one["instance"]: one}
