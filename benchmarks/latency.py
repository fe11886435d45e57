"""Latency of a window, Kafka to Kafka: when a reader sees its row, after the window's end.

2,000 records a second over ten keys in an open loop; event time is the scheduled time of
sending; windows of 100 ms, no watermark delay. A row's latency is the moment a
read_committed consumer has it minus its window's end. Millstream is exactly once, Spark's
sink at least once.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import threading
import time
import uuid
from datetime import datetime
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, TopicPartition

from benchmarks import oracle
from benchmarks.processes import working
from benchmarks.report import keep, percentiles, verdict
from millstream.log.topics import Topics
from millstream.testing import broker

if TYPE_CHECKING:
    from collections.abc import Iterable

    from benchmarks.report import Round

RATE = int(os.environ.get("RATE", "2000"))
FEED_SECONDS = int(os.environ.get("FEED_SECONDS", "60"))
WARM_SECONDS = int(os.environ.get("WARM_SECONDS", "20"))
PARTITIONS = tuple(int(one) for one in os.environ.get("PARTITIONS", "1,4").split(","))
KEYS, WINDOW_MS = 10, 100
PATIENCE = 60.0


def latency(engines: tuple[str, ...]) -> bool:
    """p50, p95 and p99 per engine, on topics of one and of four partitions."""
    cells: dict[str, list[Round]] = {}
    with broker() as running:
        for partitions in PARTITIONS:
            for engine in (name for name in engines if name.startswith(("millstream", "spark"))):
                figures = _cell(engine, running.address, partitions)
                name = f"{engine}, {partitions} partition{'s' if partitions > 1 else ''}"
                cells[name] = [{**figures, "load": os.getloadavg()[0]}]
                print(f"  latency {name}: {_line(cells[name])}", flush=True)
    print(f"\nlatency: {RATE:,}/s for {FEED_SECONDS} s, the first {WARM_SECONDS} s left out")
    for name, rounds in cells.items():
        print(f"  {name:30} {_line(rounds)}")
    settings = {"RATE": RATE, "FEED_SECONDS": FEED_SECONDS, "WARM_SECONDS": WARM_SECONDS,
                "PARTITIONS": PARTITIONS, "keys": KEYS, "window_ms": WINDOW_MS}  # fmt: skip
    return keep("latency", settings, cells)


def _line(rounds: list[Round]) -> str:
    one = rounds[0]
    figures = ", ".join(f"{name} {took:.0f} ms" for name, took in one["latency_ms"].items())
    behind = one["feed"]["behind"] * 1000
    return (
        f"{figures}; batch {one['batch_ms']:.0f} ms, {one['batch_cpu_ms']:.0f} of CPU; "
        f"feed up to {behind:.0f} ms behind; {verdict(rounds)}"
    )


def _cell(engine: str, address: str, partitions: int) -> Round:
    name = uuid.uuid4().hex[:8]
    topic, out = f"in-{name}", f"out-{name}"
    Topics(address).create(topic, partitions=partitions)
    Topics(address).create(out, partitions=1)
    told = {"topic": topic, "out": out, "window": f"{WINDOW_MS} milliseconds",
            "delay": "0 seconds", "batch": "1 second"}  # fmt: skip
    with working(engine, "latency", address, told) as process:
        process.await_ready()
        reader = Reader(address, out)
        start = (int(time.time() * 1000 / WINDOW_MS) + 10) * WINDOW_MS / 1000
        feed = fed(address, topic, partitions, start, rate=RATE, keys=KEYS, seconds=FEED_SECONDS)
        expected = oracle.Windows(address, topic, window_ms=WINDOW_MS, delay_ms=0)
        seen = reader.until(expected.due, PATIENCE)
        process.stop()
        figures = process.result()
    warm = (start + WARM_SECONDS) * 1000
    after = [at - end for at, end in map(_moments, seen) if end > warm]
    batches = figures["batches"]
    settled = batches[len(batches) // 2 :]
    return {
        "latency_ms": percentiles(after, 50, 95, 99) if after else {},
        "rows": len(after),
        "batch_ms": _median(batch["seconds"] for batch in settled),
        "phases_ms": {
            name: _median(batch["phases"].get(name, 0.0) for batch in settled)
            for name in (settled[0]["phases"] if settled else {})
        },
        "batch_cpu_ms": figures["cpu"] * 1000 / max(1, len(batches)),
        "batches": len(batches),
        "lanes": sorted({batch.get("lane", "") for batch in batches}),
        "cores": figures["cpu"] / figures["wall"],
        "feed": feed,
        "check": expected.check(out),
    }


def _median(seconds: Iterable[float]) -> float:
    """In milliseconds; 0 of nothing."""
    return statistics.median([1000 * one for one in seconds] or [0.0])


def fed(
    address: str, topic: str, partitions: int, start: float, *, rate: int, keys: int, seconds: int
) -> dict[str, float]:
    """Feed from a process of its own, and wait until it has ended."""
    options = {"partitions": partitions, "rate": rate, "keys": keys, "start": start,
               "seconds": seconds}  # fmt: skip
    command = [sys.executable, "-m", "benchmarks.feeding", address, topic, json.dumps(options)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the feed failed:\n{done.stderr[-2000:]}")
    figures: dict[str, float] = json.loads(done.stdout)
    time.sleep(2)  # what is on its way is stamped before the oracle makes this process busy
    return figures


class Reader:
    """A read_committed consumer in a thread, which notes when it had each row."""

    def __init__(self, address: str, topic: str) -> None:
        self._rows: list[tuple[float, bytes]] = []
        self._over = threading.Event()
        self._consumer = Consumer({"bootstrap.servers": address, "group.id": "latency",
                                   "isolation.level": "read_committed",
                                   "enable.auto.commit": False})  # fmt: skip
        self._consumer.assign([TopicPartition(topic, 0, 0)])
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def until(self, rows: int, seconds: float) -> list[tuple[float, bytes]]:
        """What was seen, once it is so many rows, or so many seconds have passed."""
        deadline = time.monotonic() + seconds
        while len(self._rows) < rows and time.monotonic() < deadline:
            time.sleep(0.1)
        self._over.set()
        self._thread.join()
        return self._rows

    def _read(self) -> None:
        while not self._over.is_set():
            message = self._consumer.poll(0.1)
            if message is not None and message.error() is None:
                self._rows.append((time.time(), message.value() or b"{}"))
        self._consumer.close()


def _moments(row: tuple[float, bytes]) -> tuple[float, float]:
    """When a row was seen, and its window's end, in epoch milliseconds."""
    at, value = row
    end = datetime.fromisoformat(json.loads(value)["window_end"])
    return at * 1000, end.timestamp() * 1000
