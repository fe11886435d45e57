"""The wide lane: Spark tasks decode and combine, a shuffle by key, kernels after it.

A batch first takes its rows in (one Spark job); then, when every partition's largest
time is known, it closes what its watermark allows: on the driver if that is little,
else in a second job over the parts of the state.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pyspark.accumulators import AccumulatorParam

from millstream.plan.columns import keys_of
from millstream.plan.graph import Read, Stateful
from millstream.runtime.failures import user_code
from millstream.runtime.frames import build, packed, unpacked
from millstream.runtime.tasks import (
    EXCHANGE,
    PART,
    Decode,
    Exchange,
    Flow,
    Leave,
    Take,
    without_origin,
)
from millstream.runtime.work import Done, Step, Work, execute
from millstream.sources.decode import Report
from millstream.state.manifest import Change
from millstream.state.runs import Run

if TYPE_CHECKING:
    from pyspark.accumulators import Accumulator
    from pyspark.sql import DataFrame, SparkSession

    from millstream.plan.graph import Node

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

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def run(self, work: Work) -> Done:
        """Take the rows in; then close what the watermark allows."""
        done = Done()
        if not work.empty:
            self._take(work, done)
        after = work.after(done.reports)
        if work.step is not None:
            self._close(work.step, work, done, after)
        return done

    def _take(self, work: Work, done: Done) -> None:
        heard = self._spark.sparkContext.accumulator({}, _Heard())
        frame, decode = self._rows(work, heard)
        with user_code(work.stage.name, work.stage.tree):
            parts = self._taken(work, frame, decode, heard).collect()
        for part in parts:
            done.take(json.loads(part[0]))
        self._hear(heard.value, work, done)

    def _taken(
        self,
        work: Work,
        frame: DataFrame,
        decode: Decode | None,
        heard: Accumulator[dict[Any, Any]],
    ) -> DataFrame:
        """The job that takes rows in: through the shuffle to the kernel, or straight to outputs."""
        step = work.step
        if step is None:
            time = work.stage.tree.time
            leaving = (time.column, time.shift) if time else None
            columns = without_origin(work.columns.names)
            return frame.mapInArrow(Leave(work.files, leaving, columns, decode), PART)
        moment = work.moment(work.before)
        exchange = Exchange(
            step, moment, work.files, tuple(work.sources), work.parallel, heard, decode
        )
        return (
            frame.mapInArrow(exchange, EXCHANGE)
            .repartitionById(work.parallel, "pid")
            .mapInArrow(Take(step, moment, work.files, work.parallel), PART)
        )

    def _rows(
        self, work: Work, heard: Accumulator[dict[Any, Any]]
    ) -> tuple[DataFrame, Decode | None]:
        """The stage's rows; raw ones with their decoder, where nothing stands between."""
        frames: dict[Node, DataFrame] = {}
        for index, leaf in enumerate(work.stage.leaves):
            if isinstance(leaf, Read):
                reader, ranges, decoder = work.readers[leaf]
                raw = reader.frame(self._spark, ranges, decoder.more)
                decode = Decode(decoder, index, work.files, leaf in work.reports, heard)
                if work.stage.bare:
                    return raw, decode
                frames[leaf] = packed(raw.mapInArrow(decode, _ddl(decoder.columns())))
            else:
                frames[leaf] = self._flow(leaf, work)
        if work.stage.bare:
            return frames[work.stage.tree], None
        with user_code(work.stage.name, work.stage.tree):
            return unpacked(build(work.stage.tree, frames, work.clock)), None

    def _flow(self, leaf: Stateful, work: Work) -> DataFrame:
        entries, schema = work.flows[leaf]
        listed = self._spark.createDataFrame([(entry,) for entry in entries], "file string")
        flow = Flow(work.files, schema, keys_of(leaf))
        rows = listed.repartition(max(1, len(entries))).mapInArrow(flow, _ddl(schema))
        return rows if work.stage.bare else packed(rows)

    def _hear(self, heard: dict[Any, Any], work: Work, done: Done) -> None:
        for key, said in sorted(heard.items(), key=str):
            if key[0] == "prepare":
                done.take(said)
                continue
            leaf = work.stage.leaves[key[0]]
            assert isinstance(leaf, Read)
            report = Report(**said["report"])
            done.reports.setdefault(leaf, Report()).add(report)
            if said["dead"]:
                done.bad.setdefault(leaf, []).append(said["dead"][0])

    def _close(self, step: Step, work: Work, done: Done, after: int) -> None:
        manifest = step.manifest
        if done.segments:
            taken = Run(work.files.name("taken"), tuple(done.segments), 0)
            manifest = manifest.apply(Change(add=(taken,), replace=(), floor=None))
        moment = work.moment(after)
        due = step.kernel.due(after)
        size = sum(segment.bytes for run in manifest.runs for segment in run.segments
                   if segment.least < due)  # fmt: skip
        if size <= CLOSE_ON_DRIVER:
            part = execute(step, [], (0, step.buckets), moment, work.files, manifest)
            done.held = part["held"]
            done.take(part)
            return
        take = Take(step, moment, work.files, work.parallel, manifest)
        rows = (
            self._spark.range(0, work.parallel, 1, work.parallel).mapInArrow(take, PART).collect()
        )
        done.held = min(json.loads(row[0])["held"] for row in rows)
        for row in rows:
            done.take(json.loads(row[0]))


def _ddl(schema: Any) -> str:
    from millstream.schema import Schema

    return Schema.from_arrow(schema).ddl()
