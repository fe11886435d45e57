"""Which of the two ways a continuous pipeline goes (`continuous.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.engine.inspection.without_spark import without_spark
from millstream.plan.stages import cut

if TYPE_CHECKING:
    from millstream.api.pipeline import Pipeline
    from millstream.engine.checkpoint.checkpoint import Checkpoint
    from millstream.engine.continuous.continuous import Continuous


def way(pipeline: Pipeline, checkpoint: Checkpoint) -> type[Continuous]:
    """How the rows of a job pass.

    One that Spark has begun goes on with Spark, which alone knows how far each output was.
    """
    from millstream.engine.continuous.positions import FOLDER

    if not direct(pipeline) or (checkpoint.folder / FOLDER / "outputs").exists():
        from millstream.engine.continuous.spark import RealTime

        return RealTime
    from millstream.engine.continuous.direct import Direct

    return Direct


def direct(pipeline: Pipeline) -> bool:
    """Whether Arrow runs every step of a pipeline, with the meaning that SQL has here."""
    return without_spark(cut(pipeline.outputs))
