"""Whether a pipeline can run before Spark is there, or without it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.engine.inspection.sql_placement import in_java
from millstream.engine.spark.session import existing_session, has_default_sql

if TYPE_CHECKING:
    from millstream.plan.stages import Stages


def without_spark(stages: Stages) -> bool:
    """Whether Arrow runs every stateless step, with the meaning that SQL has here."""
    return not (in_java(stages) or _own_meaning())


def _own_meaning() -> bool:
    """Whether somebody may have given SQL another meaning, by settings of Spark's."""
    there = existing_session()
    if there is not None:
        return not has_default_sql(there)
    told = [os.environ.get("SPARK_CONF_DIR"), os.environ.get("SPARK_HOME")]
    folders = [Path(told[0])] if told[0] else [Path(told[1], "conf")] if told[1] else []
    files = [folder / "spark-defaults.conf" for folder in folders]
    return "PYSPARK_SUBMIT_ARGS" in os.environ or any(file.exists() for file in files)
