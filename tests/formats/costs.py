"""Measures the cost of decoding hostile records: memory above the input and CPU time.

`python -m tests.formats.costs <target> <way>,… <size> …` prints one JSON object per input, way and
size: one large record `alone` or `among` ordinary ones, or the same bytes as `many` small records.
Each is decoded in a forked process with limits of address space and CPU time.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from tests.formats.hostile import Target, targets

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MANY = 1 << 10
ROOM = 6 << 30
SECONDS = 60
_AROUND = 1100


def values_of(target: Target, name: str, size: int, way: str) -> pa.Array:
    """Hostile records with this total size, with ordinary records before, between and after."""
    if way == "alone":
        return pa.array([target.hostile[name](size)], pa.binary())
    normal = [target.normal] * _AROUND
    if way == "among":
        return pa.array([*normal, target.hostile[name](size), *normal], pa.binary())
    few = size // MANY
    hostile = [target.hostile[name](MANY + n % 7) for n in range(few)]
    mixed = [one for record in hostile for one in (target.normal, record)]
    return pa.array([*normal[:-few], *mixed, *normal], pa.binary())


def measured(target: Target, values: pa.Array) -> dict[str, Any]:
    """Peak memory above that of the input, CPU seconds, and rows; `error` if the process failed."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        code = 1
        try:
            os.close(reading)
            os.write(writing, json.dumps(_decoded(target, values)).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        report = pipe.read()
    _, status = os.waitpid(child, 0)
    return json.loads(report) if report else {"error": f"ended with status {status}"}


def _decoded(target: Target, values: pa.Array) -> dict[str, Any]:
    resource.setrlimit(resource.RLIMIT_AS, (ROOM, ROOM))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    try:
        made = target.format.decode(values, target.schema)
    except MemoryError:
        return {"error": "out of memory"}
    seconds = time.process_time() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"seconds": seconds, "memory": (peak - before) << 10, "good": int(made.good.size),
            "bad": int(made.bad.size)}  # fmt: skip


def costs(of: str, ways: Sequence[str], sizes: Sequence[int]) -> Iterator[dict[str, Any]]:
    target = targets()[of]
    target.format.decode(pa.array([target.normal] * 100), target.schema)
    for name in target.hostile:
        for way in ways:
            for size in sizes:
                values = values_of(target, name, size, way)
                yield {"input": name, "way": way, "size": size, "rows": len(values),
                       "bytes": values.nbytes, **measured(target, values)}  # fmt: skip


if __name__ == "__main__":
    for found in costs(sys.argv[1], sys.argv[2].split(","), [int(size) for size in sys.argv[3:]]):
        print(json.dumps(found), flush=True)
