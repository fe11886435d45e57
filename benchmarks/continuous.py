"""Latency of a stateless row, Kafka to Kafka: continuous mode and a plain loop.

So many records a second in an open loop; a row's latency is the moment a reader has it minus
the scheduled time of its sending (known to a millisecond). The work is the same: decode JSON,
drop one key in ten, one product, encode. The loop is a consumer and a producer in Python; both
are at least once.
"""

from __future__ import annotations

import json
import os
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.paced import (
    PERCENTILES,
    Reader,
    Spending,
    called,
    fed,
    feed_line,
    in_turns,
    latencies,
    numbers,
    soon,
    topics,
    with_feed,
)
from benchmarks.processes import working
from benchmarks.report import percentiles, spread, verdict
from millstream.testing import broker

if TYPE_CHECKING:
    from collections.abc import Iterable

    from benchmarks.oracle import Check
    from benchmarks.report import Round

FEED_SECONDS = int(os.environ.get("FEED_SECONDS", "60"))
WARM_SECONDS = int(os.environ.get("WARM_SECONDS", "25"))
KEYS, DROPPED = 10, 3
PATIENCE = 60.0

Due = dict[tuple[int, int], int]


def continuous(engines: tuple[str, ...]) -> bool:
    """A steady 1,000 records a second, on topics of one and of four partitions."""
    return _row("continuous", engines, numbers("RATES", "1000"), numbers("PARTITIONS", "1,4"))


def continuous_rates(engines: tuple[str, ...]) -> bool:
    """1,000, 10,000 and 50,000 records a second, on four partitions."""
    rates = numbers("RATES", "1000,10000,50000")
    return _row("continuous-rates", engines, rates, numbers("PARTITIONS", "4"))


def _row(
    row: str, engines: tuple[str, ...], rates: tuple[int, ...], partitions: tuple[int, ...]
) -> bool:
    del engines  # the loop is the only other engine with such a mode
    settings = {"RATES": rates, "PARTITIONS": partitions, "FEED_SECONDS": FEED_SECONDS,
                "WARM_SECONDS": WARM_SECONDS, "keys": KEYS}  # fmt: skip
    with broker() as running:
        cells = {
            called(engine, rate, count): partial(_cell, engine, running.address, rate, count)
            for rate in rates
            for count in partitions
            for engine in ("loop", "millstream")
        }
        return in_turns(row, settings, cells, _line)


def _line(rounds: list[Round]) -> str:
    repeated = sum(one["repeated"] for one in rounds)
    return (
        f"{latencies(rounds, '.1f')}; {spread([one['cores'] for one in rounds], '.2f')} cores; "
        f"{feed_line(rounds)}; {repeated:,} repeated; {verdict(rounds)}"
    )


def _cell(engine: str, address: str, rate: int, partitions: int) -> Round:
    with (
        topics(address, partitions) as (topic, out),
        working(engine, "continuous", address, {"topic": topic, "out": out}) as process,
    ):
        process.await_ready()
        reader, start = Reader(address, out), soon()
        spending = Spending(process.pid, start + WARM_SECONDS, start + FEED_SECONDS)
        feed = fed(address, topic, partitions, start, rate=rate, keys=KEYS, seconds=FEED_SECONDS)
        due = _due(rate, partitions, start)
        seen = reader.until(sum(due.values()), PATIENCE)
        spending.join()
        process.stop()
        process.result()
    after, check, repeated = _judged(seen, due, (start + WARM_SECONDS) * 1000)
    measured = FEED_SECONDS - WARM_SECONDS
    return {
        "rate": rate,
        "partitions": partitions,
        "latency_ms": percentiles(after, *PERCENTILES) if after else {},
        "rows": len(after),
        "cores": spending.cpu / measured,
        "cpu_per_million": spending.cpu / (rate * measured) * 1e6,
        "feed": feed,
        "repeated": repeated,
        "check": with_feed(check, feed),
    }


def _due(rate: int, partitions: int, start: float) -> Due:
    """The expected number of rows, by key and scheduled millisecond."""
    due: Due = {}
    for number in range(rate * FEED_SECONDS):
        key = number // partitions % KEYS
        if key != DROPPED:
            place = (key, round((start + number / rate) * 1000))
            due[place] = due.get(place, 0) + 1
    return due


def _judged(
    seen: Iterable[tuple[float, bytes]], due: Due, warm: float
) -> tuple[list[float], Check, int]:
    """The latencies after the warm-up in milliseconds, the check, and the number of repeats."""
    found: Due = {}
    after, rows, wrong = [], 0, 0
    for at, value in seen:
        row = json.loads(value)
        place = (row["auction"], row["sent"])
        found[place] = found.get(place, 0) + 1
        rows += 1
        wrong += place not in due or abs(row["euros"] - 1.5 * 0.9) > 1e-9
        if row["sent"] > warm:
            after.append(at * 1000 - row["sent"])
    missing = sum(max(0, count - found.get(place, 0)) for place, count in due.items())
    repeated = sum(max(0, count - due.get(place, 0)) for place, count in found.items())
    return after, {"checked": rows, "faults": {"missing": missing, "wrong": wrong}}, repeated
