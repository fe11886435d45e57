"""Whether a pipeline can run before Spark has started, or without Spark."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.engine.inspection.sql_placement import in_java
from millstream.engine.spark.session import existing_session, has_default_sql

if TYPE_CHECKING:
    from millstream.plan.stages import Stages


def without_spark(stages: Stages) -> bool:
    """Whether Arrow can run every stateless step: no Spark setting changes the meaning of SQL."""
    return not (in_java(stages) or _custom_settings())


def _custom_settings() -> bool:
    """Whether settings of Spark may change the meaning of SQL."""
    session = existing_session()
    if session is not None:
        return not has_default_sql(session)
    home = os.environ.get("SPARK_HOME")
    folder = os.environ.get("SPARK_CONF_DIR") or (home and f"{home}/conf")
    defaults = folder and Path(folder, "spark-defaults.conf").exists()
    return bool(defaults) or "PYSPARK_SUBMIT_ARGS" in os.environ
