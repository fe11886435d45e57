"""Run rows by name: `python -m benchmarks [--row tumbling] [--engine spark-heap]`."""

from __future__ import annotations

import argparse
import signal
import sys
from functools import partial
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
    queries,
    readers,
    recovery,
    report,
    sweep,
)
from benchmarks.processes import ENGINES, WHEN_NAMED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

COMPARED: Mapping[str, Callable[[tuple[str, ...]], bool]] = {
    "decode": cells.decode,
    "tumbling": cells.tumbling,
    "tumbling-1k": partial(cells.tumbling, row="tumbling-1k", keys=1_000),
    "tumbling-1m": partial(cells.tumbling, row="tumbling-1m", keys=1_000_000),
    "hopping": event_time.hopping,
    "session": event_time.session,
    "distinct": event_time.distinct,
    "join": joins.join,
    "as_of": joins.as_of,
    **{name: partial(queries.query, name) for name in queries.QUERIES},
    "latency": latency.latency,
    "latency-rates": latency.latency_rates,
    "continuous": continuous.continuous,
    "continuous-rates": continuous.continuous_rates,
    "sweep": sweep.sweep,
    "growth": growth.growth,
    "backlog": backlog.backlog,
    "recovery": recovery.recovery,
    "readers": readers.readers,
}
ALONE: Mapping[str, Callable[[], None]] = {
    "log.produce": log_clients.produce,
    "log.consume": log_clients.consume,
    "log.start": log_clients.start,
}


def ends_on_sigterm() -> None:
    """Make SIGTERM end the benchmark together with its engines and its broker."""
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    names = ", ".join([*COMPARED, *ALONE])
    parser.add_argument("--row", default="", help=f"one of {names}, or how they begin")
    parser.add_argument("--engine", default="",
                        help=f"millstream beside some of {','.join(ENGINES)}; without it "
                        f"{', '.join(WHEN_NAMED)} take part only with --all")  # fmt: skip
    parser.add_argument("--all", action="store_true",
                        help="every row that this commit has no result of")  # fmt: skip
    options = parser.parse_args(arguments)
    engines = taking_part(options.engine, whole=options.all)
    if unknown := set(options.engine.split(",")) - {*ENGINES, ""}:
        parser.error(f"no engine is called {', '.join(unknown)}; there are {', '.join(ENGINES)}")
    rows = (*COMPARED, *ALONE)
    chosen = (
        [options.row] if options.row in rows else [n for n in rows if n.startswith(options.row)]
    )
    if not chosen:
        parser.error(f"no row begins with {options.row!r}; there are {names}")
    if options.all:
        chosen = [name for name in COMPARED if not report.is_kept(name)]
    right = [COMPARED[name](engines) for name in chosen if name in COMPARED]
    for name in chosen:
        if name in ALONE:
            ALONE[name]()
    return 0 if all(right) else 1


def taking_part(named: str, *, whole: bool) -> tuple[str, ...]:
    """The engines of a run: millstream and those named, or the default engines, or all."""
    otherwise = ENGINES if whole else tuple(e for e in ENGINES if e not in WHEN_NAMED)
    beside = named.split(",") if named else otherwise
    return tuple(e for e in ENGINES if e == "millstream" or e in beside)


if __name__ == "__main__":
    ends_on_sigterm()
    sys.exit(main())
