"""`python -m benchmarks [--row log.produce]`: run the rows whose names begin so, or all."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from benchmarks import log_clients

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ROWS: Mapping[str, Callable[[], None]] = {
    "log.produce": log_clients.produce,
    "log.consume": log_clients.consume,
    "log.start": log_clients.start,
}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--row", default="", help=f"one of {', '.join(ROWS)}, or how they begin")
    chosen = parser.parse_args(arguments).row.removeprefix("ROW=")
    rows = {name: row for name, row in ROWS.items() if name.startswith(chosen)}
    if not rows:
        parser.error(f"no row begins with {chosen!r}; there are {', '.join(ROWS)}")
    for row in rows.values():
        row()
    return 0


if __name__ == "__main__":
    sys.exit(main())
