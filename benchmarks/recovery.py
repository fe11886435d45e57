"""Recovery after `kill -9` of all processes of an engine at peak load.

A topic is drained through windows of a second; when a third of the answers are there, and
Millstream has its batches run by Spark, the whole process tree is killed and the engine started
again on its checkpoint. The clock runs from that start, the JVM's included, to the first answer
a read_committed reader had not seen. Then it drains the rest, and all answers are checked: Spark's
sink may repeat some, which is counted.
"""

from __future__ import annotations

import os
import tempfile
import time
import uuid
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
from confluent_kafka import Consumer, TopicPartition

from benchmarks import oracle
from benchmarks.cells import EVENTS, ROUNDS, SPAN, filled
from benchmarks.processes import working
from benchmarks.report import keep, spread, verdict
from millstream.engine.inspection.inspect import open_checkpoint
from millstream.kafka.admin.topics import Topics
from millstream.testing import broker

if TYPE_CHECKING:
    from benchmarks.report import Round

PATIENCE = 300.0


def recovery(engines: tuple[str, ...]) -> bool:
    """Seconds from the second start to the first new answer, per engine."""
    chosen = [name for name in engines if name.startswith(("millstream", "spark"))]
    cells: dict[str, list[Round]] = {name: [] for name in chosen}
    with broker() as running:
        topic, _ = filled(running.address)
        expected = oracle.Windows(running.address, topic, window_ms=1000, delay_ms=0)
        for number in range(ROUNDS):
            for name in chosen:
                figures = _cell(name, running.address, topic, expected)
                cells[name].append({**figures, "load": os.getloadavg()[0]})
                print(f"  recovery {name}, round {number + 1}: back after {figures['back']:.1f} s, "
                      f"{figures['repeated']:,} answers repeated", flush=True)  # fmt: skip
    print(f"\nrecovery: killed at peak, {ROUNDS} rounds, seconds to the first new answer")
    for name, rounds in cells.items():
        print(f"  {name:14} {spread([one['back'] for one in rounds], '.1f')} s  {verdict(rounds)}")
    return keep("recovery", {"EVENTS": EVENTS, "ROUNDS": ROUNDS}, cells)


def _cell(engine: str, address: str, topic: str, expected: oracle.Windows) -> Round:
    out = f"out-{uuid.uuid4().hex[:8]}"
    Topics(address).create(out, partitions=1)
    with tempfile.TemporaryDirectory() as folder, closing(_Reader(address, out)) as reader:
        spec = {"topic": topic, "out": out, "window": "1 second", "delay": "0 seconds",
                "batch": "1 second", "rows": 2 * EVENTS // SPAN, "folder": folder}  # fmt: skip
        with working(engine, "lasting", address, spec) as process:
            reader.until(expected.due // 3)
            if engine == "millstream":
                _until_wide(Path(folder) / "checkpoint")
            _kill(process.pid)
        reader.rest()
        began = time.monotonic()
        with working(engine, "lasting", address, spec) as process:
            reader.until(reader.seen + 1)
            back = time.monotonic() - began
            reader.until(expected.due)
            reader.rest()
            _kill(process.pid)
    check = expected.check(out)
    repeated = check["faults"].pop("twice") if engine.startswith("spark") else 0
    return {"back": back, "repeated": repeated, "check": check}


def _until_wide(folder: Path) -> None:
    """Wait until a large batch is in progress; batches are small until Spark has started."""
    checkpoint, until = open_checkpoint(folder), time.monotonic() + PATIENCE
    while time.monotonic() < until:
        newest = max(checkpoint.batches("intent"))
        wide = checkpoint.read(newest, "intent")["lane"] == "wide"
        if wide and not checkpoint.has(newest, "commit"):
            return
        time.sleep(0.01)
    raise SystemExit("recovery needs more EVENTS: no batch was for Spark")


class _Reader:
    """Counts the committed answers of a topic of one partition."""

    def __init__(self, address: str, topic: str) -> None:
        self.seen = 0
        self._topic = topic
        self._consumer = Consumer({"bootstrap.servers": address, "group.id": "recovery",
                                   "isolation.level": "read_committed",
                                   "fetch.wait.max.ms": 20})  # fmt: skip
        self._consumer.assign([TopicPartition(topic, 0, 0)])

    def until(self, count: int) -> None:
        """Until it has seen so many."""
        until = time.monotonic() + PATIENCE
        while self.seen < count:
            self._look()
            if time.monotonic() > until:
                raise SystemExit(f"{self._topic} has not had {count} records in {PATIENCE:.0f} s")

    def rest(self, seconds: float = 5.0) -> None:
        """Until nothing more has come for so long."""
        since = time.monotonic()
        while time.monotonic() < since + seconds:
            if self._look():
                since = time.monotonic()

    def _look(self) -> int:
        found = [one for one in self._consumer.consume(10_000, 0.02) if one.error() is None]
        self.seen += len(found)
        return len(found)

    def close(self) -> None:
        self._consumer.close()


def _kill(pid: int) -> None:
    """Kill the whole process tree, including Java and Python workers."""
    root = psutil.Process(pid)
    tree = [*root.children(recursive=True), root]
    for process in tree:
        process.kill()
    psutil.wait_procs(tree, timeout=30)
