"""What became of the records that were sent: counted, and never forgotten in silence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, Message

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.errors import MillstreamError
    from millstream.kafka.librdkafka import Link

_WITHDRAWN = {KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT}


@dataclass(frozen=True, slots=True)
class Delivery:
    """What became of one record: where it rests, or (`error`) why it does not."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    error: str | None


class Deliveries:
    """Hears the client's reports; keeps the failures until they are raised."""

    def __init__(self, link: Link, tell: Callable[[Delivery], None] | None) -> None:
        self.failed = 0
        self.withdrawn = 0
        self._link, self._tell = link, tell
        self._untold = 0
        self._first: MillstreamError | None = None

    def report(self, error: KafkaError | None, message: Message) -> None:
        """One record is in the log, or is not."""
        if error is not None and error.code() in _WITHDRAWN:
            self.withdrawn += 1
        elif error is not None:
            self._note(self._link.failure(error, f"delivering to {message.topic()}"))
        if self._tell is not None:
            self._tell(_delivery(error, message))

    def raise_failures(self) -> None:
        """Raise what failed since the last call, with its number and first cause."""
        first, count = self._first, self._untold
        self._first, self._untold = None, 0
        if first is not None:
            raise type(first)(
                f"{count} sent {'record was' if count == 1 else 'records were'} not delivered",
                got=f"{first.need}; {first.got}" if first.got else first.need,
                do=first.do or "send again what is missing",
            )

    def _note(self, failure: MillstreamError) -> None:
        self.failed += 1
        self._untold += 1
        if self._first is None:
            self._first = failure


def _delivery(error: KafkaError | None, message: Message) -> Delivery:
    offset, partition = message.offset(), message.partition()
    return Delivery(
        topic=message.topic() or "",
        partition=-1 if partition is None else partition,
        offset=-1 if offset is None else offset,
        key=message.key(),
        value=message.value(),
        error=None if error is None else error.str(),
    )
