"""A backlog drained with little memory: 2 GB of bids through a window, with a heap of 1 GB."""

from __future__ import annotations

import os
import uuid
from typing import TYPE_CHECKING

from benchmarks import oracle
from benchmarks.cells import DELAY, WINDOW, bids
from benchmarks.measure import memory
from benchmarks.nexmark import Load, blocks, fill
from benchmarks.processes import working
from benchmarks.report import keep, verdict
from millstream.testing import broker

if TYPE_CHECKING:
    from benchmarks.report import Round

MEGABYTES = int(os.environ.get("BACKLOG_MB", "2000"))
HEAP = os.environ.get("MILLSTREAM_DRIVER_MEMORY", "1g")


def backlog(engines: tuple[str, ...]) -> bool:
    """Whether millstream drains the backlog, and the peak memory of its processes."""
    load, size = _load()
    out = f"out-{uuid.uuid4().hex[:8]}"
    with broker() as running:
        topic, rate = fill(running.address, load)
        print(f"generated {size / 1e6:,.0f} MB at {rate:,.0f} bids a second", flush=True)
        spec = {"topic": topic, "warm": None, "out": out, "window": f"{WINDOW} seconds",
                "delay": f"{DELAY} seconds", "batch": "3 seconds"}  # fmt: skip
        heap = {"MILLSTREAM_DRIVER_MEMORY": HEAP}
        with (
            working("millstream", "drain", running.address, spec, heap) as process,
            memory(process.pid) as peak,
        ):
            figures = process.result()
        expected = oracle.Windows(running.address, topic, window_ms=WINDOW * 1000,
                                  delay_ms=DELAY * 1000)  # fmt: skip
        check = expected.check(out)
    cell: Round = {**figures, "peak": vars(peak), "bytes": size, "check": check,
                   "load": os.getloadavg()[0]}  # fmt: skip
    largest = max(batch["rows"] for batch in figures["batches"])
    print(f"\nbacklog: {size / 1e6:,.0f} MB, {bids(load.events):,} bids, heap {HEAP}")
    print(f"  millstream     {figures['wall']:.1f} s, {figures['cpu']:.1f} CPU-seconds,"
          f" {len(figures['batches'])} batches of at most {largest:,} rows; peak"
          f" {peak.tree / 1e6:,.0f} MB in all processes, {peak.java / 1e6:,.0f} MB in the JVM;"
          f" {verdict([cell])}")  # fmt: skip
    return keep("backlog", {"BACKLOG_MB": MEGABYTES, "heap": HEAP}, {"millstream": [cell]})


def _load() -> tuple[Load, int]:
    """A load whose bids have the requested size, estimated from its first block."""
    block = next(blocks(Load(200_000), "bids"))
    each = sum(map(len, block)) / len(block)
    load = Load(int(MEGABYTES * 1e6 / each * 50 / 46))
    return load, int(bids(load.events) * each)
