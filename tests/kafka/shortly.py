"""Short words for what most tests of the log do."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millstream.kafka.admin.topics import Topics
from millstream.kafka.clients.consuming.consumer import Consumer
from millstream.kafka.clients.producing.producer import Producer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from millstream.kafka.records import Record


@dataclass(frozen=True)
class Log:
    address: str

    @property
    def topics(self) -> Topics:
        return Topics(self.address)

    def fill(self, topic: str, values: Iterable[bytes], **producer: Any) -> None:
        with Producer(self.address, **producer) as sender:
            sender.send_many(topic, values)

    def consumer(self, *topics: str, **options: Any) -> Consumer:
        return Consumer(*topics, kafka=self.address, **options)

    def read(self, *topics: str, **options: Any) -> list[Record]:
        with self.consumer(*topics, until_end=True, **options) as consumer:
            return list(consumer)

    def values(self, *topics: str, **options: Any) -> list[bytes | None]:
        return [record.value for record in self.read(*topics, **options)]


def eventually(true: Callable[[], bool], *, within: float = 20) -> bool:
    """Wait until a condition is true; fail after `within` seconds."""
    until = time.monotonic() + within
    while not true():
        assert time.monotonic() < until, f"not within {within} seconds"
        time.sleep(0.05)
    return True
