"""Shared by the rows with a paced feed: rounds, topics, the feed, the reader, CPU time.

The feed is an open loop in a process of its own. A cell whose feed was more than a second behind
its schedule is void: then it was the feed that was measured.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import threading
import time
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, TopicPartition

from benchmarks.measure import tree_cpu
from benchmarks.report import keep, spread
from benchmarks.unfinished import Unfinished
from millstream.kafka.admin.topics import Topics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

    from benchmarks.oracle import Check
    from benchmarks.report import Round

ROUNDS = int(os.environ.get("ROUNDS", "5"))
MOST_BEHIND = 1.0
PERCENTILES = (50, 95, 99, 99.9)


def numbers(name: str, default: str) -> tuple[int, ...]:
    """The comma-separated numbers of an environment variable."""
    return tuple(int(one) for one in os.environ.get(name, default).split(","))


def called(engine: str, rate: int, partitions: int) -> str:
    """A cell's name."""
    return f"{engine}, {rate:,}/s, {partitions} partition{'s' if partitions > 1 else ''}"


def in_turns(
    row: str,
    settings: dict[str, Any],
    cells: Mapping[str, Callable[[], Round]],
    line: Callable[[list[Round]], str],
) -> bool:
    """Measure all cells, round by round; return whether every cell is right.

    An interrupted row continues, if commit and settings are the same.
    """
    settings = {**settings, "ROUNDS": ROUNDS}
    found: dict[str, list[Round]] = {name: [] for name in cells}
    unfinished = Unfinished(row, settings)
    for number in range(ROUNDS):
        for name, cell in cells.items():
            figures = unfinished.round(name, number)
            if figures is None:
                figures = {**cell(), "load": os.getloadavg()[0]}
                unfinished.add(name, figures)
            found[name].append(figures)
            print(f"  {row} {name}, round {number + 1}: {line([figures])}", flush=True)
    print(f"\n{row}: rounds: {ROUNDS}, median (smallest–largest)")
    for name, rounds in found.items():
        print(f"  {name:36} {line(rounds)}")
    unfinished.end()
    return keep(row, settings, found)


@contextmanager
def topics(address: str, partitions: int) -> Iterator[tuple[str, str]]:
    """An input topic and an output topic of one partition, during a cell."""
    name = uuid.uuid4().hex[:8]
    fed_topic, out = f"in-{name}", f"out-{name}"
    there = Topics(address)
    there.create(fed_topic, partitions=partitions)
    there.create(out, partitions=1)
    yield fed_topic, out
    there.delete(fed_topic)
    there.delete(out)


def soon() -> float:
    """A whole second that is late enough for the feed's process to have started."""
    return math.ceil(time.time()) + 1.0


def fed(
    address: str, topic: str, partitions: int, start: float, *, rate: int, keys: int, seconds: int
) -> dict[str, float]:
    """Feed from a separate process, and wait for its end."""
    options = {"partitions": partitions, "rate": rate, "keys": keys, "start": start,
               "seconds": seconds}  # fmt: skip
    command = [sys.executable, "-m", "benchmarks.feeding", address, topic, json.dumps(options)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the feed failed:\n{done.stderr[-2000:]}")
    figures: dict[str, float] = json.loads(done.stdout)
    time.sleep(2)  # what is on its way is stamped before the oracle makes this process busy
    return figures


def with_feed(check: Check, feed: Mapping[str, float]) -> Check:
    """The check with a further fault if the feed was too far behind its schedule."""
    late = round(feed["behind"] * 1000) if feed["behind"] > MOST_BEHIND else 0
    return {**check, "faults": {**check["faults"], "ms the feed was behind:": late}}


def latencies(rounds: list[Round], form: str) -> str:
    """The percentiles of a cell's latencies as text."""
    known = [one["latency_ms"] for one in rounds if one["latency_ms"]]
    names = known[0] if known else ()
    return ", ".join(f"{name} {spread([one[name] for one in known], form)} ms" for name in names)


def feed_line(rounds: list[Round]) -> str:
    """The delay of a cell's feed as text."""
    behind, untaken = (
        max(1000 * one["feed"][name] for one in rounds) for name in ("behind", "untaken")
    )
    return f"feed up to {behind:.0f} ms behind, its records up to {untaken:.0f} ms under way"


class Spending(threading.Thread):
    """The CPU-seconds of a process tree between two times; known after `join()`."""

    def __init__(self, pid: int, begin: float, end: float) -> None:
        super().__init__(daemon=True)
        self._pid, self._moments = pid, (begin, end)
        self.cpu = 0.0
        self.start()

    def run(self) -> None:
        seen = []
        for moment in self._moments:
            time.sleep(max(0.0, moment - time.time()))
            seen.append(tree_cpu(self._pid))
        self.cpu = seen[1] - seen[0]


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
        """The rows seen, once there are enough or the time is up."""
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
