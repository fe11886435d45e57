"""Taking records one by one from a queue: each is locked, worked on, and acknowledged."""

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
from millstream.kafka.clients.consuming.consumer_options import checked_topics
from millstream.kafka.clients.consuming.share_settings import settled, wanted
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
_SEND_EVERY = 1.0
_ACCEPT, _RELEASE, _REJECT = (
    AcknowledgeType.ACCEPT,
    AcknowledgeType.RELEASE,
    AcknowledgeType.REJECT,
)


@dataclass(frozen=True, slots=True)
class SharedRecord(Record):
    """One record of a queue; `deliveries` counts how often it has been handed out, this time
    included."""

    deliveries: int = 1


@dataclass(frozen=True, slots=True)
class _Held:
    """A record that is locked for us, and until when."""

    message: Message
    until: float

    @property
    def place(self) -> tuple[str, int, int]:
        return self.message.topic(), self.message.partition(), self.message.offset()  # type: ignore[return-value]


class ShareConsumer:
    """Takes records from topics as from a queue: each goes to one member of the group.

        with ShareConsumer("jobs", group="workers") as queue:
            for record in queue:
                work(record)

    Any number of members may share a partition. A record is locked for the member it was handed
    to. It is done when the next one is asked for, or at once by `acknowledge(record)`;
    `release(record)` gives it back for somebody else, `reject(record)` drops it for good. What
    is not done when its lock runs out (`lock`), or its member dies or fails with an exception,
    comes again, later and out of order, until it has been handed out `attempts` times. Records
    that were taken and not yet handed out are given back when the consumer is closed.

    `start` says where a new group begins, "start" or "end". `start`, `lock`, `attempts` and
    `isolation` are the group's: the last member that says them decides for all; `lock` and
    `attempts` stay as they are unless said (30 seconds and 5 by Kafka's default). `most` is about
    how many records are taken at once: what is taken is locked for this member, so slow work
    wants few.
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
        if isinstance(most, bool) or not isinstance(most, int) or most < 1:
            raise InvalidInput("most needs a whole number from 1 on", got=repr(most))
        told = wanted(start=start, lock=lock, attempts=attempts, isolation=isolation)
        config = {
            "group.id": self.group,
            "share.acknowledgement.mode": "explicit",
            "max.poll.records": str(most),
            **READ_ANY_SIZE,
            **client_settings(settings),
        }
        self._patience = positive_micros(patience, what="patience") / 1e6
        self._link = Link(Cluster.resolve(kafka))
        slots_of(self._link, self.topics)
        self._rules = settled(self._link, self.group, told)
        self._client = self._link.share_consumer(config)
        self._let_go = close_at_exit(self, self._client.close)
        self._client.subscribe(list(self.topics))
        self._waiting: deque[_Held] = deque()
        self._in_hand: _Held | None = None
        self._unsent = 0
        self._late: set[Slot] = set()
        self._sent_at = time.monotonic()
        self._heard_at = time.monotonic()
        self._stopped = threading.Event()
        self._closed = False

    @property
    def lock(self) -> float:
        """Seconds for which a record is locked for the member it was handed to."""
        return self._rules.lock

    @property
    def attempts(self) -> int:
        """How often a record is handed out at most."""
        return self._rules.attempts

    def __iter__(self) -> Iterator[SharedRecord]:
        """Records one at a time, until `stop()`."""
        self._check_open()
        while not self._stopped.is_set():
            self._finish()
            if not self._waiting:
                self._take()
                continue
            held = self._waiting[0]
            ours = time.monotonic() <= held.until
            if not ours:
                self._mark(held, _RELEASE)  # another has it by now
            self._waiting.popleft()
            if ours:
                self._in_hand = held
                yield _shared(held.message)

    def acknowledge(self, record: Record) -> None:
        """It is done: return when the cluster knows, and it never comes again.

        Raises:
            MillstreamError: its lock had run out, so it comes again, to somebody.
        """
        self._settle(record, _ACCEPT)

    def release(self, record: Record) -> None:
        """Give it back, to be handed out again."""
        self._settle(record, _RELEASE)

    def reject(self, record: Record) -> None:
        """Drop it for good: nobody can work on it."""
        self._settle(record, _REJECT)

    def stop(self) -> None:
        """End the loop over records; may be called from another thread."""
        self._stopped.set()

    def close(self) -> None:
        """What is done is told, what is not is given back; then leave the group."""
        if self._closed:
            return
        self._stopped.set()
        try:
            self._finish()
            self._send()
            for held in self._waiting:
                self._mark(held, _RELEASE)
            self._waiting.clear()
            self._send()
        finally:
            self._closed = True
            self._let_go.detach()
            self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if problem is not None and self._in_hand is not None:
            self._waiting.appendleft(self._in_hand)
            self._in_hand = None
        try:
            self.close()
        except MillstreamError as second:
            if problem is None:
                raise
            problem.add_note(f"while closing the consumer: {second}")

    def _settle(self, record: Record, how: AcknowledgeType) -> None:
        self._check_open()
        held = self._in_hand
        if held is None or held.place != (record.topic, record.partition, record.offset):
            raise InvalidInput(
                "this needs the record that was handed out last, once",
                got=f"offset {record.offset} of {record.topic}/{record.partition}",
                do="settle each record before the next one is asked for",
            )
        self._in_hand = None
        self._mark(held, how)
        self._send()

    def _finish(self) -> None:
        """The record in hand is done; that is told now and then."""
        if self._in_hand is not None:
            self._mark(self._in_hand, _ACCEPT)
            self._in_hand = None
        if self._unsent and time.monotonic() - self._sent_at > min(_SEND_EVERY, self.lock / 4):
            self._send()

    def _mark(self, held: _Held, how: AcknowledgeType) -> None:
        """Note what is to be told; giving back what is no longer ours may well be refused.

        A refusal undoes all that is told of the partition in the same request, so what may be
        refused is never told together with the rest.
        """
        late = how == _RELEASE and time.monotonic() > held.until
        if late != bool(self._late):
            self._send()
        self._client.acknowledge(held.message, how)
        self._unsent += 1
        if late:
            self._late.add(held.place[:2])

    def _send(self) -> None:
        """Tell the cluster what has become of records, and return when it knows."""
        if not self._unsent:
            return
        self._unsent, self._sent_at = 0, time.monotonic()
        late, self._late = self._late, set()
        try:
            answers = self._client.commit_sync(ANSWER_TIME)
        except KafkaException as failed:
            raise self._link.failure(failed, "acknowledging") from None
        for place, problem in answers.items():
            slot = (place.topic, place.partition)
            if problem is None:
                continue
            if problem.args[0].code() != KafkaError.INVALID_RECORD_STATE:
                raise self._link.failure(problem, "acknowledging")
            if slot not in late:
                raise self._ran_out(slot)

    def _ran_out(self, slot: Slot) -> MillstreamError:
        return MillstreamError(
            f"records of {slot[0]}/{slot[1]} need to be acknowledged within {self.lock:g} s",
            got="a lock that had run out: they come again, to whoever asks",
            do="work faster, take fewer at once (most=1), or lock them longer (lock=…)",
        )

    def _take(self) -> None:
        self._send()
        asked = time.monotonic()
        try:
            messages = list(self._client.poll(_WAIT))
        except KafkaException as failed:
            raise self._link.failure(failed, f"reading {self.topics[0]}") from None
        now = time.monotonic()
        for message in messages:
            error = message.error()
            if error is None:
                self._waiting.append(_Held(message, asked + self.lock))
            elif not error.retriable():
                raise self._link.failure(error, f"reading {message.topic()}")
        if messages or not self._link.errors.all_down:
            self._heard_at = now
        elif now - self._heard_at > self._patience:
            self._heard_at = now
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
