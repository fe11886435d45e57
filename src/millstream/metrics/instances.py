"""Instances: the parallel copies of an operator, and what each did in a batch.

    a source     one instance per partition
    a step       `take n` per task that reads rows, `buckets a-b` per part of its state;
                 in the narrow lane both are one instance, on the driver

The output of `take` is the input of `buckets`: with partial aggregation it has fewer rows than the
input of `take`. A task that ran several times is counted once.
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
    """Where this code runs: the driver, or the host and process id of a worker."""
    from pyspark import TaskContext

    return DRIVER if TaskContext.get() is None else f"{socket.gethostname()} {os.getpid()}"


def input_name() -> str:
    """The name of the instance that reads rows in this Spark task."""
    from pyspark import TaskContext

    task = TaskContext.get()
    return "take 0" if task is None else f"take {task.partitionId()}"


def buckets_name(buckets: tuple[int, int]) -> str:
    """The name of the instance that owns a range of buckets."""
    return f"buckets {buckets[0]}-{buckets[1] - 1}"


def instance(name: str, **counts: float) -> Instance:
    """One instance in this process; counts that are not given are 0."""
    return {"instance": name, "where": worker_name(), **dict.fromkeys(COUNTS, 0), **counts}


def add(known: dict[str, Instance], one: Instance) -> None:
    """Add the counts of an instance."""
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
    """At most `most` instances: those with the most rows, and the sum of the others."""
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
    """The partitions of a source as instances, with the rows of a batch."""
    made = []
    for partition, part in sorted(report.parts.items()):
        made.append({
            "instance": str(partition), "where": part.where, "in": part.rows,
            "out": part.rows - part.bad, "late": 0, "dead": part.bad,
            "seconds": round(part.seconds, 6),
        })  # fmt: skip
    return bounded(made)


def with_state(instances: Iterable[Mapping[str, Any]], state: StepState) -> list[Instance]:
    """The instances of a step with the size of the state of each after a batch.

    The size of a file that spans several instances is divided by buckets.
    """
    found = []
    for one in instances:
        buckets = one.get("buckets")
        size = {} if buckets is None else _state_size(state, buckets[0], buckets[1])
        found.append({**{name: value for name, value in one.items() if name != "buckets"}, **size})
    return found


def _state_size(state: StepState, low: int, high: int) -> dict[str, int]:
    rows = size = 0.0
    for run in state.runs:
        for segment in run.segments:
            common = min(high, segment.high) - max(low, segment.low)
            if common > 0:
                share = common / (segment.high - segment.low)
                rows, size = rows + segment.rows * share, size + segment.bytes * share
    return {"state_rows": round(rows), "state_bytes": round(size)}
