"""Latency of a window, Kafka to Kafka: from its end until a reader has its row.

So many records a second over ten keys in an open loop; event time is the scheduled time of
sending; windows of 100 ms, no watermark delay. A row's latency is the moment a
read_committed consumer has it minus its window's end. Millstream is exactly once and runs with
`latency="0 seconds"`; Spark's sink is at least once.
"""

from __future__ import annotations

import json
import os
import statistics
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks import oracle
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

    from benchmarks.report import Round

FEED_SECONDS = int(os.environ.get("FEED_SECONDS", "60"))
WARM_SECONDS = int(os.environ.get("WARM_SECONDS", "20"))
PATIENCE = 60.0


@dataclass(frozen=True)
class Paced:
    """The feed and the workload; the first `warm` of its `seconds` do not count."""

    engine: str
    rate: int
    partitions: int
    keys: int = 10
    window_ms: int = 100
    batch_ms: int = 1000
    latency_ms: int = 0
    warm: int = WARM_SECONDS
    seconds: int = FEED_SECONDS


def latency(engines: tuple[str, ...]) -> bool:
    """A steady 2,000 records a second, on topics of one and of four partitions."""
    return _row("latency", engines, numbers("RATES", "2000"), numbers("PARTITIONS", "1,4"))


def latency_rates(engines: tuple[str, ...]) -> bool:
    """1,000, 10,000 and 50,000 records a second, on four partitions."""
    rates = numbers("RATES", "1000,10000,50000")
    return _row("latency-rates", engines, rates, numbers("PARTITIONS", "4"))


def _row(
    row: str, engines: tuple[str, ...], rates: tuple[int, ...], partitions: tuple[int, ...]
) -> bool:
    settings = {"RATES": rates, "PARTITIONS": partitions, "FEED_SECONDS": FEED_SECONDS,
                "WARM_SECONDS": WARM_SECONDS, "keys": Paced.keys,
                "window_ms": Paced.window_ms}  # fmt: skip
    with broker() as running:
        cells = {
            called(engine, rate, count): partial(
                windowed, Paced(engine, rate, count), running.address
            )
            for rate in rates
            for count in partitions
            for engine in engines
            if engine.startswith(("millstream", "spark"))
        }
        return in_turns(row, settings, cells, _line)


def _line(rounds: list[Round]) -> str:
    took, cpu = (
        statistics.median(one[name] for one in rounds) for name in ("batch_ms", "batch_cpu_ms")
    )
    return (
        f"{latencies(rounds, '.0f')}; batch {took:.0f} ms, {cpu:.0f} of CPU; "
        f"{spread([one['cores'] for one in rounds], '.2f')} cores; "
        f"{feed_line(rounds)}; {verdict(rounds)}"
    )


def windowed(paced: Paced, address: str) -> Round:
    """Windows over a paced feed: their latency, their cost, and the check."""
    spec = {"window": f"{paced.window_ms} milliseconds", "delay": "0 seconds",
            "batch": f"{paced.batch_ms} milliseconds",
            "latency": f"{paced.latency_ms} milliseconds"}  # fmt: skip
    with topics(address, paced.partitions) as (topic, out):
        spec |= {"topic": topic, "out": out}
        with working(paced.engine, "latency", address, spec) as process:
            process.await_ready()
            reader, start = Reader(address, out), soon()
            spending = Spending(process.pid, start + paced.warm, start + paced.seconds)
            feed = fed(address, topic, paced.partitions, start, rate=paced.rate, keys=paced.keys,
                       seconds=paced.seconds)  # fmt: skip
            expected = oracle.Windows(address, topic, window_ms=paced.window_ms, delay_ms=0)
            seen = reader.until(expected.due, PATIENCE + 3 * paced.batch_ms / 1000)
            spending.join()
            process.stop()
            figures = process.result()
        check = with_feed(expected.check(out), feed)
    warm = (start + paced.warm) * 1000
    after = [at - end for at, end in map(_moments, seen) if end > warm]
    measured = paced.seconds - paced.warm
    return {
        "rate": paced.rate,
        "partitions": paced.partitions,
        "latency_ms": percentiles(after, *PERCENTILES) if after else {},
        "rows": len(after),
        **_batches(figures),
        "cores": spending.cpu / measured,
        "cpu_per_million": spending.cpu / (paced.rate * measured) * 1e6,
        "feed": feed,
        "check": check,
    }


def _batches(figures: dict[str, Any]) -> Round:
    """Duration and size of the non-empty batches in the second half."""
    batches = [batch for batch in figures["batches"] if batch["rows"]]
    settled = batches[len(batches) // 2 :]
    phases = settled[0].get("phases", {}) if settled else {}
    return {
        "batch_ms": 1000 * _median(batch["seconds"] for batch in settled),
        "batch_rows": _median(batch["rows"] for batch in settled),
        "phases_ms": {
            name: 1000 * _median(batch["phases"].get(name, 0.0) for batch in settled)
            for name in phases
        },
        "batch_cpu_ms": figures["cpu"] * 1000 / max(1, len(batches)),
        "batches": len(batches),
        "lanes": sorted({batch.get("lane", "") for batch in batches}),
    }


def _median(figures: Iterable[float]) -> float:
    """0 of nothing."""
    return statistics.median([*figures] or [0.0])


def _moments(row: tuple[float, bytes]) -> tuple[float, float]:
    """When a row was seen, and its window's end, in epoch milliseconds."""
    at, value = row
    end = datetime.fromisoformat(json.loads(value)["window_end"])
    return at * 1000, end.timestamp() * 1000
