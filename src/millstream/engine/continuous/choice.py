"""Chooses how a continuous pipeline runs: directly or by Spark (`continuous.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.engine.inspection.without_spark import without_spark
from millstream.plan.stages import cut

if TYPE_CHECKING:
    from millstream.api.pipeline import Pipeline
    from millstream.engine.checkpoint.checkpoint import Checkpoint
    from millstream.engine.continuous.continuous import Continuous


def runner(pipeline: Pipeline, checkpoint: Checkpoint) -> type[Continuous]:
    """The class that runs a job.

    A job that Spark has run stays with Spark, whose checkpoint holds the positions of outputs.
    """
    from millstream.engine.continuous.positions import FOLDER

    if not runs_directly(pipeline) or (checkpoint.folder / FOLDER / "outputs").exists():
        from millstream.engine.continuous.spark import RealTime

        return RealTime
    from millstream.engine.continuous.direct import Direct

    return Direct


def runs_directly(pipeline: Pipeline) -> bool:
    """Whether the driver passes the rows: with `engine="driver"`, if Arrow runs every step."""
    return pipeline.engine == "driver" and without_spark(cut(pipeline.outputs))
