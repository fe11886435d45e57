"""From the nodes of a graph to the kernels that run them, once column types are known."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from millstream.plan.graph import (
    Aggregated,
    Deduplicated,
    InOrder,
    Processed,
    Ranked,
    Read,
    Stateful,
)
from millstream.plan.sql import named, unknown_column
from millstream.runtime.frames import SIGN, build, packed, unpacked
from millstream.runtime.window_kernels import window_kernel
from millstream.schema import Schema
from millstream.sources.decode import ORIGIN, Decoder
from millstream.sources.spec import HIDDEN
from millstream.sources.topic import Topic
from millstream.steps.distinct_kernel import DistinctKernel
from millstream.steps.ordered import Ordered
from millstream.steps.ordered_kernel import OrderedKernel
from millstream.steps.process_kernel import ProcessKernel
from millstream.steps.top_kernel import TopKernel

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from millstream.plan.graph import Node
    from millstream.plan.stages import Stage, Stages
    from millstream.runtime.isolation import SKIPS
    from millstream.steps.kernel import Kernel

ORIGIN_FIELDS = (
    pa.field("_source", pa.int32()),
    pa.field("_partition", pa.int32()),
    pa.field("_offset", pa.int64()),
    pa.field("_sub", pa.int64()),
)


class Typed:
    """A pipeline whose column types are known: schemas per stage, kernels per step.

    SQL is analysed by Spark against empty rows, so a wrong type is found before the
    first batch.
    """

    def __init__(self, stages: Stages, spark: SparkSession) -> None:
        self.stages = stages
        self.kernels: dict[Stateful, Kernel] = {}
        self.columns: dict[Stage, pa.Schema] = {}
        for stage in stages.stages:
            self.columns[stage] = self._analysed(stage, spark)
            if stage.step is not None:
                self.kernels[stage.step] = kernel_of(stage.step, self.columns[stage])
            _check_keys(stage, self.leaving(stage))
            self._check_formats(stage)

    def leaving(self, stage: Stage) -> list[str]:
        """The user's columns of what leaves a stage for its outputs."""
        step = stage.step
        made = self.columns[stage] if step is None else self.kernels[step].output()
        return [name for name in made.names if not name.startswith("_")]

    def _check_formats(self, stage: Stage) -> None:
        """Refuse rows that a topic's format cannot carry, before the first batch."""
        step = stage.step
        made = self.columns[stage] if step is None else self.kernels[step].output()
        user = pa.schema([field for field in made if not field.name.startswith("_")])
        for output in stage.outputs:
            if isinstance(output.sink, Topic) and output.sink.format in ("csv", "text", "bytes"):
                output.sink.wire().check(Schema.from_arrow(user))

    def flow(self, step: Stateful) -> pa.Schema:
        """What a step's results look like to a later stage."""
        own = [field for field in self.kernels[step].output() if field.name not in ORIGIN]
        sign = [pa.field(SIGN, pa.int8())] if step.corrects else []
        return pa.schema([*own, *ORIGIN_FIELDS, *sign])

    def decoder(
        self, name: str, *, limit: int | None, ahead: int | None, skips: SKIPS | None = None
    ) -> Decoder:
        """How a source's records become rows; `skips` are those a step cannot take."""
        read = self.stages.reads[name]
        return Decoder(
            source=list(self.stages.reads).index(name),
            topic=read.source.name,
            schema=read.source.row_schema(),
            time=read.time.column if read.time else None,
            ahead=ahead,
            limit=limit,
            hidden=self._hidden(read),
            opener=read.source.opener(),
            correction=read.correction,
            skips=skips or {},
        )

    def _hidden(self, read: Read) -> tuple[str, ...]:
        """The hidden columns that steps directly after a read name."""
        wanted: set[str] = set()
        for stage in self.stages.stages:
            for node in _nodes(stage.tree):
                if read in node.inputs:
                    texts = [getattr(node, "sql", "")] if hasattr(node, "sql") else []
                    texts += [text for _, text in getattr(node, "items", ())]
                    for text in texts:
                        wanted |= named(text) & set(HIDDEN)
        return tuple(name for name in HIDDEN if name in wanted)

    def _analysed(self, stage: Stage, spark: SparkSession) -> pa.Schema:
        if stage.bare:
            return self._leaf(stage.leaves[0])
        frames: dict[Node, DataFrame] = {
            leaf: packed(_empty(spark, self._leaf(leaf)), signed=stage.signed)
            for leaf in stage.leaves
        }
        made = unpacked(build(stage.tree, frames, 0), signed=stage.signed)
        from pyspark.sql.pandas.types import to_arrow_schema

        schema: pa.Schema = to_arrow_schema(made.schema, timezone="UTC")
        return pa.schema([pa.field(f.name, f.type) for f in schema])

    def _leaf(self, leaf: Node) -> pa.Schema:
        if isinstance(leaf, Read):
            return self.decoder(self.stages.names[leaf], limit=None, ahead=None).columns()
        assert isinstance(leaf, Stateful)
        return self.flow(leaf)


def kernel_of(step: Stateful, columns: pa.Schema) -> Kernel:
    """The kernel of a step over rows of these columns."""
    if isinstance(step, Aggregated):
        timed = [pa.field("_time", pa.int64())] if step.input.time else []
        schema = pa.schema([*(f for f in columns if f.name != "_time"), *timed])
        return window_kernel(
            step.window, step.by, dict(step.aggregates), schema, policy=step.policy,
            retractable=step.input.corrects,
        )  # fmt: skip
    passing = [field for field in columns if field.name not in HIDDEN or field.name in ORIGIN]
    if isinstance(step, InOrder):
        return OrderedKernel(Ordered(), pa.schema(passing))
    if isinstance(step, Ranked):
        return TopKernel(step.spec, pa.schema(passing))
    if isinstance(step, Processed):
        time = None if step.time is None else step.time.column
        return ProcessKernel(step.spec, pa.schema(passing), time)
    assert isinstance(step, Deduplicated)
    return DistinctKernel(step.spec, pa.schema(passing))


def _check_keys(stage: Stage, columns: list[str]) -> None:
    """Refuse a record key that is not there, which building cannot see after `transform`."""
    for output in stage.outputs:
        for key in output.keys:
            if key not in columns:
                raise unknown_column(key, columns, step=f"the record key of {output.name!r}")


def _empty(spark: SparkSession, schema: pa.Schema) -> DataFrame:
    return spark.createDataFrame(schema.empty_table())


def _nodes(tree: Node) -> list[Node]:
    found, stack = [], [tree]
    while stack:
        node = stack.pop()
        found.append(node)
        if not isinstance(node, Read | Stateful):
            stack.extend(node.inputs)
    return found
