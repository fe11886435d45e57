"""Whether a cluster's master answers: asked before Spark is started, which would try for a minute.

Spark's own attempts end with an error of Java that does not name the master.
"""

from __future__ import annotations

import re
import socket
import time
from typing import TYPE_CHECKING

from millstream.errors import SetupFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_PATIENCE_SECONDS, _CONNECT_SECONDS, _PAUSE_SECONDS = 15.0, 2.0, 0.5
_ADDRESS = re.compile(r"(?:\[(?P<v6>[^\]]+)\]|(?P<host>[^:/,]+)):(?P<port>\d+)")


def check_master(master: str, waiting: Callable[[str], None] = lambda why: None) -> None:
    """Wait until a master accepts connections, up to 15 seconds.

    `waiting` is called while it does not; it may raise to end the wait. A master that is no
    address (`local[*]`, `yarn`) is not asked.

    Raises:
        SetupFailed: none of its addresses answers.
    """
    addresses = list(_addresses(master))
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while addresses:
        refused = [why for host, port in addresses if (why := _refusal(host, port)) is not None]
        if len(refused) < len(addresses):
            return
        if time.monotonic() > deadline:
            raise SetupFailed(
                f"Spark needs its master {master} to answer",
                got=refused[0],
                do="start that cluster, or correct --master, MILLSTREAM_SPARK_MASTER or "
                "spark.master",
            )
        waiting(f"waiting for the Spark master {master}")
        time.sleep(_PAUSE_SECONDS)


def _addresses(master: str) -> Iterator[tuple[str, int]]:
    kind, _, rest = master.partition("://")
    if kind in ("spark", "k8s"):
        for part in rest.removeprefix("https://").removeprefix("http://").split(","):
            if found := _ADDRESS.match(part):
                yield found["v6"] or found["host"], int(found["port"])


def _refusal(host: str, port: int) -> str | None:
    """Why an address does not answer; None if it does."""
    try:
        socket.create_connection((host, port), timeout=_CONNECT_SECONDS).close()
    except OSError as error:
        return f"{host}:{port}: {error.strerror or error}"
    return None
