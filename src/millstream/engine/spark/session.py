"""The Spark session, with the settings the engine depends on."""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING

from millstream.errors import SetupFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import SparkSession

_SQL_SETTINGS = ("spark.sql.ansi.", "spark.sql.legacy.", "spark.sql.analyzer.", "spark.sql.parser.",
            "spark.sql.caseSensitive", "spark.sql.decimalOperations.",
            "spark.sql.collation.")  # fmt: skip
_POLL_SECONDS = 0.2
_WORKERS_MEMORY = {  # keep freed memory, which a worker soon needs again
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(512 << 20),
}


class Spark:
    """The Spark session of a run: given, or started in the background when it is needed.

    `waiting` is called repeatedly while `get` waits; it may raise to end the wait.
    """

    def __init__(
        self,
        start: Callable[[], SparkSession],
        waiting: Callable[[str], None] = lambda why: None,
    ) -> None:
        self._factory, self._waiting = start, waiting
        self._found: SparkSession | None = None
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None

    @classmethod
    def of(cls, spark: SparkSession) -> Spark:
        """A session that exists."""
        made = cls(lambda: spark)
        made._found = spark
        return made

    @property
    def ready(self) -> bool:
        """Whether `get` would return at once.

        Raises:
            Exception: the start has failed.
        """
        if self._error is not None:
            raise self._error
        return self._found is not None

    def start(self) -> None:
        """Start it in the background."""
        if self._thread is None and self._found is None:
            self._thread = threading.Thread(target=self._run_start, name="spark", daemon=True)
            self._thread.start()

    def get(self) -> SparkSession:
        """The session; waits until it has started."""
        if self._thread is None and self._found is None:
            self._found = self._factory()
        while not self.ready:
            assert self._thread is not None
            self._thread.join(_POLL_SECONDS)
            if self._thread.is_alive():
                self._waiting("starting Spark")
        assert self._found is not None
        return self._found

    def _run_start(self) -> None:
        try:
            self._found = self._factory()
        except BaseException as error:
            self._error = error


def session(
    master: str | None = None, settings: Mapping[str, str] | None = None, *, sql: bool = True
) -> SparkSession:
    """The session of this process, created if there is none.

    The master is the given one, else `MILLSTREAM_SPARK_MASTER`, else all cores of this machine.
    `settings` override the defaults. Without `sql` no row passes through Java, which then only
    schedules tasks, so its optimizing compiler is switched off.
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
    spark = _create(builder)
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _create(builder: SparkSession.Builder) -> SparkSession:
    from millstream.engine.spark.failures import is_spark_error

    try:
        return builder.getOrCreate()
    except Exception as error:
        if not is_spark_error(error):
            raise
        raise SetupFailed(
            "Spark needs to start",
            got=str(error).strip().partition("\n")[0],
            do="read Java's output (libraries.log beside the checkpoint; with --debug on the "
            "terminal), and check MILLSTREAM_DRIVER_MEMORY, MILLSTREAM_SPARK_MASTER and your "
            "Spark settings",
        ) from error


def existing_session() -> SparkSession | None:
    """The session of this process, whichever thread created it; it may be the user's."""
    if "pyspark.sql" not in sys.modules:
        return None
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is None and SparkContext._active_spark_context is not None:
        return SparkSession.builder.getOrCreate()
    return active


def has_default_sql(spark: SparkSession) -> bool:
    """Whether no setting of a session changes the meaning of SQL."""
    changed = any(name.startswith(_SQL_SETTINGS) for name in spark.conf.getAll)
    return not changed and spark.conf.get("spark.sql.ansi.enabled") == "true"


def check_startable() -> None:
    """Check now what a start of Spark needs.

    Raises:
        SetupFailed: Java or a jar is missing.
    """
    from millstream.toolchain.jars import jars
    from millstream.toolchain.java import find_java

    find_java()
    jars("spark")


def parallelism(spark: SparkSession) -> int:
    """The number of partitions of a shuffle: as many as tasks can run at once."""
    return max(1, int(spark.sparkContext.defaultParallelism))


def cores() -> int:
    """The number of cores this process may use."""
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
        **{f"spark.executorEnv.{name}": value for name, value in _WORKERS_MEMORY.items()},
        "spark.log.level": "ERROR",
        "spark.driver.extraJavaOptions": "-XX:+UseParallelGC -Djava.net.preferIPv4Stack=true"
        + compiling,
        "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|sasl|ssl|jaas|credential",
        "spark.sql.redaction.options.regex": "(?i)url|secret|password|sasl|ssl|jaas|credential",
    }
