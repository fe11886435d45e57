"""The narrow lane: rows come to the driver as Arrow, and kernels run there. No shuffle."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pyarrow as pa

from millstream.engine.lanes.cutting import reading
from millstream.engine.lanes.prefetch import Taken, together
from millstream.engine.lanes.tasks import Leave, without_origin
from millstream.engine.lanes.work import Done, Work, execute, prepare, read_flow
from millstream.engine.spark.failures import user_code
from millstream.engine.spark.frames import build, packed, unpacked
from millstream.metrics.instances import DRIVER, instance, of_buckets, taking
from millstream.plan.graph import Read

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from millstream.engine.lanes.work import Step
    from millstream.engine.spark.session import Spark
    from millstream.event_time.batch_time import BatchTime
    from millstream.plan.graph import Node


class NarrowLane:
    """Runs a stage on the driver, with Spark for SQL that needs it."""

    name = "narrow"

    def __init__(self, spark: Spark) -> None:
        self._spark = spark

    def run(self, work: Work) -> Done:
        """Read, decode, SQL, kernel, files: one after the other, on the driver."""
        began, done = time.perf_counter(), Done()
        tables: dict[Node, pa.Table] = {}
        for leaf in work.stage.leaves:
            if isinstance(leaf, Read):
                tables[leaf] = self._decoded(leaf, work, done)
            else:
                entries, schema = work.flows[leaf]
                keys, folder = leaf.keys, work.files.staged
                parts = [table for entry in entries
                         for table in read_flow(folder, entry, schema, keys)]  # fmt: skip
                tables[leaf] = pa.concat_tables([schema.empty_table(), *parts])
        after = work.after(done.reports)
        sides = [self._rows(work, place, tables) for place in range(len(work.stage.sides))]
        if work.step is None:
            self._leave(work, sides[0], done)
        else:
            self._close(work.step, work, sides, work.batch_time(after), done)
        _one_instance(work, done, time.perf_counter() - began)
        return done

    def _leave(self, work: Work, rows: pa.Table, done: Done) -> None:
        leave = Leave(work.files, _time(work), without_origin(work.columns[0].names))
        done.take({**work.files.leave([(leave.leaving(rows), rows)]), "rows_in": rows.num_rows})

    def _close(
        self, step: Step, work: Work, rows: list[pa.Table], batch_time: BatchTime, done: Done
    ) -> None:
        sides: list[list[pa.Table]] = []
        everywhere: list[pa.Table] = []
        for side, table in enumerate(rows):
            prepared, part = prepare(step, table, batch_time, work.files, work.sources, side)
            done.take(part)
            sides.append([prepared.exchange])
            if prepared.everywhere is not None:
                everywhere.append(prepared.everywhere)
        if everywhere:
            sides.append(everywhere)
        with user_code(work.stage.name, *work.stage.trees):
            done.take(execute(step, sides, (0, step.buckets), batch_time, work.files, work.sources))

    def _decoded(self, leaf: Read, work: Work, done: Done) -> pa.Table:
        """The rows of a source, read and decoded once per batch, whoever takes them in."""
        if leaf in work.decoded:
            return work.decoded[leaf]
        reader, ranges, decoder = work.readers[leaf]
        taken = Taken((), ranges) if work.ahead is None else work.ahead(leaf, ranges)
        done.ahead += sum(part.report.rows for part in taken.rows)
        parts = list(taken.rows)
        if taken.left or not parts:
            began = time.perf_counter()
            with reading(leaf):
                raw = reader.table(taken.left, decoder.more)
            parts.append(decoder(raw))
            parts[-1].report.took(time.perf_counter() - began, DRIVER)
        rows = together(parts, partitions=len(ranges))
        if leaf in work.reports:
            done.reports[leaf] = rows.report
            staged = work.files.stage("bad", [rows.bad])
            if staged is not None:
                done.bad[leaf] = [staged[0]]
        work.decoded[leaf] = rows.good
        return rows.good

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
            spark = self._spark.get()
            frames: dict[Node, DataFrame] = {
                leaf: packed(spark.createDataFrame(tables[leaf]), side.carried)
                for leaf in side.leaves
            }
            built = build(side.tree, frames, work.clock)
            made = unpacked(built, side.carried).toArrow()
        return made.select(columns.names).cast(columns)


def _one_instance(work: Work, done: Done, seconds: float) -> None:
    """What the stage did is what its one instance did: it takes rows in and owns all buckets."""
    dead = sum(report.bad for report in done.reports.values())
    did = {"in": done.rows_in, "out": done.left.get("results", 0), "late": done.late_rows,
           "dead": dead, "seconds": seconds}  # fmt: skip
    if work.step is None:
        one = instance(taking(), **did)
    else:
        buckets = (0, work.step.buckets)
        one = {**instance(of_buckets(buckets), **did), "buckets": list(buckets)}
    done.instances = {one["instance"]: one}


def _time(work: Work) -> tuple[str, int] | None:
    time = work.stage.trees[0].time
    return None if time is None else (time.column, time.shift)
