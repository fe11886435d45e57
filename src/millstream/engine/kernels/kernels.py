"""Kernels for the nodes of a graph, once column types are known."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from millstream.engine.kernels.joins import join_kernel
from millstream.engine.kernels.tables import table_kernel
from millstream.engine.kernels.windows import window_kernel
from millstream.engine.spark.frames import build, packed, unpacked
from millstream.engine.spark.row_wise import check_repeatable
from millstream.engine.spark.session import check_session
from millstream.operators.distinct.kernel import DistinctKernel
from millstream.operators.ordered.kernel import OrderedKernel
from millstream.operators.ordered.spec import Ordered
from millstream.operators.process.kernel import ProcessKernel
from millstream.operators.tables.decode import ChangeDecoder
from millstream.operators.top.kernel import TopKernel
from millstream.plan.graph import (
    HIDDEN_TIME,
    Aggregated,
    Deduplicated,
    InOrder,
    Processed,
    Ranked,
    Read,
    Stateful,
)
from millstream.plan.join_graph import Join
from millstream.plan.outputs import refuse_unmarked
from millstream.plan.stages import SIGN, TIME
from millstream.plan.table_graph import CurrentRows, FoldedRows, TableAggregated, TableChanges
from millstream.schema import Schema
from millstream.sources.decode import Decoder
from millstream.sources.kafka.topic import Topic
from millstream.sources.spec import HIDDEN, log_name
from millstream.sql.columns import columns_read, unknown_column
from millstream.state.row_columns import ORIGIN, ORIGIN_FIELDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from millstream.operators.kernel import Kernel
    from millstream.plan.graph import Node
    from millstream.plan.stages import Side, Stage, Stages
    from millstream.sources.decode import RecordDecoder
    from millstream.sql.arrow.values import ArrowSteps


class Typed:
    """A pipeline whose column types are known: schemas per stage, kernels per step.

    Spark analyses the SQL with empty rows, so a wrong type is found before the first batch.
    `arrow` has the steps of each side that run without Spark. Without `spark`, all steps do
    (`without_spark`).
    """

    def __init__(self, stages: Stages, spark: SparkSession | None) -> None:
        if spark is not None:
            check_session(spark)
        self.stages = stages
        self.kernels: dict[Stateful, Kernel] = {}
        self.columns: dict[Stage, tuple[pa.Schema, ...]] = {}
        self.arrow: dict[Stage, tuple[ArrowSteps | None, ...]] = {}
        for stage in stages.stages:
            self.columns[stage] = tuple(self._analysed(side, spark) for side in stage.sides)
            self.arrow[stage] = tuple(
                self._in_arrow(*side) for side in zip(stage.sides, self.columns[stage], strict=True)
            )
            if stage.step is not None:
                self.kernels[stage.step] = kernel_of(stage.step, self.columns[stage])
            output = self.output(stage)
            user = pa.schema([field for field in output if not field.name.startswith("_")])
            _check_keys(stage, user.names)
            _check_formats(stage, user)

    @property
    def in_arrow(self) -> bool:
        """Whether no stage needs Spark SQL."""
        return all(side.bare or steps is not None
                   for stage in self.stages.stages
                   for side, steps in zip(stage.sides, self.arrow[stage], strict=True))  # fmt: skip

    def output(self, stage: Stage) -> pa.Schema:
        """The columns of a stage's output: those of its step, or of its rows if it has none."""
        step = stage.step
        return self.columns[stage][0] if step is None else self.kernels[step].output()

    def flow(self, step: Stateful) -> pa.Schema:
        """The columns in which a later stage reads a step's results."""
        return flow_of(step, self.kernels[step])

    def _in_arrow(self, side: Side, columns: pa.Schema) -> ArrowSteps | None:
        if side.bare:
            return None
        from millstream.engine.spark.arrow_steps import compiled

        return compiled(side, self._leaf(side.leaves[0]), columns)

    def _analysed(self, side: Side, spark: SparkSession | None) -> pa.Schema:
        if side.bare:
            return self._leaf(side.tree)
        if spark is None:
            from millstream.engine.spark.arrow_steps import compiled, with_spark_names

            steps = compiled(side, self._leaf(side.leaves[0]))
            assert steps is not None, "SQL that needs Spark, without Spark"
            return with_spark_names(steps.columns)
        frames: dict[Node, DataFrame] = {
            leaf: packed(spark.createDataFrame(self._leaf(leaf).empty_table()), side.carried)
            for leaf in side.leaves
        }
        built = build(side.tree, frames, 0)
        check_repeatable(side.tree, built, lambda node: build(node, frames, 0))
        made = unpacked(built, side.carried)
        from pyspark.sql.pandas.types import to_arrow_schema

        schema: pa.Schema = to_arrow_schema(made.schema, timezone="UTC")
        return pa.schema([pa.field(f.name, f.type) for f in schema])

    def _leaf(self, leaf: Node) -> pa.Schema:
        if isinstance(leaf, Read):
            return decoder_of(self.stages, self.stages.names[leaf]).columns()
        assert isinstance(leaf, Stateful)
        return self.flow(leaf)


def decoder_of(stages: Stages, name: str, ahead: int | None = None) -> RecordDecoder:
    """The decoder of a source; `ahead` limits how far in the future its rows may be."""
    read = stages.reads[name]
    decoder = Decoder(
        source=list(stages.reads).index(name),
        topic=read.source.name,
        schema=read.source.row_schema(),
        time=read.time.column if read.time and read.changes is None else None,
        ahead=ahead,
        by_clock=log_name(read.source) is None,
        hidden=_hidden(stages, read),
        opener=read.source.opener(),
        correction=read.correction,
    )
    return decoder if read.changes is None else ChangeDecoder.of(decoder, read.changes)


def _hidden(stages: Stages, read: Read) -> tuple[str, ...]:
    """The hidden columns that the steps directly after a read use."""
    wanted: set[str] = set()
    for stage in stages.stages:
        for node in [node for tree in stage.trees for node in _nodes(tree)]:
            if read in node.inputs:
                texts = [getattr(node, "sql", "")] if hasattr(node, "sql") else []
                texts += [text for _, text in getattr(node, "items", ())]
                for text in texts:
                    wanted |= columns_read(text) & set(HIDDEN)
    return tuple(name for name in HIDDEN if name in wanted)


def flow_of(step: Stateful, kernel: Kernel) -> pa.Schema:
    """The columns in which a later stage reads the results of a step."""
    own = [field for field in kernel.output() if field.name not in ORIGIN]
    sign = [pa.field(SIGN, pa.int8())] if step.corrects else []
    time = [pa.field(TIME, pa.int64())] if step.time == HIDDEN_TIME else []
    return pa.schema([*own, *ORIGIN_FIELDS, *sign, *time])


def kernel_of(step: Stateful, sides: Sequence[pa.Schema]) -> Kernel:
    """The kernel of a step; `sides` are the columns of each input."""
    timed = [_timed(columns, node) for columns, node in zip(sides, step.inputs, strict=True)]
    if isinstance(step, Join):
        return join_kernel(step, timed)
    if isinstance(step, Aggregated):
        return window_kernel(
            step.window, step.by, dict(step.aggregates), timed[0], policy=step.policy,
            retractable=step.input.corrects,
        )  # fmt: skip
    if isinstance(step, CurrentRows | TableAggregated | FoldedRows | TableChanges):
        return table_kernel(step, timed[0])
    passing = [field for field in sides[0]
               if field.name in ORIGIN or field.name not in (*HIDDEN, TIME)]  # fmt: skip
    if isinstance(step, InOrder):
        return OrderedKernel(Ordered(), pa.schema(passing))
    if isinstance(step, Ranked):
        return TopKernel(step.spec, pa.schema(passing))
    if isinstance(step, Processed):
        time = None if step.time is None else step.time.column
        return ProcessKernel(step.spec, pa.schema(passing), time)
    assert isinstance(step, Deduplicated)
    return DistinctKernel(step.spec, pa.schema(passing))


def _timed(columns: pa.Schema, node: Node) -> pa.Schema:
    """The columns of a node's rows for kernels: with `_time` if there is an event time."""
    time = [pa.field(TIME, pa.int64())] if node.time else []
    return pa.schema([*(field for field in columns if field.name != TIME), *time])


def _check_keys(stage: Stage, columns: list[str]) -> None:
    """Checks that need column names after `transform`: record keys exist, retractions are marked
    for sinks that only append."""
    for output in stage.outputs:
        if not output.table:
            refuse_unmarked(output.input, output.sink, columns)
        for key in output.keys:
            if key not in columns:
                raise unknown_column(key, columns, step=f"the record key of {output.name!r}")


def _check_formats(stage: Stage, columns: pa.Schema) -> None:
    """Refuse columns that a topic's format cannot carry, before the first batch."""
    for output in stage.outputs:
        if isinstance(output.sink, Topic) and output.sink.format in ("csv", "text", "bytes"):
            output.sink.wire().check(Schema.from_arrow(columns))


def _nodes(tree: Node) -> list[Node]:
    found, stack = [], [tree]
    while stack:
        node = stack.pop()
        found.append(node)
        if not isinstance(node, Read | Stateful):
            stack.extend(node.inputs)
    return found
