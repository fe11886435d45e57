"""The input of the fault tests: seeded rows in a real topic, with all that a topic may hold.

Times rise in each partition, at most three seconds out of order; some ids occur twice in their
partition, with different amounts; some records are not JSON; some are in an aborted transaction.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

PARTITIONS = 4
_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
_ABORTED = 10**9


@dataclass
class Feed:
    """One topic and the seed of all its rows."""

    kafka: str
    topic: str
    seed: int
    keys: int = 7
    _round: int = 0
    _ids: int = 0
    _random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def make_topic(self) -> None:
        """Create the topic."""
        admin = AdminClient({"bootstrap.servers": self.kafka})
        for future in admin.create_topics([NewTopic(self.topic, PARTITIONS, 1)]).values():
            future.result()

    def send(self, rows: int = 40) -> None:
        """Send one more round: rows in every partition, seven seconds later in time."""
        producer = Producer({"bootstrap.servers": self.kafka, "linger.ms": 5})
        for partition in range(PARTITIONS):
            for value in self._values(rows):
                producer.produce(self.topic, value, partition=partition)
        assert producer.flush(60) == 0
        self._round += 1

    def send_aborted(self) -> None:
        """Send rows in a transaction and abort it."""
        producer = Producer({"bootstrap.servers": self.kafka, "transactional.id": self.topic})
        producer.init_transactions(60)
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            row = self._row(_ABORTED + partition, 0)
            producer.produce(self.topic, json.dumps(row).encode(), partition=partition)
        producer.flush(60)
        producer.abort_transaction(60)

    def _values(self, rows: int) -> list[bytes]:
        values: list[bytes] = []
        for place in range(rows):
            self._ids += 1
            row = self._row(self._ids, place / rows * 7)
            values.append(json.dumps(row).encode())
            if self._random.random() < 0.1:
                values.append(json.dumps({**row, "amount": -1}).encode())
        values.insert(self._random.randrange(len(values)), b'{"id": ' + str(self._ids).encode())
        return values

    def _row(self, number: int, second: float) -> dict[str, Any]:
        late = self._random.random() * 3
        at = _BEGIN + timedelta(seconds=self._round * 7 + second - late)
        return {
            "id": number,
            "key": self._random.randrange(self.keys),
            "amount": self._random.randrange(1000),
            "ts": at.isoformat(timespec="microseconds"),
        }
