"""A producer in a separate process, which records which rows were acknowledged.

    python writer.py '{"kafka": …, "topic": …, "notes": …, "pause": 0.005}'

It writes rows until stdin ends. A note is `acknowledged ID`, or `unknown ID` for a row whose
delivery failed: that row may be in the log or not. It imports nothing of `millstream`.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TextIO

from confluent_kafka import KafkaError, Message, Producer

PARTITIONS = 4
_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def row(number: int) -> bytes:
    """Row `number`; rows are 10 ms of event time apart."""
    at = _BEGIN + timedelta(milliseconds=10 * number)
    return json.dumps({"id": number, "key": number % 7, "amount": number % 1000,
                       "ts": at.isoformat(timespec="microseconds")}).encode()  # fmt: skip


def wait_for_end(ended: threading.Event) -> None:
    sys.stdin.read()
    ended.set()


def write(kafka: str, topic: str, notes: TextIO, pause: float, ended: threading.Event) -> None:
    producer = Producer({"bootstrap.servers": kafka, "enable.idempotence": True, "linger.ms": 2,
                         "delivery.timeout.ms": 120_000, "socket.timeout.ms": 6000,
                         "log_level": 0, "reconnect.backoff.max.ms": 500})  # fmt: skip

    def reporter(number: int) -> Any:
        def on_delivery(error: KafkaError | None, _message: Message) -> None:
            notes.write(f"{'acknowledged' if error is None else 'unknown'} {number}\n")

        return on_delivery

    number = 0
    while not ended.is_set():
        try:
            producer.produce(topic, row(number), partition=number % PARTITIONS,
                             on_delivery=reporter(number))  # fmt: skip
            number += 1
        except BufferError:
            pass
        producer.poll(0)
        notes.flush()
        time.sleep(pause)
    producer.flush(150)


def main(text: str) -> None:
    arguments = json.loads(text)
    ended = threading.Event()
    threading.Thread(target=wait_for_end, args=(ended,), daemon=True).start()
    with Path(arguments["notes"]).open("w") as notes:
        write(arguments["kafka"], arguments["topic"], notes, arguments["pause"], ended)


if __name__ == "__main__":
    main(sys.argv[1])
    assert not any(name.partition(".")[0] == "millstream" for name in sys.modules)
