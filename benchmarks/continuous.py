"""Latency of one row, Kafka to Kafka, with nothing to remember: continuous mode and a plain loop.

1,000 records a second in an open loop; a row's latency is the moment a reader has it minus the
scheduled time of its sending (known to a millisecond). The work is the same: decode JSON, drop
one key in ten, one product, encode. The loop is a consumer and a producer in Python; both are
at least once.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from typing import TYPE_CHECKING, Any

from benchmarks.latency import Reader, fed
from benchmarks.processes import working
from benchmarks.report import keep, percentiles, verdict
from millstream.log.topics import Topics
from millstream.testing import broker

if TYPE_CHECKING:
    from benchmarks.report import Round

RATE = int(os.environ.get("RATE", "1000"))
FEED_SECONDS = int(os.environ.get("FEED_SECONDS", "60"))
WARM_SECONDS = int(os.environ.get("WARM_SECONDS", "25"))
PARTITIONS = tuple(int(one) for one in os.environ.get("PARTITIONS", "1,4").split(","))
KEYS, DROPPED = 10, 3
PATIENCE = 60.0


def continuous(engines: tuple[str, ...]) -> bool:
    """p50, p95, p99 and p99.9 of continuous mode and of the loop, on one and on four partitions."""
    cells: dict[str, list[Round]] = {}
    with broker() as running:
        for partitions in PARTITIONS:
            for engine in ("loop", "millstream"):
                name = f"{engine}, {partitions} partition{'s' if partitions > 1 else ''}"
                cells[name] = [_cell(engine, running.address, partitions)]
                print(f"  continuous {name}: {_line(cells[name])}", flush=True)
    settings = {"RATE": RATE, "FEED_SECONDS": FEED_SECONDS, "WARM_SECONDS": WARM_SECONDS,
                "PARTITIONS": PARTITIONS, "keys": KEYS}  # fmt: skip
    return keep("continuous", settings, cells)


def _line(rounds: list[Round]) -> str:
    one = rounds[0]
    figures = ", ".join(f"{name} {took:.1f} ms" for name, took in one["latency_ms"].items())
    return (
        f"{figures}; {one['cores']:.2f} cores; feed up to {one['feed']['behind'] * 1000:.0f} ms "
        f"behind; {one['repeated']} repeated; {verdict(rounds)}"
    )


def _cell(engine: str, address: str, partitions: int) -> Round:
    name = uuid.uuid4().hex[:8]
    topic, out = f"in-{name}", f"out-{name}"
    Topics(address).create(topic, partitions=partitions)
    Topics(address).create(out, partitions=1)
    with working(engine, "continuous", address, {"topic": topic, "out": out}) as process:
        process.await_ready()
        reader = Reader(address, out)
        start = int(time.time()) + 1.0
        feed = fed(address, topic, partitions, start, rate=RATE, keys=KEYS, seconds=FEED_SECONDS)
        due = _due(partitions, start)
        seen = reader.until(sum(due.values()), PATIENCE)
        process.stop()
        figures = process.result()
    rows = [(at * 1000, json.loads(value)) for at, value in seen]
    warm = (start + WARM_SECONDS) * 1000
    after = [at - row["sent"] for at, row in rows if row["sent"] > warm]
    check, repeated = _checked([row for _, row in rows], due)
    return {
        "latency_ms": percentiles(after, 50, 95, 99) if after else {},
        "rows": len(after),
        "cores": figures["cpu"] / figures["wall"],
        "feed": feed,
        "repeated": repeated,
        "load": os.getloadavg()[0],
        "check": check,
    }


def _due(partitions: int, start: float) -> dict[tuple[int, int], int]:
    """How many rows are to come, by key and scheduled millisecond."""
    due: dict[tuple[int, int], int] = {}
    for number in range(RATE * FEED_SECONDS):
        key = number // partitions % KEYS
        if key != DROPPED:
            place = (key, round((start + number / RATE) * 1000))
            due[place] = due.get(place, 0) + 1
    return due


def _checked(
    rows: list[dict[str, Any]], due: dict[tuple[int, int], int]
) -> tuple[dict[str, Any], int]:
    found: dict[tuple[int, int], int] = {}
    wrong = 0
    for row in rows:
        place = (row["auction"], row["sent"])
        found[place] = found.get(place, 0) + 1
        wrong += place not in due or abs(row["euros"] - 1.5 * 0.9) > 1e-9
    lost = sum(max(0, count - found.get(place, 0)) for place, count in due.items())
    repeated = sum(max(0, count - due.get(place, 0)) for place, count in found.items())
    return {"checked": len(rows), "faults": {"lost": lost, "wrong": wrong}}, repeated
