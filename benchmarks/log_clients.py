"""The Kafka clients, compared with loops over confluent-kafka: same bytes, same broker, in turns.

They take turns and each round gives one ratio, so that a noisy machine disturbs both sides of
it; the median over the rounds is printed, of the wall clock and of the CPU time of this process
(which others on the machine disturb less). Every way counts what it moved and must agree.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import confluent_kafka

from millstream.kafka.admin.topics import Topics
from millstream.kafka.clients.consuming.consumer import Consumer
from millstream.kafka.clients.producing.producer import Producer
from millstream.testing import broker

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

RECORDS = int(os.environ.get("RECORDS", "400000"))
ROUNDS = int(os.environ.get("ROUNDS", "5"))
PARTITIONS = 4


def produce() -> None:
    """Sending RECORDS keyed records and waiting for every acknowledgement."""
    values, keys = _values(), [b"%d" % (i % 1000) for i in range(RECORDS)]
    with broker() as running:
        address = running.address
        Topics(address).create("bench", partitions=PARTITIONS, retention_bytes=1 << 28)

        def bare() -> int:
            client = confluent_kafka.Producer(_sending(address))
            for key, value in zip(keys, values, strict=True):
                try:
                    client.produce("bench", value, key)
                except BufferError:
                    client.poll(0.05)
                    client.produce("bench", value, key)
            return RECORDS - client.flush()

        def send() -> int:
            with Producer(address) as producer:
                for key, value in zip(keys, values, strict=True):
                    producer.send("bench", value, key=key)
                producer.flush()
                return producer.acknowledged

        def send_many() -> int:
            with Producer(address) as producer:
                producer.send_many("bench", values, keys=keys)
                producer.flush()
                return producer.acknowledged

        _compare(
            "log.produce",
            {"bare produce()": bare, "Producer.send": send, "Producer.send_many": send_many},
        )


def consume() -> None:
    """Reading RECORDS records from the start to the end."""
    with broker() as running:
        address = running.address
        Topics(address).create("bench", partitions=PARTITIONS)
        with Producer(address) as producer:
            keys = [b"%d" % (i % 1000) for i in range(RECORDS)]
            producer.send_many("bench", _values(), keys=keys)

        def bare(**settings: object) -> int:
            client = _reading(address, settings)
            seen = 0
            while seen < RECORDS:
                seen += len(client.consume(50_000, 0.1))
            client.close()
            return seen

        def bare_columns() -> int:
            client = _reading(address, {"fetch.queue.backoff.ms": 10})
            seen = 0
            while seen < RECORDS:
                seen += len([_fields(message) for message in client.consume(50_000, 0.1)])
            client.close()
            return seen

        def batches() -> int:
            with Consumer("bench", kafka=address, until_end=True) as consumer:
                return sum(batch.num_rows for batch in consumer.batches())

        def singly() -> int:
            with Consumer("bench", kafka=address, until_end=True) as consumer:
                return sum(1 for _ in consumer)

        _compare(
            "log.consume",
            {
                "bare consume(), our settings": lambda: bare(**{"fetch.queue.backoff.ms": 10}),
                "bare consume(), its defaults": bare,
                "bare consume() and the fields": bare_columns,
                "Consumer.batches": batches,
                "for record in Consumer": singly,
            },
        )


def start() -> None:
    """Start-up times: `import millstream`, `millstream --help`, a ready broker."""
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "import millstream": [sys.executable, "-c", "import millstream"],
        "millstream --help": [sys.executable, "-m", "millstream.cli.main", "--help"],
    }
    for name, command in commands.items():
        times = [_seconds(lambda it=command: _run(it)) for _ in range(ROUNDS)]  # type: ignore[misc]
        print(f"log.start    {name:<32}{statistics.median(times):8.3f} s")

    def ready() -> None:
        with broker() as running:
            times.append(time.perf_counter() - begun)
            assert running.address

    times = []
    for _ in range(min(3, ROUNDS)):
        begun = time.perf_counter()
        ready()
    print(f"log.start    {'broker ready':<32}{statistics.median(times):8.3f} s")


def _compare(row: str, ways: Mapping[str, Callable[[], int]]) -> None:
    rates: dict[str, list[float]] = {name: [] for name in ways}
    frugality: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(-1, ROUNDS):
        for name, way in ways.items():
            begun, worked = time.perf_counter(), time.process_time()
            moved = way()
            assert moved == RECORDS, f"{name} moved {moved} of {RECORDS} records"
            if turn >= 0:
                rates[name].append(RECORDS / (time.perf_counter() - begun))
                frugality[name].append(RECORDS / (time.process_time() - worked))
    first = next(iter(ways))
    print(f"{row:<13}{'':<32}{'records/s':>12}{'ratio':>8}{'by CPU':>8}")
    for name, found in rates.items():
        print(
            f"{row:<13}{name:<32}{statistics.median(found):12,.0f}"
            f"{_ratio(found, rates[first]):7.2f}×{_ratio(frugality[name], frugality[first]):7.2f}×",
            flush=True,
        )


def _ratio(mine: list[float], theirs: list[float]) -> float:
    return statistics.median(one / other for one, other in zip(mine, theirs, strict=True))


def _values() -> list[bytes]:
    return [
        json.dumps(
            {
                "auction": i % 1000,
                "bidder": i,
                "price": (i % 777) + 0.5,
                "ts": "2026-01-01T00:00:00.000000Z",
                "channel": "apple",
                "url": "https://auctions.example/item?q=1",
            }
        ).encode()
        for i in range(RECORDS)
    ]


def _sending(address: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": address,
        "linger.ms": 5,
        "compression.type": "lz4",
        "acks": "all",
        "enable.idempotence": True,
        "partitioner": "murmur2_random",
        "queue.buffering.max.messages": 500_000,
    }


def _reading(address: str, settings: Mapping[str, object]) -> confluent_kafka.Consumer:
    client = confluent_kafka.Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "bench",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            **settings,
        }
    )
    client.assign([confluent_kafka.TopicPartition("bench", part, 0) for part in range(PARTITIONS)])
    return client


def _fields(message: confluent_kafka.Message) -> tuple[object, ...]:
    return (
        message.error(),
        message.key(),
        message.value(),
        message.partition(),
        message.offset(),
        message.timestamp(),
        message.headers(),
    )


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True)


def _seconds(act: Callable[[], None]) -> float:
    begun = time.perf_counter()
    act()
    return time.perf_counter() - begun
