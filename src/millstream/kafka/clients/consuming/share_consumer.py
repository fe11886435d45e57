"""`ShareConsumer`: reads topics as queues; each record is locked, processed and acknowledged."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Self

from confluent_kafka import AcknowledgeType, KafkaError, KafkaException, Message

from millstream.duration import Duration, positive_micros
from millstream.errors import InvalidInput, MillstreamError
from millstream.kafka.admin.topic_info import slots_of
from millstream.kafka.clients.client_settings import ClientSetting, client_settings
from millstream.kafka.clients.consuming.consumer_options import checked_count, checked_topics
from millstream.kafka.clients.consuming.share_settings import apply_settings, share_settings
from millstream.kafka.librdkafka import ANSWER_TIME, Link, close_at_exit
from millstream.kafka.names import check_group
from millstream.kafka.record_limits import READ_ANY_SIZE
from millstream.kafka.records import Record, from_message
from millstream.kafka.settings import Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import TracebackType

    from millstream.kafka.positions import Slot

_WAIT = 0.2
_ACKNOWLEDGE_SECONDS = 1.0
_ACCEPT, _RELEASE, _REJECT = (
    AcknowledgeType.ACCEPT,
    AcknowledgeType.RELEASE,
    AcknowledgeType.REJECT,
)


@dataclass(frozen=True, slots=True)
class SharedRecord(Record):
    """One record of a queue; `deliveries` counts its deliveries, this one included."""

    deliveries: int = 1


@dataclass(frozen=True, slots=True)
class _Locked:
    """A record that is locked for this consumer, and until when."""

    message: Message
    until: float

    @property
    def position(self) -> tuple[str, int, int]:
        return self.message.topic(), self.message.partition(), self.message.offset()  # type: ignore[return-value]


class ShareConsumer:
    """Reads topics as a queue: each record is delivered to one member of the group.

        with ShareConsumer("jobs", group="workers") as queue:
            for record in queue:
                work(record)

    Any number of members may share a partition. A record is locked for the member it is delivered
    to. It is acknowledged when the next one is requested, or at once by `acknowledge(record)`;
    `release(record)` makes it available to all members, `reject(record)` ends its delivery. If its
    lock expires (`lock`), or its member dies or fails with an exception, the record is
    redelivered, later and out of order, up to `attempts` times in all. Records that were fetched
    and not delivered are released when the consumer is closed.

    A new group starts at `start`, "start" or "end". `start`, `lock`, `attempts` and `isolation`
    are settings of the group: the last member that passes them decides for all. By default `lock`
    and `attempts` are unchanged (Kafka's defaults are 30 seconds and 5). `most` is about how many
    records are fetched at once; all of them are locked, so fetch few if processing is slow.
    """

    def __init__(
        self,
        *topics: str,
        group: str,
        kafka: str | Cluster | None = None,
        start: Literal["start", "end"] = "start",
        lock: Duration | None = None,
        attempts: int | None = None,
        most: int = 100,
        isolation: Literal["read_committed", "read_uncommitted"] = "read_committed",
        patience: Duration = "30 seconds",
        settings: Mapping[str, ClientSetting] | None = None,
    ) -> None:
        self.topics = checked_topics(topics)
        self.group = check_group(group)
        group_settings = share_settings(
            start=start, lock=lock, attempts=attempts, isolation=isolation
        )
        config = {
            "group.id": self.group,
            "share.acknowledgement.mode": "explicit",
            "max.poll.records": str(checked_count(most, "most")),
            **READ_ANY_SIZE,
            **client_settings(settings),
        }
        self._patience = positive_micros(patience, what="patience") / 1e6
        self._link = Link(Cluster.resolve(kafka))
        slots_of(self._link, self.topics)
        self._limits = apply_settings(self._link, self.group, group_settings)
        self._client = self._link.share_consumer(config)
        self._close_client = close_at_exit(self, self._client.close)
        self._client.subscribe(list(self.topics))
        self._fetched: deque[_Locked] = deque()
        self._current: _Locked | None = None
        self._unsent = 0
        self._expired: set[Slot] = set()
        self._sent_at = time.monotonic()
        self._answered_at = time.monotonic()
        self._stopped = threading.Event()
        self._closed = False

    @property
    def lock(self) -> float:
        """Seconds for which a record is locked for the member it is delivered to."""
        return self._limits.lock

    @property
    def attempts(self) -> int:
        """How often a record is delivered at most."""
        return self._limits.attempts

    def __iter__(self) -> Iterator[SharedRecord]:
        """Records one at a time, until `stop()`."""
        self._check_open()
        while not self._stopped.is_set():
            self._accept_current()
            if not self._fetched:
                self._fetch()
                continue
            record = self._fetched[0]
            valid = time.monotonic() <= record.until
            if not valid:
                self._acknowledge(record, _RELEASE)  # another member may have it by now
            self._fetched.popleft()
            if valid:
                self._current = record
                yield _shared(record.message)

    def acknowledge(self, record: Record) -> None:
        """The record is processed; returns when the cluster has confirmed it.

        Raises:
            MillstreamError: its lock has expired, so it will be redelivered.
        """
        self._settle(record, _ACCEPT)

    def release(self, record: Record) -> None:
        """Make it available to all members again."""
        self._settle(record, _RELEASE)

    def reject(self, record: Record) -> None:
        """The record cannot be processed: never deliver it again."""
        self._settle(record, _REJECT)

    def stop(self) -> None:
        """End the loop over records; may be called from another thread."""
        self._stopped.set()

    def close(self) -> None:
        """Acknowledge processed records, release the others, and leave the group."""
        if self._closed:
            return
        self._stopped.set()
        try:
            self._accept_current()
            self._send()
            for record in self._fetched:
                self._acknowledge(record, _RELEASE)
            self._fetched.clear()
            self._send()
        finally:
            self._closed = True
            self._close_client.detach()
            self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if problem is not None and self._current is not None:
            self._fetched.appendleft(self._current)
            self._current = None
        try:
            self.close()
        except MillstreamError as second:
            if problem is None:
                raise
            problem.add_note(f"while closing the consumer: {second}")

    def _settle(self, record: Record, how: AcknowledgeType) -> None:
        self._check_open()
        current = self._current
        if current is None or current.position != (record.topic, record.partition, record.offset):
            raise InvalidInput(
                "this needs the last record delivered, once",
                got=f"offset {record.offset} of {record.topic}/{record.partition}",
                do="acknowledge, release or reject each record before requesting the next one",
            )
        self._current = None
        self._acknowledge(current, how)
        self._send()

    def _accept_current(self) -> None:
        """Accept the current record; acknowledgements are sent at most once per second."""
        if self._current is not None:
            self._acknowledge(self._current, _ACCEPT)
            self._current = None
        waited = time.monotonic() - self._sent_at
        if self._unsent and waited > min(_ACKNOWLEDGE_SECONDS, self.lock / 4):
            self._send()

    def _acknowledge(self, record: _Locked, how: AcknowledgeType) -> None:
        """Add to the next request; releasing a record whose lock has expired may be refused.

        A refusal undoes all acknowledgements of the partition in the same request, so those that
        may be refused go into a separate request.
        """
        expired = how == _RELEASE and time.monotonic() > record.until
        if expired != bool(self._expired):
            self._send()
        self._client.acknowledge(record.message, how)
        self._unsent += 1
        if expired:
            self._expired.add(record.position[:2])

    def _send(self) -> None:
        """Send the acknowledgements, and return when the cluster has confirmed them."""
        if not self._unsent:
            return
        self._unsent, self._sent_at = 0, time.monotonic()
        expired, self._expired = self._expired, set()
        try:
            answers = self._client.commit_sync(ANSWER_TIME)
        except KafkaException as failed:
            raise self._link.failure(failed, "acknowledging") from None
        for part, problem in answers.items():
            slot = (part.topic, part.partition)
            if problem is None:
                continue
            if problem.args[0].code() != KafkaError.INVALID_RECORD_STATE:
                raise self._link.failure(problem, "acknowledging")
            if slot not in expired:
                raise MillstreamError(
                    f"records of {slot[0]}/{slot[1]} need to be acknowledged within "
                    f"{self.lock:g} s",
                    got="a lock that has expired: the records are redelivered",
                    do="process faster, fetch fewer at once (most=1), or lock longer (lock=…)",
                )

    def _fetch(self) -> None:
        self._send()
        requested = time.monotonic()
        try:
            messages = list(self._client.poll(_WAIT))
        except KafkaException as failed:
            raise self._link.failure(failed, f"reading {self.topics[0]}") from None
        now = time.monotonic()
        for message in messages:
            error = message.error()
            if error is None:
                self._fetched.append(_Locked(message, requested + self.lock))
            elif not error.retriable():
                raise self._link.failure(error, f"reading {message.topic()}")
        if messages or not self._link.errors.all_down:
            self._answered_at = now
        elif now - self._answered_at > self._patience:
            self._answered_at = now
            self._link.ping()

    def _check_open(self) -> None:
        if self._closed:
            raise InvalidInput("reading needs an open consumer", got="a closed one")


def _shared(message: Message) -> SharedRecord:
    record = from_message(message)
    return SharedRecord(
        record.topic, record.partition, record.offset, record.timestamp, record.key,
        record.value, record.headers, int(message.delivery_count() or 1),
    )  # fmt: skip
