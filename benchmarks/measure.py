"""Measures wall time, CPU-seconds, bytes written and memory of a process tree."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass
class Cost:
    """Filled in when the measured block ends."""

    wall: float = 0.0
    cpu: float = 0.0


@contextmanager
def measured() -> Iterator[Cost]:
    """Measure a block; the JVM and Python workers are descendants and count.

    A process that ends inside the block leaves its CPU time in its parent's `children_*`,
    which is counted too.
    """
    cost = Cost()
    cpu, began = tree_cpu(), time.perf_counter()
    yield cost
    cost.wall = time.perf_counter() - began
    cost.cpu = tree_cpu() - cpu


class Spent:
    """What a process tree has used since a start: time, CPU-seconds, bytes written."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._cpu, self._written = tree_cpu(), tree_written()

    def so_far(self) -> dict[str, float]:
        """All figures by name."""
        elapsed = time.perf_counter() - self._began
        return {"elapsed": elapsed, "cpu": tree_cpu() - self._cpu,
                "written": tree_written() - self._written}  # fmt: skip


def tree_cpu(pid: int | None = None) -> float:
    """CPU-seconds a process (this one) and its descendants, living and dead, have used."""
    total = 0.0
    for process in _tree(psutil.Process(pid)):
        with suppress(psutil.Error):
            total += sum(process.cpu_times()[:4])
    return total


def tree_written() -> int:
    """Bytes this process and its descendants have sent to disks (sockets and pipes apart)."""
    total = 0
    for process in _tree(psutil.Process()):
        with suppress(psutil.Error):
            total += process.io_counters().write_bytes
    return total


@dataclass
class Memory:
    """The largest resident sizes seen, in bytes.

    `tree` is the sum over all processes at one moment: pages that several map count in
    each. `java` is the largest single JVM.
    """

    tree: int = 0
    java: int = 0


@contextmanager
def memory(pid: int, every: float = 0.25) -> Iterator[Memory]:
    """Watch a process and its descendants from a thread for the length of a block."""
    peak, over = Memory(), threading.Event()

    def look() -> None:
        while not over.wait(every):
            with suppress(psutil.Error):
                sizes = [_resident(process) for process in _tree(psutil.Process(pid))]
                peak.tree = max(peak.tree, sum(size for _, size in sizes))
                peak.java = max(peak.java, *(size for name, size in sizes if name == "java"), 0)

    watching = threading.Thread(target=look, daemon=True)
    watching.start()
    try:
        yield peak
    finally:
        over.set()
        watching.join()


def _resident(process: psutil.Process) -> tuple[str, int]:
    try:
        return process.name(), process.memory_info().rss
    except psutil.Error:
        return "", 0


def _tree(root: psutil.Process) -> list[psutil.Process]:
    return [root, *root.children(recursive=True)]
