"""Instances: one operator at one place, and what it did there in a batch.

    a source     one instance per partition
    a step       `take n` per task that takes rows in, `buckets a-b` per part of its state;
                 in the narrow lane both are one instance, on the driver

What `take` gives is what the `buckets` take in: where rows are added up before they are
exchanged, that is fewer than came in. Figures of tasks are their own account of themselves and
count once, however often a task was run.
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from millstream.engine.checkpoint.protocol import StepState
    from millstream.sources.decode import Report

Instance = dict[str, Any]
COUNTS = ("in", "out", "late", "dead", "seconds")
DRIVER = "driver"
MOST = 32  # of one operator, in one batch's facts
OTHERS = "others"


def worker_name() -> str:
    """Where this code runs: on the driver, or in which worker."""
    from pyspark import TaskContext

    return DRIVER if TaskContext.get() is None else f"{socket.gethostname()} {os.getpid()}"


def input_name() -> str:
    """The name of the instance that takes rows in by this Spark task."""
    from pyspark import TaskContext

    task = TaskContext.get()
    return "take 0" if task is None else f"take {task.partitionId()}"


def buckets_name(buckets: tuple[int, int]) -> str:
    """The name of the instance that owns a range of buckets."""
    return f"buckets {buckets[0]}-{buckets[1] - 1}"


def instance(name: str, **counts: float) -> Instance:
    """One instance, here, with what it did; what is not said is none."""
    return {"instance": name, "where": worker_name(), **dict.fromkeys(COUNTS, 0), **counts}


def add(known: dict[str, Instance], one: Instance) -> None:
    """Take in one more account of an instance."""
    before = known.get(one["instance"])
    if before is None:
        known[one["instance"]] = dict(one)
        return
    before["where"] = one["where"]
    if "buckets" in one:
        before["buckets"] = one["buckets"]
    for count in COUNTS:
        before[count] += one[count]


def bounded(instances: Iterable[Instance], most: int = MOST) -> list[Instance]:
    """At most so many, those with the most rows; what the others did, as one."""
    found = list(instances)
    if len(found) <= most:
        return found
    by_rows = sorted(found, key=lambda one: one["in"], reverse=True)
    kept = {id(one) for one in by_rows[: most - 1]}
    others: dict[str, Instance] = {}
    for one in found:
        if id(one) not in kept:
            add(others, {**{name: one[name] for name in ("where", *COUNTS)}, "instance": OTHERS})
    return [*(one for one in found if id(one) in kept), *others.values()]


def source_instances(report: Report) -> list[Instance]:
    """The partitions of a source, with what was read of each in a batch."""
    made = []
    for partition, part in sorted(report.parts.items()):
        made.append({
            "instance": str(partition), "where": part.where, "in": part.rows,
            "out": part.rows - part.bad, "late": 0, "dead": part.bad,
            "seconds": round(part.seconds, 6),
        })  # fmt: skip
    return bounded(made)


def with_state(instances: Iterable[Mapping[str, Any]], state: StepState) -> list[Instance]:
    """The instances of a step with what each remembers after a batch.

    A file of state that lies across several instances is shared out by buckets.
    """
    told = []
    for one in instances:
        buckets = one.get("buckets")
        held = {} if buckets is None else _held(state, buckets[0], buckets[1])
        told.append({**{name: value for name, value in one.items() if name != "buckets"}, **held})
    return told


def _held(state: StepState, low: int, high: int) -> dict[str, int]:
    rows = size = 0.0
    for run in state.runs:
        for segment in run.segments:
            common = min(high, segment.high) - max(low, segment.low)
            if common > 0:
                share = common / (segment.high - segment.low)
                rows, size = rows + segment.rows * share, size + segment.bytes * share
    return {"state_rows": round(rows), "state_bytes": round(size)}
