"""Stateless steps as Spark DataFrame work, with every row's origin carried along.

Inside a DataFrame the origin is one struct column, `_origin`; users' expressions see
their own columns only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import InvalidSpec
from millstream.plan import sql
from millstream.plan.columns import EVERY
from millstream.plan.graph import (
    Drop,
    Explode,
    Node,
    Read,
    Select,
    Stateful,
    Stateless,
    Transform,
    Union,
    Where,
    WithColumns,
)
from millstream.plan.stages import leaves as leaves_of
from millstream.runtime.failures import analysed_step
from millstream.runtime.row_wise import transformed
from millstream.sources.decode import ORIGIN
from millstream.sources.spec import HIDDEN

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import Column, DataFrame

_FIELDS = ("source", "partition", "offset", "sub")
_IN_ORIGIN = {"_partition": "_origin.partition", "_offset": "_origin.offset"}
_ELEMENTS = 2**20


def packed(frame: DataFrame) -> DataFrame:
    """Flat origin columns become the one struct."""
    from pyspark.sql import functions as F

    origin = F.struct(
        *(F.col(flat).alias(name) for flat, name in zip(ORIGIN, _FIELDS, strict=True))
    )
    keep = [c for c in frame.columns if c not in ORIGIN]
    return frame.select(*(_col(c) for c in keep), origin.alias("_origin"))


def unpacked(frame: DataFrame) -> DataFrame:
    """The struct becomes flat origin columns, as kernels take them."""
    from pyspark.sql import functions as F

    keep = [c for c in frame.columns if c != "_origin"]
    flat = [
        F.col(f"_origin.{name}").alias(column) for column, name in zip(ORIGIN, _FIELDS, strict=True)
    ]
    return frame.select(*(_col(c) for c in keep), *flat)


def build(tree: Node, leaves: Mapping[Node, DataFrame], clock: int) -> DataFrame:
    """The rows of a tree of stateless steps over these leaves (packed frames).

    Raises:
        InvalidSpec: Spark cannot analyse a step; it names the step and its line.
    """
    if isinstance(tree, Read | Stateful):
        return _without_hidden(leaves[tree])
    if isinstance(tree, Union):
        return _union(tree, leaves, clock)
    assert isinstance(tree, Stateless)
    below = tree.input
    frame = _with_hidden(tree, leaves[below]) if below in leaves else build(below, leaves, clock)
    with analysed_step(tree):
        return _without_hidden(_STEPS[type(tree)](tree, frame, clock))


def _col(name: str) -> Column:
    from pyspark.sql import functions as F

    return F.col(sql.quoted(name))


def _with_hidden(step: Stateless, frame: DataFrame) -> DataFrame:
    """The frame of a source with the hidden columns this step names, and no others."""
    from pyspark.sql import functions as F

    wanted = {name for text in _texts(step) for name in sql.named(text)}
    frame = frame.drop(*(name for name in HIDDEN if name not in wanted))
    return frame.withColumns({n: F.col(_IN_ORIGIN[n]) for n in _IN_ORIGIN if n in wanted})


def _without_hidden(frame: DataFrame) -> DataFrame:
    there = [name for name in HIDDEN if name in frame.columns]
    return frame.drop(*there) if there else frame


def _texts(step: Stateless) -> list[str]:
    if isinstance(step, Where):
        return [step.sql]
    if isinstance(step, Select | WithColumns):
        return [text for _, text in step.items if text != EVERY]
    return []


def _expression(text: str, frame: DataFrame, clock: int) -> Column:
    from pyspark.sql import functions as F

    return F.expr(sql.at_clock(text, clock, frame.columns))


def _where(step: Where, frame: DataFrame, clock: int) -> DataFrame:
    return frame.filter(_expression(step.sql, frame, clock))


def _select(step: Select, frame: DataFrame, clock: int) -> DataFrame:
    items: list[Column] = []
    for name, text in step.items:
        if text == EVERY:
            items += [_col(c) for c in _without_hidden(frame).columns if c != "_origin"]
        else:
            items.append(_expression(text, frame, clock).alias(name))
    return frame.select(*items, "_origin")


def _with_columns(step: WithColumns, frame: DataFrame, clock: int) -> DataFrame:
    return frame.withColumns({name: _expression(text, frame, clock) for name, text in step.items})


def _drop(step: Drop, frame: DataFrame, clock: int) -> DataFrame:
    missing = [name for name in step.names if name not in frame.columns]
    if missing:
        raise sql.unknown_column(missing[0], frame.columns, step="drop")
    return frame.drop(*step.names)


def _explode(step: Explode, frame: DataFrame, clock: int) -> DataFrame:
    """One row per element, each with a place of its own within its row's origin."""
    from pyspark.sql import functions as F

    parts = [_col(c) for c in frame.columns if c not in (step.column, "_origin")]
    elements = F.posexplode(_col(step.column)).alias("_at", step.column)
    sub = F.col("_origin.sub") * F.lit(_ELEMENTS) + F.when(
        F.col("_at") < _ELEMENTS, F.col("_at").cast("bigint")
    ).otherwise(
        F.raise_error(F.lit(f"explode({step.column}) needs fewer than 2^20 elements in a row"))
    )
    opened = frame.select(*parts, "_origin", elements)
    moved = opened.withColumn("_origin", F.col("_origin").withField("sub", sub))
    return moved.select(*(_col(c) for c in frame.columns))


def _transform(step: Transform, frame: DataFrame, clock: int) -> DataFrame:
    return transformed(step, frame)


def _union(tree: Union, leaves: Mapping[Node, DataFrame], clock: int) -> DataFrame:
    """The sides under each other; rows of one origin on both sides get places of their own."""
    from pyspark.sql import functions as F

    frames = [build(side, leaves, clock) for side in tree.sides]
    if _overlapping(tree):
        places = [F.col("_origin.sub") * len(frames) + F.lit(n) for n in range(len(frames))]
        frames = [
            frame.withColumn("_origin", F.col("_origin").withField("sub", place))
            for frame, place in zip(frames, places, strict=True)
        ]
    with analysed_step(tree):
        whole = frames[0]
        for frame in frames[1:]:
            _need_the_same_columns(whole, frame)
            whole = whole.unionByName(frame)
        return whole


def _overlapping(tree: Union) -> bool:
    seen: set[Node] = set()
    for side in tree.sides:
        below = set(leaves_of(side))
        if below & seen:
            return True
        seen |= below
    return False


def _need_the_same_columns(left: DataFrame, right: DataFrame) -> None:
    other = set(left.columns) ^ set(right.columns)
    if other:
        raise InvalidSpec("union needs two streams with the same columns",
                          got=f"{', '.join(sorted(other))} on one side only",
                          do="select the same columns on both")  # fmt: skip


_STEPS: dict[type[Stateless], Callable[..., DataFrame]] = {
    Where: _where,
    Select: _select,
    WithColumns: _with_columns,
    Drop: _drop,
    Explode: _explode,
    Transform: _transform,
}
