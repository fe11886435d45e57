"""A seeded Nexmark: persons, auctions and bids in the proportion 1 : 3 : 46, as JSON in Kafka.

Event time runs at `density` events a second from a fixed start. The same seed and count
give the same bytes on every machine; records are made in columns, a block at a time.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import confluent_kafka
import numpy as np
import polars as pl

from millstream.kafka.admin.topics import Topics

if TYPE_CHECKING:
    from collections.abc import Iterator

START_MS = 1_767_225_600_000
BLOCK = 100_000
RUN, RUNS = 2_000, 10
SHARES = {"persons": 1, "auctions": 3, "bids": 46}
BID_SCHEMA = "auction long, bidder long, price double, channel string, url string, ts timestamp"
_CHANNELS = np.array(["Apple", "Google", "Facebook", "Baidu", "channel-17", "channel-4242"])
_STATES = np.array(["OR", "ID", "CA", "WA", "AZ", "WY"])
_NAMES = np.array(["Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah"])


@dataclass(frozen=True)
class Load:
    """What to generate: the number of events and keys, and the density in event time."""

    events: int
    keys: int = 100_000
    density: int = 100_000
    seed: int = 7

    def name(self, kind: str) -> str:
        """The topic of a kind of events."""
        return f"{kind}-{self.events}-{self.keys}-{self.density}-{self.seed}"


def blocks(load: Load, kind: str) -> Iterator[list[bytes]]:
    """The events of one kind as JSON values."""
    share = sum(SHARES.values())
    count = load.events * SHARES[kind] // share
    rng = np.random.default_rng([load.seed, sorted(SHARES).index(kind)])
    for first in range(0, count, BLOCK):
        ids = np.arange(first, min(first + BLOCK, count), dtype=np.int64)
        at = START_MS + ids * share // SHARES[kind] * 1000 // load.density
        text = _frame(kind, ids, at, rng, load.keys).write_ndjson()
        yield text.encode().splitlines()


def _frame(
    kind: str, ids: np.ndarray, at: np.ndarray, rng: np.random.Generator, keys: int
) -> pl.DataFrame:
    n = len(ids)
    if kind == "bids":
        auction = rng.integers(0, keys, n)
        return pl.DataFrame({
            "auction": auction, "bidder": rng.integers(0, 50_000, n),
            "price": rng.integers(1, 10_000_000, n) / 100,
            "channel": _CHANNELS[rng.integers(0, len(_CHANNELS), n)],
            "url": np.char.add("https://www.nexmark.com/item", (auction % 1000).astype(str)),
            "ts": at,
        })  # fmt: skip
    if kind == "auctions":
        return pl.DataFrame({
            "id": ids, "seller": rng.integers(0, 50_000, n),
            "category": rng.integers(10, 15, n), "initial": rng.integers(1, 100_000, n) / 100,
            "expires": at + rng.integers(1_000, 60_000, n), "ts": at,
        })  # fmt: skip
    return pl.DataFrame({
        "id": ids, "name": _NAMES[rng.integers(0, len(_NAMES), n)],
        "state": _STATES[rng.integers(0, len(_STATES), n)], "ts": at,
    })  # fmt: skip


def run_of(count: int, partitions: int) -> int:
    """How many records in a row go to one partition: few enough that each gets some of any time.

    A partition without records, or with only old ones, holds back every watermark.
    """
    return max(1, min(RUN, count // (partitions * RUNS)))


def fill(address: str, load: Load, kind: str = "bids", partitions: int = 4) -> tuple[str, float]:
    """Make and fill the topic of a load, unless it is there in full; its name and events/s."""
    name, topics = load.name(kind), Topics(address)
    topics.create(name, partitions=partitions, exists_ok=True)
    wanted = load.events * SHARES[kind] // sum(SHARES.values())
    have = sum(topics.offsets(name, at="end").values())
    if have == wanted:
        return name, 0.0
    if have:
        raise SystemExit(f"the topic {name} needs {wanted} records; got {have}; delete it")
    began = time.perf_counter()
    client = confluent_kafka.Producer(
        {"bootstrap.servers": address, "linger.ms": 20, "compression.type": "lz4",
         "batch.size": 1_000_000, "queue.buffering.max.messages": 2_000_000}
    )  # fmt: skip
    turn, size = 0, run_of(wanted, partitions)
    for values in blocks(load, kind):
        for first in range(0, len(values), size):
            _send(client, name, values[first : first + size], turn % partitions)
            turn += 1
    if client.flush(120):
        raise SystemExit(f"filling {name} needs a broker that takes everything; it did not")
    return name, wanted / (time.perf_counter() - began)


def _send(client: confluent_kafka.Producer, topic: str, values: list[bytes], place: int) -> None:
    while len(client) > 1_000_000:
        client.poll(0.05)
    messages = [{"value": value} for value in values]
    if client.produce_batch(topic, messages, partition=place) < len(messages):
        raise SystemExit(f"filling {topic} needs room in the producer's queue; it was full")
    client.poll(0)
