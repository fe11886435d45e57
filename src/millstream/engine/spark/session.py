"""The Spark session, with the settings the engine depends on."""

from __future__ import annotations

import os
import shlex
import socket
import sys
import threading
import time
from concurrent.futures import wait
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from millstream.engine.spark.master import check_master
from millstream.engine.spark.shared import attached, shared_place
from millstream.errors import InvalidSpec, SetupFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from concurrent.futures import Future

    from pyspark.sql import SparkSession

_SQL_SETTINGS = ("spark.sql.ansi.", "spark.sql.legacy.", "spark.sql.analyzer.", "spark.sql.parser.",
            "spark.sql.caseSensitive", "spark.sql.decimalOperations.",
            "spark.sql.collation.")  # fmt: skip
T = TypeVar("T")
_UTC = ("UTC", "Etc/UTC", "Z", "+00:00", "GMT", "Etc/GMT")
_POLL_SECONDS = 0.2
_PATIENCE_SECONDS, _STUCK_SECONDS = 2.0, 10.0  # of a small batch, before it counts as waiting
_UI_PORT = 4040
_GIVEN_UP = "stopped SparkContext"  # what is left to say when a master has not answered
_WORKERS_MEMORY = {  # what a worker frees it soon needs again: given back, it would be faulted in
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(512 << 20),
}


class Spark:
    """The Spark session of a run: given, or started in the background when it is needed.

    `waiting` is called repeatedly while `get` or `wait_for` waits; it may raise to end the wait.
    """

    def __init__(
        self,
        start: Callable[[], SparkSession],
        waiting: Callable[[str], None] = lambda why: None,
    ) -> None:
        self._factory, self._waiting = start, waiting
        self._found: SparkSession | None = None
        self._ui: tuple[str | None] | None = None
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None

    @classmethod
    def of(cls, spark: SparkSession, waiting: Callable[[str], None] = lambda why: None) -> Spark:
        """A session that exists."""
        made = cls(lambda: spark, waiting)
        made._found = spark
        return made

    @property
    def spark_ui(self) -> str | None:
        """The address of Spark's own page; None if it is off, or before Spark has started."""
        if self._ui is None and self._found is not None:
            self._ui = (ui_address(self._found),)
        return None if self._ui is None else self._ui[0]

    @property
    def found(self) -> SparkSession | None:
        """The session, if it has started."""
        return self._found

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

    def wait_for(
        self, future: Future[T], why: str, check: Callable[[], object], cancel: Callable[[], object]
    ) -> T:
        """The result of work on Spark. While it takes long, `check` looks for what it waits for;
        `cancel` ends the work if `check` or `waiting` raises."""
        began = time.monotonic()
        while not wait([future], timeout=_POLL_SECONDS).done:
            seconds = time.monotonic() - began
            try:
                if seconds >= _PATIENCE_SECONDS:
                    check()
                if seconds >= _STUCK_SECONDS:
                    self._waiting(why)
            except BaseException:
                cancel()
                raise
        return future.result()

    def _run_start(self) -> None:
        try:
            self._found = self._factory()
        except BaseException as error:
            self._error = error


def session(
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
    *,
    sql: bool = True,
    name: str = "millstream",
) -> SparkSession:
    """The session of this process, created if there is none.

    The master is the one given, else `MILLSTREAM_SPARK_MASTER`, else the one of `spark-submit` or
    `spark-defaults.conf`, else all cores of this machine. The user's settings win over ours.
    With `MILLSTREAM_SHARED_SPARK` it is one of an application that other processes share.
    Without `sql` no row passes through Java, which is then started without its optimising compiler.
    """
    from pyspark.sql import SparkSession

    from millstream.toolchain.jars import jars
    from millstream.toolchain.java import find_java, spark_java_home

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    if (place := shared_place()) is not None:
        return attached(place)
    users = {**users_settings(), **(settings or {})}
    check_meaning(users)
    where = _master(master, users)
    check_master(where)
    local = where.startswith("local")
    if local:
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["JAVA_HOME"] = str(spark_java_home(find_java()))
    users.setdefault("spark.app.name", name)
    ours = {**_defaults(sql=sql), **(_local_defaults() if local else {})}
    own_jars = ",".join(map(str, jars("spark")))
    users["spark.jars"] = ",".join(filter(None, [users.get("spark.jars"), own_jars]))
    builder = SparkSession.builder.master(where)
    for key, value in {**ours, **users}.items():
        builder = builder.config(key, value)
    spark = _create(builder, where)
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _create(builder: SparkSession.Builder, master: str) -> SparkSession:
    from millstream.engine.spark.failures import is_spark_error
    from millstream.sources.spark.frames import said

    try:
        return builder.getOrCreate()
    except Exception as error:
        if not is_spark_error(error):
            raise
        why = said(error)
        if _GIVEN_UP in why and not master.startswith("local"):
            why = f"a master, {master}, that does not accept applications"
        raise SetupFailed(
            "Spark needs to start",
            got=why,
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


def check_meaning(settings: Mapping[str, str]) -> None:
    """Refuse settings with which the same SQL would give other answers.

    Raises:
        InvalidSpec: names the setting.
    """
    for name, value in sorted(settings.items()):
        if name == "spark.sql.ansi.enabled" and value == "true":
            continue
        if name == "spark.sql.session.timeZone" and value not in _UTC:
            raise InvalidSpec(
                "a pipeline needs the session time zone UTC", got=f"{name}={value}",
                do=f'set it: spark.conf.set("{name}", "UTC")',
            )  # fmt: skip
        if name.startswith(_SQL_SETTINGS):
            raise InvalidSpec(
                "a pipeline needs Spark settings that leave the meaning of SQL as it is",
                got=f"{name}={value}",
                do="leave it out: the same rows would give other answers",
            )


def check_session(spark: SparkSession) -> None:
    """As `check_meaning`, of a session that is there."""
    zone = "spark.sql.session.timeZone"
    check_meaning({**spark.conf.getAll, zone: spark.conf.get(zone) or ""})


def check_startable(waiting: Callable[[str], None] = lambda why: None) -> None:
    """Check now what a start of Spark needs; `waiting` is called while its master does not answer.

    Raises:
        SetupFailed: Java or a jar is missing, or the master does not answer.
        InvalidSpec: the user's settings would change answers.
    """
    from millstream.toolchain.jars import jars
    from millstream.toolchain.java import find_java

    find_java()
    jars("spark")
    users = users_settings()
    check_meaning(users)
    check_master(_master(None, users), waiting)


def _master(named: str | None, users: Mapping[str, str]) -> str:
    """The master by its precedence."""
    found = named or os.environ.get("MILLSTREAM_SPARK_MASTER") or users.get("spark.master")
    return found or f"local[{cores()}]"


def parallelism(spark: SparkSession) -> int:
    """The number of partitions of a shuffle: as many as tasks can run at once."""
    return max(1, int(spark.sparkContext.defaultParallelism))


def cores() -> int:
    """The number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def users_settings() -> dict[str, str]:
    """Settings of Spark that the user has made: by `spark-submit`, `PYSPARK_SUBMIT_ARGS` or
    `spark-defaults.conf`."""
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit has started Java, with its settings
        from pyspark import SparkConf, SparkContext

        SparkContext._ensure_initialized()
        return dict(SparkConf().getAll())
    found = {}
    for line in _defaults_file():
        name, _, value = line.strip().partition("=") if "=" in line else line.strip().partition(" ")
        if name.startswith("spark."):
            found[name.strip()] = value.strip()
    words = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", ""))
    for flag, value in pairwise(words):
        if flag in ("--conf", "-c") and "=" in value:
            name, _, setting = value.partition("=")
            found[name] = setting
        elif flag == "--master":
            found["spark.master"] = value
    return found


def _defaults_file() -> list[str]:
    """The lines of the user's `spark-defaults.conf`."""
    home, folder = os.environ.get("SPARK_HOME"), os.environ.get("SPARK_CONF_DIR")
    place = Path(folder) if folder else Path(home, "conf") if home else None
    file = None if place is None else place / "spark-defaults.conf"
    return [] if file is None or not file.exists() else file.read_text().splitlines()


def ui_address(spark: SparkSession) -> str | None:
    """Where Spark's own page is; None if it is off."""
    return spark.sparkContext.uiWebUrl


def _free_ui_port() -> str:
    """Spark's usual port, or any free one."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", _UI_PORT))
        except OSError:
            return "0"
        return str(_UI_PORT)


def _local_defaults() -> dict[str, str]:
    """Everything stays on this machine, the page of Spark as well."""
    return {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.port": _free_ui_port(),
    }


def _defaults(*, sql: bool) -> dict[str, str]:
    compiling = "" if sql else " -XX:TieredStopAtLevel=1"
    return {
        "spark.ui.showConsoleProgress": "false",
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
