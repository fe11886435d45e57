"""Feeds that run beside an engine: a paced one for latency, batches for growth."""

from __future__ import annotations

import json
import os
import sys
import time
import uuid

import confluent_kafka
import numpy as np

from benchmarks.nexmark import START_MS

FED_SCHEMA = "auction long, price double, ts timestamp"
PIECE = 50_000
LOOKS = 2_000  # a second, at most: how often a paced feed looks for what is due


class Feed:
    """A topic of one partition: first one record for each of `keys` keys, then batches.

    A batch is one transaction, so that an engine sees all of it or nothing.
    """

    def __init__(self, address: str, topic: str, keys: int, seed: int = 7) -> None:
        self._topic, self._keys, self._sent = topic, keys, 0
        self._random = np.random.default_rng([seed, keys])
        settings = {"bootstrap.servers": address, "linger.ms": 5, "compression.type": "lz4"}
        self._plain = confluent_kafka.Producer(settings)
        self._whole = confluent_kafka.Producer(
            {**settings, "transactional.id": f"feed-{uuid.uuid4().hex[:8]}"}
        )
        self._whole.init_transactions(60)

    def preload(self) -> int:
        """Send every key once, in an order of its own; how many there are."""
        keys = self._random.permutation(self._keys)
        for first in range(0, self._keys, PIECE):
            self._send(self._plain, keys[first : first + PIECE])
            self._plain.flush()
        return self._keys

    def settle(self) -> None:
        """Flush what loading has written, so that batches do not wait for the disk."""
        os.sync()

    def batch(self, rows: int) -> int:
        """Send so many records of keys drawn evenly, all at once."""
        self._whole.begin_transaction()
        self._send(self._whole, self._random.integers(0, self._keys, rows))
        self._whole.commit_transaction(60)
        return rows

    def _send(self, client: confluent_kafka.Producer, keys: np.ndarray) -> None:
        values = [
            {"value": b'{"auction":%d,"price":1.5,"ts":%d}' % (key, START_MS + self._sent + place)}
            for place, key in enumerate(keys.tolist())
        ]
        if client.produce_batch(self._topic, values, partition=0) < len(values):
            raise SystemExit(f"feeding {self._topic} needs room in the producer's queue")
        self._sent += len(values)


def pace(
    address: str, topic: str, *, partitions: int, rate: int, keys: int, start: float, seconds: int
) -> dict[str, float]:
    """Send `rate` records a second from `start` on, each with its scheduled time as event time.

    An open loop: a record that is sent late keeps its scheduled time, so that the delay counts.
    Above 2,000 a second those due within half a millisecond leave together. Says how many were
    sent, how far behind its schedule the latest of them left (`behind`), and how long after its
    schedule the broker had still not taken one (`untaken`), both in seconds.
    """
    client = confluent_kafka.Producer(
        {"bootstrap.servers": address, "linger.ms": 1, "acks": "all", "enable.idempotence": True,
         "queue.buffering.max.messages": 2_000_000}
    )  # fmt: skip
    total, together = rate * seconds, max(1, rate // LOOKS)
    sent, behind, untaken = 0, 0.0, 0.0
    while sent < total:
        last = min(sent + together, total) - 1
        time.sleep(max(0.0, start + last / rate - time.time()))
        now = time.time()
        due = min(total, max(last, int((now - start) * rate)) + 1)
        behind = max(behind, now - start - sent / rate)
        for number in range(sent, due):
            at = round((start + number / rate) * 1000)
            value = b'{"auction":%d,"price":1.5,"ts":%d}' % (number // partitions % keys, at)
            client.produce(topic, value, partition=number % partitions)
        sent = due
        client.poll(0)
        if waiting := len(client):
            untaken = max(untaken, time.time() - start - (sent - waiting) / rate)
    if client.flush(60):
        raise SystemExit(f"pacing {topic} needs a broker that takes everything; it did not")
    return {"sent": sent, "behind": behind, "untaken": untaken}


if __name__ == "__main__":
    where, name, options = sys.argv[1:]
    print(json.dumps(pace(where, name, **json.loads(options))))
