"""What the peers on librdkafka share: its settings, times, a warm-up before the work.

It runs in the peers' own environments: it may import nothing of Millstream.
"""

from __future__ import annotations

import gc
import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.measure import Cost

# A few batches of each partition in turn. Left alone, librdkafka reads a backlog 100,000 records
# ahead in one partition, and the rows of the others come late; with less than a batch the broker
# sends only one partition's.
FETCHING = {"fetch.message.max.bytes": "524288", "queued.min.messages": "1000",
            "fetch.queue.backoff.ms": "10"}  # fmt: skip
PRODUCING = {"compression.type": "lz4", "linger.ms": "20", "batch.size": "1000000",
             "queue.buffering.max.messages": "10000000",
             "queue.buffering.max.kbytes": "4194304"}  # fmt: skip
_UNITS = {"millisecond": 1, "second": 1000}


def milliseconds(text: str) -> int:
    """A duration given as text."""
    number, unit = text.split()
    return int(number) * _UNITS[unit.rstrip("s")]


def moment(at: int) -> str:
    """Milliseconds since 1970 as the check reads them."""
    return datetime.fromtimestamp(at / 1000, UTC).isoformat()


def topics_of(spec: dict[str, Any]) -> list[str]:
    """The topics a work reads: one, or the two of a join."""
    return [spec["topic"], *([spec["other"]] if spec.get("other") else [])]


def drained(
    address: str, spec: dict[str, Any], run: Callable[[str, dict[str, Any]], Cost]
) -> dict[str, float]:
    """Run a work over the topic to warm up on, then over its own; the figures of the latter.

    Python looks for no cycles meanwhile: among the objects of many keys that takes half the time.
    """
    gc.disable()
    run(address, {**spec, "topic": spec["warm"], "other": spec.get("warm_other"),
                  "out": f"warm-{uuid.uuid4().hex[:8]}"})  # fmt: skip
    cost = run(address, spec)
    return {"wall": cost.wall, "cpu": cost.cpu}
