"""Delivery reports: counted, and failures kept until they are raised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, Message

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.errors import MillstreamError
    from millstream.kafka.librdkafka import Link

_PURGED = {KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT}


@dataclass(frozen=True, slots=True)
class Delivery:
    """The delivery of one record: its position in the log, or the `error`."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    error: str | None


class Deliveries:
    """Receives the client's delivery reports; keeps failures until they are raised."""

    def __init__(self, link: Link, on_delivery: Callable[[Delivery], None] | None) -> None:
        self.failed = 0
        self.purged = 0
        self._link, self._on_delivery = link, on_delivery
        self._unraised = 0
        self._first: MillstreamError | None = None

    def report(self, error: KafkaError | None, message: Message) -> None:
        """The report of one record."""
        if error is not None and error.code() in _PURGED:
            self.purged += 1
        elif error is not None:
            self._add(self._link.failure(error, f"delivering to {message.topic()}"))
        if self._on_delivery is not None:
            self._on_delivery(_delivery(error, message))

    def raise_failures(self) -> None:
        """Raise the failures since the last call as one, with their number and first cause."""
        first, count = self._first, self._unraised
        self._first, self._unraised = None, 0
        if first is not None:
            raise type(first)(
                f"{count} sent {'record was' if count == 1 else 'records were'} not delivered",
                got=f"{first.need}; {first.got}" if first.got else first.need,
                do=first.do or "send the missing records again",
            )

    def _add(self, failure: MillstreamError) -> None:
        self.failed += 1
        self._unraised += 1
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
