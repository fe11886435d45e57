"""One Spark application for several small jobs, and how their processes attach to it.

    MILLSTREAM_SHARED_SPARK=FILE python -m millstream.engine.spark.shared
                                    starts Spark, and writes to FILE how it is reached
    MILLSTREAM_SHARED_SPARK=FILE    the session of any other process is one of that application

Jobs share Java, its heap, and Spark's workers. Each has a process of its own as before, which
plans its batches, writes to its sinks and commits, and a session of its own.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.errors import Unavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VARIABLE = "MILLSTREAM_SHARED_SPARK"
_START_SECONDS = 120.0
_RETRY_SECONDS = 0.2
_PORT, _SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"


def shared_place() -> Path | None:
    """The file of the shared application that this process is to use."""
    place = os.environ.get(VARIABLE)
    return None if not place else Path(place)


def attached(place: Path) -> SparkSession:
    """A new session of the shared application; waits until that has started.

    Raises:
        Unavailable: it has not, after two minutes.
    """
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            return _attached(json.loads(place.read_text()))
        except (OSError, ValueError) as error:
            if time.monotonic() > deadline:
                raise Unavailable(
                    "a job that shares its Spark application needs it to run",
                    got=f"no answer in {_START_SECONDS:.0f} s ({error})",
                    do=f"see {place.with_suffix('.out')}; the job is started again",
                ) from error
            time.sleep(_RETRY_SECONDS)


def _attached(address: dict[str, Any]) -> SparkSession:
    """A session of the application behind this gateway.

    Raises:
        OSError: nothing answers there.
    """
    from py4j.protocol import Py4JError
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ |= {_PORT: str(address["port"]), _SECRET: address["secret"]}
    try:
        gateway: Any = launch_gateway()  # type: ignore[no-untyped-call]
    finally:
        del os.environ[_PORT], os.environ[_SECRET]
    try:
        java: Any = gateway.jvm
        existing = java.org.apache.spark.SparkContext.getOrCreate()
        context = java.JavaSparkContext.fromSparkContext(existing)
        conf = SparkConf(_jconf=context.getConf())
        return SparkSession(SparkContext(gateway=gateway, jsc=context, conf=conf)).newSession()
    except Py4JError as error:
        gateway.shutdown()
        raise ConnectionError(f"Spark's Java does not answer: {error}") from error


def main() -> None:
    """Run the application until SIGTERM or SIGINT."""
    from millstream.engine.spark.session import session

    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    place = Path(os.environ.pop(VARIABLE))
    place.unlink(missing_ok=True)
    spark = session(settings={"spark.scheduler.mode": "FAIR"}, name="millstream: shared by jobs")
    gateway: Any = spark.sparkContext._gateway
    address = {"port": gateway.java_parameters.port, "secret": gateway.java_parameters.auth_token}
    _write_private(place, json.dumps(address))
    try:
        ended.wait()
    finally:
        place.unlink(missing_ok=True)
        spark.stop()


def _write_private(place: Path, text: str) -> None:
    draft = place.with_suffix(".draft")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    draft.replace(place)


if __name__ == "__main__":
    main()
