"""What a small batch costs as state grows: 10,000 rows over a per-key count.

The state is loaded through the engine itself, one record per key; then batches follow one
at a time, each a transaction of its own; a batch lasts from its transaction's commit until the
engine's, whatever was read ahead in between. Spark counts without a window and without an
output, which is the cheapest way it has.
"""

from __future__ import annotations

import os
import tempfile
import uuid
from typing import TYPE_CHECKING, Any

from benchmarks import oracle
from benchmarks.processes import work
from benchmarks.report import keep, percentiles, verdict
from millstream.log.topics import Topics
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
    cells: dict[str, list[Round]] = {}
    with broker() as running:
        for keys in KEYS:
            for engine in (name for name in engines if name in ("millstream", "spark-rocksdb")):
                name = f"{engine}, {keys:,} keys"
                cells[name] = [{**_cell(engine, running.address, keys), "load": os.getloadavg()[0]}]
                print(f"  growth {name}: {_line(cells[name])}", flush=True)
    print(f"\ngrowth: {BATCHES} batches of {ROWS:,} rows after {WARM_BATCHES} to warm up")
    for name, rounds in cells.items():
        print(f"  {name:34} {_line(rounds)}")
    settings: dict[str, Any] = {"KEYS": KEYS, "BATCHES": BATCHES, "WARM_BATCHES": WARM_BATCHES,
                                "rows": ROWS}  # fmt: skip
    return keep("growth", settings, cells)


def _cell(engine: str, address: str, keys: int) -> Round:
    name = uuid.uuid4().hex[:8]
    topic, out = f"in-{name}", f"out-{name}"
    Topics(address).create(topic, partitions=1)
    with tempfile.TemporaryDirectory() as folder:
        state = f"{folder}/state"
        told = {"topic": topic, "out": out, "keys": keys, "rows": ROWS, "state": state,
                "batches": WARM_BATCHES + BATCHES}  # fmt: skip
        figures = work(engine, "growth", address, told)
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
    one = rounds[0]
    took = " ".join(f"{name} {seconds * 1000:.0f}" for name, seconds in one["seconds"].items())
    wrote = " ".join(f"{name} {size / 1e6:.2f}" for name, size in one["written"].items())
    split = f", {one['split']} split" if one["split"] else ""
    return (
        f"{took} ms, {one['cpu']['p50'] * 1000:.0f} of CPU; written {wrote}, "
        f"mean {one['mean_written'] / 1e6:.2f} MB{split}; {verdict(rounds)}"
    )
