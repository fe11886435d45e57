"""Stateless steps as Spark DataFrame work, with every row's origin carried along.

Inside a DataFrame the origin is one struct column, `_origin`; users' expressions see
their own columns only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import InvalidSpec, UserCodeFailed
from millstream.plan import sql
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
from millstream.sources.decode import ORIGIN
from millstream.sources.spec import HIDDEN

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import Column, DataFrame

_FIELDS = ("source", "partition", "offset", "sub")
_ELEMENTS = 2**20


def packed(frame: DataFrame) -> DataFrame:
    """Flat origin columns become the one struct."""
    from pyspark.sql import functions as F

    origin = F.struct(
        *(F.col(flat).alias(name) for flat, name in zip(ORIGIN, _FIELDS, strict=True))
    )
    keep = [c for c in frame.columns if c not in ORIGIN]
    return frame.select(*(F.col(f"`{c}`") for c in keep), origin.alias("_origin"))


def unpacked(frame: DataFrame) -> DataFrame:
    """The struct becomes flat origin columns, as kernels take them."""
    from pyspark.sql import functions as F

    keep = [c for c in frame.columns if c != "_origin"]
    flat = [
        F.col(f"_origin.{name}").alias(column) for column, name in zip(ORIGIN, _FIELDS, strict=True)
    ]
    return frame.select(*(F.col(f"`{c}`") for c in keep), *flat)


def build(tree: Node, leaves: Mapping[Node, DataFrame], clock: int) -> DataFrame:
    """The rows of a tree of stateless steps over these leaves (packed frames)."""
    if isinstance(tree, Read | Stateful):
        frame = leaves[tree]
        return frame.drop(*(name for name in HIDDEN if name in frame.columns))
    if isinstance(tree, Union):
        frames = [build(side, leaves, clock) for side in tree.sides]
        whole = frames[0]
        for frame in frames[1:]:
            whole = whole.unionByName(frame)
        return whole
    assert isinstance(tree, Stateless)
    below = tree.input
    frame = leaves[below] if isinstance(below, Read) else build(below, leaves, clock)
    made = _STEPS[type(tree)](tree, frame, clock)
    return made.drop(*(name for name in HIDDEN if name in made.columns))


def _expression(text: str, clock: int) -> Column:
    from pyspark.sql import functions as F

    return F.expr(sql.at_clock(text, clock))


def _where(step: Where, frame: DataFrame, clock: int) -> DataFrame:
    return frame.filter(_expression(step.sql, clock))


def _select(step: Select, frame: DataFrame, clock: int) -> DataFrame:
    items = [_expression(text, clock).alias(name) for name, text in step.items]
    return frame.select(*items, "_origin")


def _with_columns(step: WithColumns, frame: DataFrame, clock: int) -> DataFrame:
    return frame.withColumns({name: _expression(text, clock) for name, text in step.items})


def _drop(step: Drop, frame: DataFrame, clock: int) -> DataFrame:
    return frame.drop(*step.names)


def _explode(step: Explode, frame: DataFrame, clock: int) -> DataFrame:
    from pyspark.sql import functions as F

    parts = [F.col(f"`{c}`") for c in frame.columns if c not in (step.column, "_origin")]
    opened = frame.select(
        *parts, "_origin", F.posexplode(f"`{step.column}`").alias("_at", step.column)
    )
    sub = F.col("_origin.sub") * F.lit(_ELEMENTS) + F.when(
        F.col("_at") < _ELEMENTS, F.col("_at").cast("bigint")
    ).otherwise(
        F.raise_error(F.lit(f"explode({step.column}) needs fewer than 2^20 elements in a row"))
    )
    moved = opened.withColumn("_origin", F.col("_origin").withField("sub", sub))
    return moved.select(*(F.col(f"`{c}`") for c in frame.columns))


def _transform(step: Transform, frame: DataFrame, clock: int) -> DataFrame:
    from pyspark.sql import DataFrame as SparkFrame

    name = getattr(step.function, "__name__", "the function")
    try:
        made = step.function(frame)
    except Exception as error:
        raise UserCodeFailed(f"transform({name}) raised {type(error).__name__}: {error}") from error
    if not isinstance(made, SparkFrame):
        raise InvalidSpec(f"transform({name}) needs to return a DataFrame", got=repr(made))
    if "_origin" not in made.columns:
        raise InvalidSpec(
            f"transform({name}) needs to keep the column _origin",
            got=f"columns {', '.join(made.columns)}",
            do='use df.withColumn(…) or df.select("*", …)',
        )
    _refuse_what_moves_rows(made, name)
    return made


def _refuse_what_moves_rows(made: DataFrame, name: str) -> None:
    plan = made._jdf.queryExecution().analyzed().toString()
    for word in ("Aggregate", "Sort", "Repartition", "Deduplicate", "Window", "Limit",
                 "Join", "rand(", "randn(", "uuid(", "monotonically_increasing_id("):  # fmt: skip
        if any(line.lstrip(" :+-").startswith(word) for line in plan.splitlines()) or (
            word.endswith("(") and word in plan
        ):
            raise InvalidSpec(
                f"transform({name}) needs a row-wise, deterministic function",
                got=f"{word.rstrip('(')} in its plan",
                do="use the stream's own operators for what spans rows",
            )


_STEPS: dict[type[Stateless], Callable[..., DataFrame]] = {
    Where: _where,
    Select: _select,
    WithColumns: _with_columns,
    Drop: _drop,
    Explode: _explode,
    Transform: _transform,
}
