"""`python -m benchmarks [--row tumbling] [--engine spark-heap]`: run the rows whose names begin so."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from benchmarks import cells, log_clients
from benchmarks.cells import ENGINES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

COMPARED: Mapping[str, Callable[[tuple[str, ...]], None]] = {
    "decode": cells.decode,
    "tumbling": cells.tumbling,
}
ROWS: Mapping[str, Callable[[], None]] = {
    "log.produce": log_clients.produce,
    "log.consume": log_clients.consume,
    "log.start": log_clients.start,
}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    names = ", ".join([*COMPARED, *ROWS])
    parser.add_argument("--row", default="", help=f"one of {names}, or how they begin")
    parser.add_argument("--engine", default="", help=f"millstream and one of {', '.join(ENGINES)}")
    told = parser.parse_args(arguments)
    engines = tuple(e for e in ENGINES if not told.engine or e in ("millstream", told.engine))
    compared = {name: row for name, row in COMPARED.items() if name.startswith(told.row)}
    alone = {name: row for name, row in ROWS.items() if name.startswith(told.row)}
    if not compared and not alone:
        parser.error(f"no row begins with {told.row!r}; there are {names}")
    for name in compared:
        COMPARED[name](engines)
    for row in alone.values():
        row()
    return 0


if __name__ == "__main__":
    sys.exit(main())
