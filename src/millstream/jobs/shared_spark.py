"""The Spark application that small jobs share: `python -m millstream.jobs.shared_spark`.

Started by the supervisor. It starts Spark, and writes to the file that `MILLSTREAM_SHARED_SPARK`
names how Java is reached; the jobs' processes attach to it (`engine/spark/shared.py`).
"""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

from millstream.engine.spark.session import session
from millstream.engine.spark.shared import VARIABLE


def main() -> None:
    """Run the application until SIGTERM or SIGINT."""
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
