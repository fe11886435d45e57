"""The cost of a small batch as state grows: 10,000 rows over a per-key count.

The state is loaded through the engine itself, one record per key, and the disk has taken all of
it: a kernel that still writes slows every `fsync`. Then batches follow one at a time, each a
transaction of its own; a batch lasts from its transaction's commit until the engine's, whatever
was read ahead in between. Spark counts without a window and without an output, which is the
cheapest way it has.
"""

from __future__ import annotations

import os
import tempfile
from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks import oracle
from benchmarks.paced import in_turns, topics
from benchmarks.processes import work
from benchmarks.report import percentiles, spread, verdict
from millstream.testing import broker

if TYPE_CHECKING:
    from benchmarks.report import Round

SIZES = (100_000, 1_000_000, *((10_000_000,) if os.environ.get("LARGE") else ()))
KEYS = tuple(int(one) for one in os.environ.get("KEYS", ",".join(map(str, SIZES))).split(","))
BATCHES = int(os.environ.get("BATCHES", "100"))
WARM_BATCHES = int(os.environ.get("WARM_BATCHES", "30"))
ROWS = 10_000


def growth(engines: tuple[str, ...]) -> bool:
    """p50 and p95 of a batch's time and of the bytes it writes, per number of open keys."""
    settings: dict[str, Any] = {"KEYS": KEYS, "BATCHES": BATCHES, "WARM_BATCHES": WARM_BATCHES,
                                "rows": ROWS}  # fmt: skip
    with broker() as running:
        cells = {
            f"{engine}, {keys:,} keys": partial(_cell, engine, running.address, keys)
            for keys in KEYS
            for engine in ("millstream", "spark-rocksdb")
            if engine in engines
        }
        return in_turns("growth", settings, cells, _line)


def _cell(engine: str, address: str, keys: int) -> Round:
    with topics(address, partitions=1) as (topic, out), tempfile.TemporaryDirectory() as folder:
        state = f"{folder}/state"
        spec = {"topic": topic, "out": out, "keys": keys, "rows": ROWS, "state": state,
                "batches": WARM_BATCHES + BATCHES}  # fmt: skip
        figures = work(engine, "growth", address, spec)
        expected = oracle.Counts(address, topic)
        ours = engine == "millstream"
        check = expected.check(out) if ours else expected.check_files(state)
    batches = figures["batches"][-BATCHES:]
    whole = [batch for batch in batches if batch["rows"] == ROWS]
    return {
        "seconds": percentiles([batch["elapsed"] for batch in whole], 50, 95),
        "cpu": percentiles([batch["cpu"] for batch in whole], 50),
        "written": percentiles([batch["written"] for batch in whole], 50, 95),
        "mean_written": sum(batch["written"] for batch in whole) / len(whole),
        "batches": batches,
        "split": len(batches) - len(whole),
        "check": check,
    }


def _line(rounds: list[Round]) -> str:
    took = _percentiles(rounds, "seconds", 1000, ".0f")
    wrote = _percentiles(rounds, "written", 1e-6, ".2f")
    cpu = spread([one["cpu"]["p50"] * 1000 for one in rounds], ".0f")
    mean = spread([one["mean_written"] / 1e6 for one in rounds], ".2f")
    split = sum(one["split"] for one in rounds)
    return (
        f"{took} ms, {cpu} of CPU; written {wrote}, mean {mean} MB"
        f"{f', {split} split' if split else ''}; {verdict(rounds)}"
    )


def _percentiles(rounds: list[Round], name: str, times: float, form: str) -> str:
    return " ".join(f"{p} {spread([one[name][p] * times for one in rounds], form)}"
                    for p in rounds[0][name])  # fmt: skip
