"""The wide lane: Spark tasks decode and combine rows, exchange files by key, and run kernels.

The first Spark job reads the rows of a batch. Its reports have the largest event time of every
partition. Then the kernels run over the exchanged rows and close what the watermark allows: on the
driver if that is little, else in a second job over the parts of the state.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, TypeVar, cast

from pyspark.accumulators import AccumulatorParam
from pyspark.sql import DataFrame

from millstream.engine.lanes import exchange_files
from millstream.engine.lanes.execution import execute, without_origin
from millstream.engine.lanes.results import SourceRead, StageRead, StageResult
from millstream.engine.lanes.tasks import (
    PART,
    Close,
    Decode,
    Exchange,
    Flow,
    Leave,
    SliceReads,
    read_report,
)
from millstream.engine.spark.failures import user_code
from millstream.engine.spark.frames import build, packed, unpacked
from millstream.engine.spark.per_run import PerRun
from millstream.engine.spark.session import parallelism
from millstream.operators.kernel import dues
from millstream.plan.graph import Read, Stateful
from millstream.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from pyspark.accumulators import Accumulator

    from millstream.engine.lanes.exchange_files import Exchanged
    from millstream.engine.lanes.work import Step, Work
    from millstream.engine.spark.session import Spark
    from millstream.event_time.batch_time import BatchTime
    from millstream.plan.graph import Node
    from millstream.sql.arrow.values import ArrowSteps

CLOSE_ON_DRIVER = 8 << 20
T = TypeVar("T")


class _BySlice(AccumulatorParam[SliceReads]):
    """What tasks read, by slice: a slice that is reported twice is counted once."""

    def zero(self, value: SliceReads) -> SliceReads:
        return {}

    def addInPlace(self, value1: SliceReads, value2: SliceReads) -> SliceReads:  # noqa: N802
        value1.update(value2)
        return value1


class WideLane:
    """Runs a stage as Spark jobs."""

    name = "wide"

    def __init__(self, spark: Spark) -> None:
        self._spark, self._parallel = spark.get(), parallelism(spark.get())
        self._per_run: dict[int, PerRun[object]] = {}

    def read(self, work: Work) -> StageRead:
        """Read the rows in one Spark job, which writes exchange files."""
        read = StageRead()
        if work.empty:
            return read
        slices = self._spark.sparkContext.accumulator({}, _BySlice())
        jobs = [self._job(work, place, slices) for place, side in enumerate(work.stage.sides)
                if not work.silent(side)]  # fmt: skip
        with user_code(work.stage.name, *work.stage.trees):
            parts = [read_report(row[0]) for row in reduce(DataFrame.union, jobs).collect()]
        read.result = StageResult.of(parts)
        for (index, *_), source in sorted(slices.value.items()):
            leaf = work.stage.leaves[index]
            assert isinstance(leaf, Read)
            read.sources.setdefault(leaf, SourceRead()).add(source)
        return read

    def close(self, work: Work, read: StageRead, batch_time: BatchTime) -> StageResult:
        """Run the kernels over the exchange files: on the driver, or in a second job."""
        step, exchanged = work.step, tuple(read.result.exchanged)
        if step is None:
            return read.result
        with user_code(work.stage.name, *work.stage.trees):
            result = StageResult.of([read.result, *self._closed(step, work, exchanged, batch_time)])
        exchange_files.remove(work.files.staged, exchanged)
        return result

    def _job(self, work: Work, place: int, slices: Accumulator[SliceReads]) -> DataFrame:
        """The job that reads one side and writes exchange files, or staged rows without a step."""
        frame, decode = self._rows(work, place, slices)
        if work.step is None:
            columns = without_origin(work.columns[0].names)
            return frame.mapInArrow(Leave(work.files, work.output_time, columns, decode), PART)
        exchange = Exchange(work.step, place, work.batch_time(), work.files, work.source_names,
                            self._parallel, decode)  # fmt: skip
        return frame.mapInArrow(exchange, PART)

    def _rows(
        self, work: Work, place: int, slices: Accumulator[SliceReads]
    ) -> tuple[DataFrame, Decode | None]:
        """The rows of a side; raw records with their decoder if they need no Spark SQL."""
        side = work.stage.sides[place]
        steps = self._steps(work, place)
        direct = side.bare or steps is not None
        frames: dict[Node, DataFrame] = {}
        for leaf in side.leaves:
            if isinstance(leaf, Stateful):
                flow = self._flow(leaf, work, steps)
                if direct:
                    return flow, None
                frames[leaf] = packed(flow, side.carried)
                continue
            source = work.sources[leaf]
            scan = source.reader.scan(self._spark, source.ranges, source.decoder.more)
            decode = Decode(
                self._shared(source.decoder), source.context, work.stage.leaves.index(leaf),
                work.files, source.reports, slices, scan.fetch, steps,
            )  # fmt: skip
            if direct:
                return scan.frame, decode
            decoded = scan.frame.mapInArrow(decode, _ddl(source.decoder.columns()))
            frames[leaf] = packed(decoded, side.carried)
        with user_code(work.stage.name, side.tree):
            built = build(side.tree, frames, work.clock)
            return unpacked(built, side.carried), None

    def _flow(self, leaf: Stateful, work: Work, steps: PerRun[ArrowSteps] | None) -> DataFrame:
        entries, schema = work.flows[leaf]
        listed = self._spark.createDataFrame([(entry,) for entry in entries], "file string")
        flow = Flow(work.files, schema, leaf.keys, steps)
        columns = _ddl(schema if steps is None else steps.value.columns)
        return listed.repartition(max(1, len(entries))).mapInArrow(flow, columns)

    def _steps(self, work: Work, place: int) -> PerRun[ArrowSteps] | None:
        steps = work.arrow[place]
        return None if steps is None else self._shared(steps)

    def _shared(self, value: T) -> PerRun[T]:
        """The value for tasks, pickled once for all batches of the run."""
        return cast("PerRun[T]", self._per_run.setdefault(id(value), PerRun(value)))

    def _closed(
        self, step: Step, work: Work, exchanged: Sequence[Exchanged], batch_time: BatchTime
    ) -> list[StageResult]:
        files, names = work.files, work.source_names
        if _to_read(step, exchanged, batch_time) <= CLOSE_ON_DRIVER:
            sides = exchange_files.sides(files.staged, exchanged, count=step.sides)
            return [execute(step, sides, (0, step.buckets), batch_time, files, names)]
        close = Close(step, batch_time, files, names, self._parallel, tuple(exchanged))
        parts = self._spark.range(0, self._parallel, 1, self._parallel).mapInArrow(close, PART)
        return [read_report(row[0]) for row in parts.collect()]


def _to_read(step: Step, exchanged: Sequence[Exchanged], batch_time: BatchTime) -> int:
    """About how many bytes the kernel will read: exchanged rows and state to close."""
    after = [batch_time.after_of(side) for side in range(step.sides)]
    closing = sum(segment.bytes for table, due in dues(step.kernel, after).items()
                  for run in step.manifests[table].runs for segment in run.segments
                  if segment.least < due)  # fmt: skip
    return closing + sum(one.bytes for one in exchanged)


def _ddl(schema: pa.Schema) -> str:
    return Schema.from_arrow(schema).ddl()
