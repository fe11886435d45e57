"""The wide lane: Spark tasks decode and combine, files by key, kernels over them.

A batch first takes its rows in (one Spark job); then, when every partition's largest
time is known, kernels take in what was exchanged and close what the watermark allows: on
the driver if that is little, else in a second job over the parts of the state.
"""

from __future__ import annotations

import json
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.accumulators import AccumulatorParam
from pyspark.sql import DataFrame

from millstream.engine.lanes import exchange_files
from millstream.engine.lanes.exchange_files import Exchanged
from millstream.engine.lanes.tasks import PART, Close, Decode, Exchange, Flow, Leave, without_origin
from millstream.engine.lanes.work import Done, Step, Work, execute
from millstream.engine.spark.failures import user_code
from millstream.engine.spark.frames import build, packed, unpacked
from millstream.engine.spark.session import parallelism
from millstream.operators.kernel import dues
from millstream.plan.graph import Read, Stateful
from millstream.sources.decode import Report

if TYPE_CHECKING:
    from pyspark.accumulators import Accumulator

    from millstream.engine.spark.session import Spark
    from millstream.plan.graph import Node
    from millstream.sql.arrow.values import ArrowSteps

CLOSE_ON_DRIVER = 8 << 20


class _Heard(AccumulatorParam[dict[Any, Any]]):
    """What tasks reported, by partition: hearing the same twice is hearing it once."""

    def zero(self, value: dict[Any, Any]) -> dict[Any, Any]:
        return {}

    def addInPlace(self, value1: dict[Any, Any], value2: dict[Any, Any]) -> dict[Any, Any]:  # noqa: N802
        value1.update(value2)
        return value1


class WideLane:
    """Runs a stage as Spark jobs."""

    name = "wide"

    def __init__(self, spark: Spark) -> None:
        self._spark, self._parallel = spark.get(), parallelism(spark.get())

    def run(self, work: Work) -> Done:
        """Take the rows in; then close what the watermark allows."""
        done = Done()
        exchanged = () if work.empty else self._take(work, done)
        after = work.after(done.reports)
        if work.step is not None:
            with user_code(work.stage.name, *work.stage.trees):
                self._close(work.step, work, done, after, exchanged)
            exchange_files.remove(work.files.staged, exchanged)
        return done

    def _take(self, work: Work, done: Done) -> tuple[Exchanged, ...]:
        heard = self._spark.sparkContext.accumulator({}, _Heard())
        taken = [self._taken(work, place, heard) for place, side in enumerate(work.stage.sides)
                 if not work.silent(side)]  # fmt: skip
        with user_code(work.stage.name, *work.stage.trees):
            parts = [json.loads(row[0]) for row in reduce(DataFrame.union, taken).collect()]
        for part in parts:
            done.take(part)
        self._hear(heard.value, work, done)
        return tuple(Exchanged.of(part["exchange"]) for part in parts if "exchange" in part)

    def _taken(self, work: Work, place: int, heard: Accumulator[dict[Any, Any]]) -> DataFrame:
        """The job that takes one side's rows in: cut for the kernel, or straight to outputs."""
        frame, decode = self._rows(work, place, heard)
        step = work.step
        if step is None:
            time = work.stage.trees[0].time
            leaving = (time.column, time.shift) if time else None
            columns = without_origin(work.columns[0].names)
            return frame.mapInArrow(Leave(work.files, leaving, columns, decode), PART)
        batch_time, sources = work.batch_time(work.before), tuple(work.sources)
        exchange = Exchange(step, place, batch_time, work.files, sources, self._parallel, decode)
        return frame.mapInArrow(exchange, PART)

    def _rows(
        self, work: Work, place: int, heard: Accumulator[dict[Any, Any]]
    ) -> tuple[DataFrame, Decode | None]:
        """The rows of a side; raw ones with their decoder, where no Spark stands between."""
        side, steps = work.stage.sides[place], work.arrow[place]
        as_they_come = side.bare or steps is not None
        frames: dict[Node, DataFrame] = {}
        for leaf in side.leaves:
            if isinstance(leaf, Read):
                reader, ranges, decoder = work.readers[leaf]
                scan = reader.scan(self._spark, ranges, decoder.more)
                index = work.stage.leaves.index(leaf)
                reports = leaf in work.reports
                decode = Decode(decoder, index, work.files, reports, heard, scan.fetch, steps)
                if as_they_come:
                    return scan.frame, decode
                frames[leaf] = packed(
                    scan.frame.mapInArrow(decode, _ddl(decoder.columns())), side.carried
                )
            else:
                flowing = self._flow(leaf, work, steps)
                if as_they_come:
                    return flowing, None
                frames[leaf] = packed(flowing, side.carried)
        with user_code(work.stage.name, side.tree):
            built = build(side.tree, frames, work.clock)
            return unpacked(built, side.carried), None

    def _flow(self, leaf: Stateful, work: Work, steps: ArrowSteps | None) -> DataFrame:
        entries, schema = work.flows[leaf]
        listed = self._spark.createDataFrame([(entry,) for entry in entries], "file string")
        flow = Flow(work.files, schema, leaf.keys, steps)
        given = _ddl(schema if steps is None else steps.columns)
        return listed.repartition(max(1, len(entries))).mapInArrow(flow, given)

    def _hear(self, heard: dict[Any, Any], work: Work, done: Done) -> None:
        for key, said in sorted(heard.items()):
            leaf = work.stage.leaves[key[0]]
            assert isinstance(leaf, Read)
            done.reports.setdefault(leaf, Report()).add(said["report"])
            if said["dead"]:
                done.bad.setdefault(leaf, []).append(said["dead"][0])

    def _close(
        self,
        step: Step,
        work: Work,
        done: Done,
        after: tuple[int, ...],
        exchanged: tuple[Exchanged, ...],
    ) -> None:
        batch_time, sources = work.batch_time(after), tuple(work.sources)
        if _to_read(step, exchanged, after) <= CLOSE_ON_DRIVER:
            sides = exchange_files.sides(work.files.staged, exchanged, count=step.sides)
            done.take(execute(step, sides, (0, step.buckets), batch_time, work.files, sources))
            return
        close = Close(step, batch_time, work.files, sources, self._parallel, exchanged)
        parts = self._spark.range(0, self._parallel, 1, self._parallel).mapInArrow(close, PART)
        for row in parts.collect():
            done.take(json.loads(row[0]))


def _to_read(step: Step, exchanged: tuple[Exchanged, ...], after: tuple[int, ...]) -> int:
    """About how many bytes the kernel will look at: what comes in, and what closes."""
    closing = sum(segment.bytes for table, due in dues(step.kernel, after).items()
                  for run in step.manifests[table].runs for segment in run.segments
                  if segment.least < due)  # fmt: skip
    return closing + sum(one.bytes for one in exchanged)


def _ddl(schema: Any) -> str:
    from millstream.schema import Schema

    return Schema.from_arrow(schema).ddl()
