"""Where the SQL of each stage will run, as far as that is known without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from millstream.engine.kernels.kernels import decoder_of, flow_of, kernel_of
from millstream.errors import InvalidSpec
from millstream.plan.graph import Read, Stateful

if TYPE_CHECKING:
    import pyarrow as pa

    from millstream.plan.stages import Side, Stage, Stages

Where = Literal["none", "arrow", "spark", "both", "either"]


def foreseen(stages: Stages) -> dict[Stage, Where]:
    """Whether each stage's SQL runs as Arrow columns, in Spark, or both, input by input.

    "either" means that it depends on types that only Spark can derive.
    """
    flows: dict[Stateful, pa.Schema | None] = {}
    found: dict[Stage, Where] = {}
    for stage in stages.stages:
        sides = [_side(side, stages, flows) for side in stage.sides]
        found[stage] = _together({where for where, _ in sides} - {"none"})
        if stage.step is not None:
            flows[stage.step] = _flow(stage.step, [columns for _, columns in sides])
    return found


def in_java(stages: Stages) -> bool:
    """Whether Spark may run some of the SQL or functions, so that rows pass through the JVM."""
    return any(where not in ("none", "arrow") for where in foreseen(stages).values())


def _side(
    side: Side, stages: Stages, flows: dict[Stateful, pa.Schema | None]
) -> tuple[Where, pa.Schema | None]:
    leaf = side.leaves[0]
    columns = _decoded(leaf, stages) if isinstance(leaf, Read) else flows[leaf]
    if side.bare:
        return "none", columns
    if columns is None:
        return "either", None
    from millstream.engine.spark.arrow_steps import compiled  # slow to import, and often not needed

    steps = compiled(side, columns)
    return ("spark", None) if steps is None else ("arrow", steps.columns)


def _decoded(read: Read, stages: Stages) -> pa.Schema:
    name = stages.names[read]
    return decoder_of(stages, name).columns()


def _flow(step: Stateful, sides: list[pa.Schema | None]) -> pa.Schema | None:
    known = [columns for columns in sides if columns is not None]
    try:
        return flow_of(step, kernel_of(step, known)) if len(known) == len(sides) else None
    except InvalidSpec:
        return None


def _together(sides: set[Where]) -> Where:
    if len(sides) > 1:
        return "either" if "either" in sides else "both"
    return next(iter(sides), "none")
