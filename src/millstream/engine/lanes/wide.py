"""The wide lane: Spark tasks decode and combine rows, exchange files by key, and run kernels.

The first Spark job reads the rows of a batch. Its reports have the largest event time of every
partition. Then a second job runs the kernels over the exchanged rows, and closes what the watermark
allows. Sides with SQL that only Spark runs are DataFrame jobs, all others RDD jobs.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, TypeVar, cast

from pyspark.accumulators import AccumulatorParam
from pyspark.sql import DataFrame

from millstream.engine.lanes.cutting import reading
from millstream.engine.lanes.exchange_files import ExchangeFiles
from millstream.engine.lanes.execution import without_origin
from millstream.engine.lanes.results import SourceRead, StageRead, StageResult
from millstream.engine.lanes.tasks import (
    PART,
    Close,
    Decode,
    Flow,
    Leave,
    ReadPart,
    Send,
    SliceReads,
    read_report,
)
from millstream.engine.spark.failures import user_code
from millstream.engine.spark.frames import build, packed, unpacked
from millstream.engine.spark.job_thread import CallSite, JobThread
from millstream.engine.spark.per_run import PerRun
from millstream.engine.spark.rdd_jobs import RddJobs
from millstream.engine.spark.session import parallelism
from millstream.plan.graph import Read, Stateful
from millstream.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa
    from pyspark.accumulators import Accumulator

    from millstream.engine.lanes.exchange import Exchange
    from millstream.engine.lanes.work import Work
    from millstream.engine.spark.session import Spark
    from millstream.event_time.batch_time import BatchTime
    from millstream.plan.graph import Node
    from millstream.sources.spec import Reader
    from millstream.sql.arrow.values import ArrowSteps

T = TypeVar("T")


class _BySlice(AccumulatorParam[SliceReads]):
    """What tasks read, by slice: a slice that is reported twice is counted once."""

    def zero(self, value: SliceReads) -> SliceReads:
        return {}

    def addInPlace(self, value1: SliceReads, value2: SliceReads) -> SliceReads:  # noqa: N802
        value1.update(value2)
        return value1


class WideLane:
    """Runs a stage as Spark jobs: with `parallel=1` each job has one task."""

    def __init__(
        self, spark: Spark, readers: Mapping[str, Reader], *, parallel: int | None = None
    ) -> None:
        self._spark = spark.get()
        self._thread = JobThread(spark, readers)
        self._parallel = parallel or parallelism(self._spark)
        self._narrow = parallel == 1
        self._jobs = RddJobs(self._spark)
        self._per_run: dict[int, PerRun[object]] = {}

    def read(self, work: Work) -> StageRead:
        """Read the rows, up to the exchange: sides without Spark SQL in one RDD job."""
        read = StageRead()
        if work.empty:
            return read
        accumulator = self._spark.sparkContext.accumulator({}, _BySlice())
        direct: list[tuple[int, int, ReadPart]] = []
        frames: list[DataFrame] = []
        for place, side in enumerate(work.stage.sides):
            if work.silent(side):
                continue
            if side.bare or work.arrow[place] is not None:
                count, rows = self._rows(side.leaves[0], work, self._steps(work, place))
                direct.append((count, self._tasks(count), ReadPart(rows, self._last(work, place))))
            else:
                frame = self._frame(work, place, accumulator)
                frames.append(frame.mapInArrow(self._last(work, place), PART))
        slices: SliceReads = {}

        def jobs() -> None:
            for result, found in self._jobs.run(work.stage.name, direct) if direct else ():
                read.result.add(result)
                slices.update(found)
            for row in reduce(DataFrame.union, frames).collect() if frames else ():
                read.result.add(read_report(row[0]))

        self._run(work, jobs, ": read")
        slices |= accumulator.value
        for (index, *_), source in sorted(slices.items()):
            leaf = work.stage.leaves[index]
            assert isinstance(leaf, Read)
            read.sources.setdefault(leaf, SourceRead()).add(source)
        return read

    def close(self, work: Work, read: StageRead, batch_time: BatchTime) -> StageResult:
        """Run the kernels over the exchanged rows, in a job over the parts of the state."""
        step, exchanged = work.step, tuple(read.result.exchanged)
        if step is None:
            return read.result
        exchange = _exchange(work)
        close = Close(step, batch_time, work.files, exchange, work.source_names, self._parallel,
                      exchanged)  # fmt: skip
        job = (self._parallel, self._parallel, close)
        parts = self._run(work, lambda: self._jobs.run(work.stage.name, [job]))
        exchange.remove(exchanged)
        return StageResult.of([read.result, *parts])

    def end(self) -> None:
        """End the thread that runs the jobs."""
        self._thread.close()

    def _run(self, work: Work, jobs: Callable[[], T], what: str = "") -> T:
        """The result of a function that runs a stage's jobs."""
        stage = work.stage
        with user_code(stage.name, *stage.trees):
            return self._thread.run(
                jobs, f"{work.label} · {stage.name}{what}", CallSite.of([stage]), work.label
            )

    def _last(self, work: Work, place: int) -> Send | Leave:
        """What a task does with the rows of a side."""
        if work.step is None:
            columns = without_origin(work.columns[0].names)
            return Leave(work.files, work.output_time, columns)
        return Send(work.step, place, work.batch_time(), work.files, _exchange(work),
                    work.source_names, self._parallel)  # fmt: skip

    def _rows(
        self, leaf: Node, work: Work, steps: PerRun[ArrowSteps] | None,
        accumulator: Accumulator[SliceReads] | None = None,
    ) -> tuple[int, Decode | Flow]:  # fmt: skip
        """How tasks make the rows of a source or of an earlier stage, and of how many slices."""
        if isinstance(leaf, Stateful):
            entries, schema = work.flows[leaf]
            return len(entries), Flow(work.files, tuple(entries), schema, leaf.keys, steps)
        assert isinstance(leaf, Read)
        source = work.sources[leaf]
        with reading(leaf):
            scan = source.reader.scan(source.ranges, self._parallel, source.decoder.more)
        return scan.count, Decode(
            self._shared(source.decoder), source.context, work.stage.leaves.index(leaf),
            work.files, source.reports, scan.fetch, steps, accumulator,
        )  # fmt: skip

    def _frame(self, work: Work, place: int, accumulator: Accumulator[SliceReads]) -> DataFrame:
        """The rows of a side after its Spark SQL."""
        side = work.stage.sides[place]
        frames: dict[Node, DataFrame] = {}
        for leaf in side.leaves:
            count, rows = self._rows(leaf, work, None, accumulator)
            columns = (work.flows[leaf][1] if isinstance(leaf, Stateful)
                       else work.sources[leaf].decoder.columns())  # fmt: skip
            numbers = self._spark.range(0, count, 1, self._tasks(count))
            frames[leaf] = packed(numbers.mapInArrow(rows, _ddl(columns)), side.carried)
        with user_code(work.stage.name, side.tree):
            return unpacked(build(side.tree, frames, work.clock), side.carried)

    def _tasks(self, slices: int) -> int:
        return 1 if self._narrow else max(1, slices)

    def _steps(self, work: Work, place: int) -> PerRun[ArrowSteps] | None:
        steps = work.arrow[place]
        return None if steps is None else self._shared(steps)

    def _shared(self, value: T) -> PerRun[T]:
        """The value, pickled once for all batches of the run."""
        return cast("PerRun[T]", self._per_run.setdefault(id(value), PerRun(value)))


def _exchange(work: Work) -> Exchange:
    """How partial results of a stage reach its kernels."""
    return ExchangeFiles(work.files)


def _ddl(schema: pa.Schema) -> str:
    return Schema.from_arrow(schema).ddl()
