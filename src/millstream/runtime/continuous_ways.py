"""Which of the two ways a continuous pipeline goes (`continuous.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.plan.stages import cut
from millstream.runtime.without_spark import without_spark

if TYPE_CHECKING:
    from millstream.pipeline import Pipeline
    from millstream.runtime.checkpoint import Checkpoint
    from millstream.runtime.continuous import Continuous


def way(pipeline: Pipeline, checkpoint: Checkpoint) -> type[Continuous]:
    """How the rows of a job pass.

    One that Spark has begun goes on with Spark, which alone knows how far each output was.
    """
    from millstream.runtime.continuous_places import FOLDER

    if not direct(pipeline) or (checkpoint.folder / FOLDER / "outputs").exists():
        from millstream.runtime.continuous_spark import RealTime

        return RealTime
    from millstream.runtime.continuous_direct import Direct

    return Direct


def direct(pipeline: Pipeline) -> bool:
    """Whether Arrow runs every step of a pipeline, with the meaning that SQL has here."""
    return without_spark(cut(pipeline.outputs))
