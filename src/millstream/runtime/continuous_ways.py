"""Which of the two ways a continuous pipeline goes (`continuous.py`)."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.plan.stages import cut
from millstream.runtime.arrow_foreseen import in_java
from millstream.runtime.arrow_sql import usual

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
    return not (in_java(cut(pipeline.outputs)) or _own_meaning())


def _own_meaning() -> bool:
    """Whether somebody may have given SQL another meaning, by settings of Spark's."""
    if "pyspark.sql" in sys.modules:
        from pyspark.sql import SparkSession

        active = SparkSession.getActiveSession()
        if active is not None:
            return not usual(active)
    told = [os.environ.get("SPARK_CONF_DIR"), os.environ.get("SPARK_HOME")]
    folders = [Path(told[0])] if told[0] else [Path(told[1], "conf")] if told[1] else []
    files = [folder / "spark-defaults.conf" for folder in folders]
    return "PYSPARK_SUBMIT_ARGS" in os.environ or any(file.exists() for file in files)
