"""The Spark session work runs in, with the settings the engine depends on."""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING

from millstream.errors import SetupFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import SparkSession

_MEANING = ("spark.sql.ansi.", "spark.sql.legacy.", "spark.sql.analyzer.", "spark.sql.parser.",
            "spark.sql.caseSensitive", "spark.sql.decimalOperations.",
            "spark.sql.collation.")  # fmt: skip
_LOOK = 0.2
_WORKERS_MEMORY = {  # what a worker frees it soon needs again: given back, it would be faulted in
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(512 << 20),
}


class Spark:
    """The Spark of a run: there from the beginning, or started beside it once it is wanted.

    `waiting` hears that somebody waits for it, again and again; it may raise to end the wait.
    """

    def __init__(
        self,
        start: Callable[[], SparkSession],
        waiting: Callable[[str], None] = lambda why: None,
    ) -> None:
        self._start, self._waiting = start, waiting
        self._found: SparkSession | None = None
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None

    @classmethod
    def of(cls, spark: SparkSession) -> Spark:
        """A session that is there."""
        made = cls(lambda: spark)
        made._found = spark
        return made

    @property
    def there(self) -> bool:
        """Whether nobody would have to wait for it.

        Raises:
            Exception: it was wanted and did not start.
        """
        if self._error is not None:
            raise self._error
        return self._found is not None

    def want(self) -> None:
        """Let it start, while work goes on without it."""
        if self._thread is None and self._found is None:
            self._thread = threading.Thread(target=self._started, name="spark", daemon=True)
            self._thread.start()

    def get(self) -> SparkSession:
        """The session, as soon as it is there."""
        if self._thread is None and self._found is None:
            self._found = self._start()
        while not self.there:
            assert self._thread is not None
            self._thread.join(_LOOK)
            if self._thread.is_alive():
                self._waiting("starting Spark")
        assert self._found is not None
        return self._found

    def _started(self) -> None:
        try:
            self._found = self._start()
        except BaseException as error:
            self._error = error


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
    spark = _made(builder)
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _made(builder: SparkSession.Builder) -> SparkSession:
    from millstream.engine.spark.failures import is_sparks

    try:
        return builder.getOrCreate()
    except Exception as error:
        if not is_sparks(error):
            raise
        raise SetupFailed(
            "Spark needs to start",
            got=str(error).strip().partition("\n")[0],
            do="see what Java has printed (libraries.log beside the checkpoint; with --debug on "
            "the terminal), and look at MILLSTREAM_DRIVER_MEMORY, MILLSTREAM_SPARK_MASTER and "
            "settings of Spark's own",
        ) from error


def existing() -> SparkSession | None:
    """The session of this process, whichever thread has made it, be it the user's own."""
    if "pyspark.sql" not in sys.modules:
        return None
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is None and SparkContext._active_spark_context is not None:
        return SparkSession.builder.getOrCreate()
    return active


def usual(spark: SparkSession) -> bool:
    """Whether SQL means in a session what it means without settings of one's own."""
    odd = any(name.startswith(_MEANING) for name in spark.conf.getAll)
    return not odd and spark.conf.get("spark.sql.ansi.enabled") == "true"


def check_startable() -> None:
    """Refuse now what a start of Spark would refuse later.

    Raises:
        SetupFailed: Java or what Spark needs beside it is not there.
    """
    from millstream.toolchain.jars import jars
    from millstream.toolchain.java import find_java

    find_java()
    jars("spark")


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
        **{f"spark.executorEnv.{name}": value for name, value in _WORKERS_MEMORY.items()},
        "spark.log.level": "ERROR",
        "spark.driver.extraJavaOptions": "-XX:+UseParallelGC -Djava.net.preferIPv4Stack=true"
        + compiling,
        "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|sasl|ssl|jaas|credential",
        "spark.sql.redaction.options.regex": "(?i)url|secret|password|sasl|ssl|jaas|credential",
    }
