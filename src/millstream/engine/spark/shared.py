"""Sessions of a Spark application that several processes share.

`MILLSTREAM_SHARED_SPARK` names the file that says how the application is reached
(`jobs/shared_spark.py`). Jobs share Java, its heap, and Spark's workers. Each has its own process
as before, which plans its batches, writes to its sinks and commits, and a session of its own.
"""

from __future__ import annotations

import json
import os
import sys
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
