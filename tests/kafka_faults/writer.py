"""Somebody who writes, in a process of his own, and notes which rows the cluster took.

    python writer.py '{"kafka": …, "topic": …, "notes": …, "pause": 0.005}'

Rows are written until stdin ends. The notes say `taken ID` for a row that was acknowledged and
`unknown ID` for one that ended with an error: that one may be there or not. It imports nothing of
what is judged.
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
    """Row after row a hundredth of a second later, in turn over the partitions."""
    at = _BEGIN + timedelta(milliseconds=10 * number)
    return json.dumps({"id": number, "key": number % 7, "amount": number % 1000,
                       "ts": at.isoformat(timespec="microseconds")}).encode()  # fmt: skip


def listening(ended: threading.Event) -> None:
    sys.stdin.read()
    ended.set()


def write(kafka: str, topic: str, notes: TextIO, pause: float, ended: threading.Event) -> None:
    producer = Producer({"bootstrap.servers": kafka, "enable.idempotence": True, "linger.ms": 2,
                         "delivery.timeout.ms": 120_000, "socket.timeout.ms": 6000,
                         "log_level": 0, "reconnect.backoff.max.ms": 500})  # fmt: skip

    def told(number: int) -> Any:
        def tell(error: KafkaError | None, _message: Message) -> None:
            notes.write(f"{'taken' if error is None else 'unknown'} {number}\n")

        return tell

    number = 0
    while not ended.is_set():
        try:
            producer.produce(topic, row(number), partition=number % PARTITIONS,
                             on_delivery=told(number))  # fmt: skip
            number += 1
        except BufferError:
            pass
        producer.poll(0)
        notes.flush()
        time.sleep(pause)
    producer.flush(150)


def main(question: str) -> None:
    asked = json.loads(question)
    ended = threading.Event()
    threading.Thread(target=listening, args=(ended,), daemon=True).start()
    with Path(asked["notes"]).open("w") as notes:
        write(asked["kafka"], asked["topic"], notes, asked["pause"], ended)


if __name__ == "__main__":
    main(sys.argv[1])
    assert not any(name.partition(".")[0] == "millstream" for name in sys.modules)
