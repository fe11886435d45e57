"""Run rows by name: `python -m benchmarks [--row tumbling] [--engine spark-heap]`."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from benchmarks import (
    backlog,
    cells,
    continuous,
    event_time,
    growth,
    joins,
    latency,
    log_clients,
)
from benchmarks.processes import ENGINES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

COMPARED: Mapping[str, Callable[[tuple[str, ...]], bool]] = {
    "decode": cells.decode,
    "tumbling": cells.tumbling,
    "hopping": event_time.hopping,
    "session": event_time.session,
    "distinct": event_time.distinct,
    "join": joins.join,
    "as_of": joins.as_of,
    "latency": latency.latency,
    "continuous": continuous.continuous,
    "growth": growth.growth,
    "backlog": backlog.backlog,
}
ALONE: Mapping[str, Callable[[], None]] = {
    "log.produce": log_clients.produce,
    "log.consume": log_clients.consume,
    "log.start": log_clients.start,
}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    names = ", ".join([*COMPARED, *ALONE])
    parser.add_argument("--row", default="", help=f"one of {names}, or how they begin")
    parser.add_argument("--engine", default="", choices=["", *ENGINES],
                        help=f"millstream beside one of {', '.join(ENGINES)}")  # fmt: skip
    told = parser.parse_args(arguments)
    engines = tuple(e for e in ENGINES if not told.engine or e in ("millstream", told.engine))
    chosen = [name for name in (*COMPARED, *ALONE) if name.startswith(told.row)]
    if not chosen:
        parser.error(f"no row begins with {told.row!r}; there are {names}")
    right = [COMPARED[name](engines) for name in chosen if name in COMPARED]
    for name in chosen:
        if name in ALONE:
            ALONE[name]()
    return 0 if all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
