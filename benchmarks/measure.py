"""What work costs: wall time, and CPU-seconds of this process and all its descendants."""

from __future__ import annotations

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

    A worker that ends inside the block takes its CPU time with it into its parent's
    `children_*`, which is counted too.
    """
    cost = Cost()
    cpu, began = _cpu(), time.perf_counter()
    yield cost
    cost.wall = time.perf_counter() - began
    cost.cpu = _cpu() - cpu


def _cpu() -> float:
    me = psutil.Process()
    total = 0.0
    for process in [me, *me.children(recursive=True)]:
        with suppress(psutil.Error):
            times = process.cpu_times()
            total += times.user + times.system
            if process.pid != me.pid:
                total += times.children_user + times.children_system
    return total
