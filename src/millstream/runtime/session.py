"""The Spark session work runs in, with the settings the engine depends on."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession


def session(
    master: str | None = None, settings: Mapping[str, str] | None = None, *, sql: bool = True
) -> SparkSession:
    """The session of this process, made if there is none.

    The master is the one given, else `MILLSTREAM_SPARK_MASTER`, else all cores of this
    machine. Settings of one's own win over ours. Without `sql` no row will pass through Java,
    which then only hands out tasks: it does not compile for speed what never pays for it.
    """
    from pyspark.sql import SparkSession

    from millstream.toolchain.jars import jars
    from millstream.toolchain.java import find_java, spark_java_home

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["JAVA_HOME"] = str(spark_java_home(find_java()))
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    where = master or os.environ.get("MILLSTREAM_SPARK_MASTER") or f"local[{cores()}]"
    builder = SparkSession.builder.appName("millstream").master(where)
    chosen = {
        **_defaults(sql=sql),
        "spark.jars": ",".join(map(str, jars("spark"))),
        **(settings or {}),
    }
    for name, value in chosen.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def parallelism(spark: SparkSession) -> int:
    """How many parts a shuffle has: as many as tasks can run at once."""
    return max(1, int(spark.sparkContext.defaultParallelism))


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _defaults(*, sql: bool) -> dict[str, str]:
    compiling = "" if sql else " -XX:TieredStopAtLevel=1"
    return {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": str(cores()),
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
        "spark.sql.execution.pythonUDF.arrow.enabled": "true",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.worker.reuse": "true",
        "spark.driver.memory": os.environ.get("MILLSTREAM_DRIVER_MEMORY", "1g"),
        "spark.executorEnv.POLARS_MAX_THREADS": "1",
        "spark.executorEnv.OMP_NUM_THREADS": "1",
        "spark.log.level": "ERROR",
        "spark.driver.extraJavaOptions": "-XX:+UseParallelGC -Djava.net.preferIPv4Stack=true"
        + compiling,
        "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|sasl|ssl|jaas|credential",
        "spark.sql.redaction.options.regex": "(?i)url|secret|password|sasl|ssl|jaas|credential",
    }
