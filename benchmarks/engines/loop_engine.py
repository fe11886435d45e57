"""A consumer and a producer in a loop, as one writes it by hand: the bound for latency."""

from __future__ import annotations

import json
import threading
from typing import Any

import confluent_kafka

from benchmarks.measure import measured
from benchmarks.processes import main, ready, wait_for_stop


def continuous(address: str, spec: dict[str, Any]) -> dict[str, Any]:
    """Pass rows on until it is stopped."""
    over, running = threading.Event(), threading.Event()
    thread = threading.Thread(target=_loop, args=(address, spec, running, over))
    thread.start()
    running.wait()
    ready()
    with measured() as cost:
        wait_for_stop()
    over.set()
    thread.join()
    return {"wall": cost.wall, "cpu": cost.cpu, "batches": []}


def _loop(
    address: str, spec: dict[str, Any], running: threading.Event, over: threading.Event
) -> None:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": address, "group.id": spec["out"], "auto.offset.reset": "earliest",
         "isolation.level": "read_committed"}
    )  # fmt: skip
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": address, "acks": "all", "linger.ms": 0, "enable.idempotence": True}
    )
    consumer.subscribe([spec["topic"]], on_assign=lambda *_: running.set())
    while not over.is_set():
        message = consumer.poll(0.1)
        producer.poll(0)
        if message is None or message.error():
            continue
        row = json.loads(message.value() or b"{}")
        if row["auction"] != 3:
            made = {"auction": row["auction"], "euros": row["price"] * 0.9, "sent": row["ts"]}
            producer.produce(spec["out"], json.dumps(made).encode())
    producer.flush()
    consumer.close()


if __name__ == "__main__":
    main({"continuous": continuous})
