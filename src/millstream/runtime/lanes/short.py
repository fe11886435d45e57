"""The short lane: rows come to the driver as Arrow, and kernels run there. No shuffle."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from millstream.plan.graph import Read
from millstream.runtime.failures import user_code
from millstream.runtime.frames import build, packed, unpacked
from millstream.runtime.tasks import Leave, without_origin
from millstream.runtime.work import Done, Work, execute, prepare, read_flow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from millstream.plan.graph import Node


class ShortLane:
    """Runs a stage on the driver, with Spark for reading and for SQL."""

    name = "short"

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def run(self, work: Work) -> Done:
        """Read, decode, SQL, kernel, files: one after the other, on the driver."""
        done = Done()
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
        rows = self._rows(work, tables)
        step = work.step
        if step is None:
            leave = Leave(work.files, _time(work), without_origin(work.columns.names))
            done.take({"results": work.files.stage("results", [leave.leaving(rows)]),
                       "rows_in": rows.num_rows})  # fmt: skip
            return done
        moment = work.moment(after)
        prepared, part = prepare(step, rows, moment, work.files, work.sources)
        done.take(part)
        sides = [[prepared.exchange]]
        if prepared.everywhere is not None:
            sides.append([prepared.everywhere])
        with user_code(work.stage.name, work.stage.tree):
            done.take(execute(step, sides, (0, step.buckets), moment, work.files, work.sources))
        return done

    def _decoded(self, leaf: Read, work: Work, done: Done) -> pa.Table:
        """The rows of a source, read and decoded once per batch, whoever takes them in."""
        if leaf in work.decoded:
            return work.decoded[leaf]
        reader, ranges, decoder = work.readers[leaf]
        raw = reader.table(self._spark, ranges, decoder.more)
        rows = decoder(raw)
        if leaf in work.reports:
            done.reports[leaf] = rows.report
            staged = work.files.stage("bad", [rows.bad])
            if staged is not None:
                done.bad[leaf] = [staged[0]]
        work.decoded[leaf] = rows.good
        return rows.good

    def _rows(self, work: Work, tables: dict[Node, pa.Table]) -> pa.Table:
        if work.stage.bare:
            return tables[work.stage.tree]
        if not any(table.num_rows for table in tables.values()):
            return work.columns.empty_table()
        with user_code(work.stage.name, work.stage.tree):
            frames = {
                leaf: packed(self._spark.createDataFrame(table), signed=work.stage.signed)
                for leaf, table in tables.items()
            }
            built = build(work.stage.tree, frames, work.clock)
            made = unpacked(built, signed=work.stage.signed).toArrow()
        return made.select(work.columns.names).cast(work.columns)


def _time(work: Work) -> tuple[str, int] | None:
    time = work.stage.tree.time
    return None if time is None else (time.column, time.shift)
