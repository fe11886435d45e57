"""Cost and latency by the interval of batches: 20,000 records a second, a batch each 0.1 to 10 s.

Count and sum over 1,000 keys in windows of a second, in an open loop. Spark starts a batch each
interval (its trigger), Millstream when a row has waited so long (`latency=`). Latency counts from
the window's end. Six batches or `WARM_SECONDS` are left
out, whichever is longer, and at least six are measured.
"""

from __future__ import annotations

import math
import os
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.latency import FEED_SECONDS, WARM_SECONDS, Paced, windowed
from benchmarks.paced import feed_line, in_turns, latencies, numbers
from benchmarks.report import spread, verdict
from millstream.testing import broker

if TYPE_CHECKING:
    from benchmarks.report import Round

RATE = int(os.environ.get("RATE", "20000"))
KEYS, WINDOW_MS, PARTITIONS, LEAST_BATCHES = 1000, 1000, 4, 6
MODULES = {"millstream": "millstream", "spark-heap": "triggered-heap"}


def sweep(engines: tuple[str, ...]) -> bool:
    """CPU-seconds per million records, latency and rows per batch, by the interval of batches."""
    lengths = numbers("BATCH_MS", "100,300,1000,3000,10000")
    settings = {"RATE": RATE, "BATCH_MS": lengths, "FEED_SECONDS": FEED_SECONDS,
                "WARM_SECONDS": WARM_SECONDS, "keys": KEYS, "window_ms": WINDOW_MS,
                "partitions": PARTITIONS}  # fmt: skip
    with broker() as running:
        cells = {
            f"{engine}, {length / 1000:g} s": partial(_cell, module, length, running.address)
            for length in lengths
            for engine, module in MODULES.items()
            if engine in engines
        }
        return in_turns("sweep", settings, cells, _line)


def _cell(module: str, length: int, address: str) -> Round:
    return {"batch_s": length / 1000, **windowed(paced(module, length), address)}


def paced(module: str, length: int) -> Paced:
    """The feed of one cell, long enough for several batches."""
    batches = math.ceil(LEAST_BATCHES * length / 1000)
    warm = max(WARM_SECONDS, batches)
    seconds = warm + max(FEED_SECONDS - WARM_SECONDS, batches)
    return Paced(module, RATE, PARTITIONS, keys=KEYS, window_ms=WINDOW_MS, batch_ms=length,
                 latency_ms=length, warm=warm, seconds=seconds)  # fmt: skip


def _line(rounds: list[Round]) -> str:
    cost = spread([one["cpu_per_million"] for one in rounds], ".1f")
    size = spread([one["batch_rows"] for one in rounds], ",.0f")
    return (
        f"{cost} CPU-seconds per million; {latencies(rounds, '.0f')}; {size} rows per batch; "
        f"{feed_line(rounds)}; {verdict(rounds)}"
    )
