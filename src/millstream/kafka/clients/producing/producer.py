"""`Producer`: appends records to topics, with or without transactions."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Self

from confluent_kafka import KafkaException

from millstream.duration import Duration, positive_micros
from millstream.errors import InvalidInput, MillstreamError, Unavailable
from millstream.kafka.admin.topic_info import described
from millstream.kafka.clients.client_settings import ClientSetting, client_settings
from millstream.kafka.clients.producing.delivery_reports import Deliveries, Delivery
from millstream.kafka.clients.producing.producer_options import Acks, rows, safety, throughput
from millstream.kafka.clients.producing.transactions import Transactions
from millstream.kafka.librdkafka import Link
from millstream.kafka.names import check_topic
from millstream.kafka.partitioning import IN_LIBRDKAFKA, Named, Partitioner, chooser
from millstream.kafka.record_limits import ANY_SIZE, UNCHECKED_BYTES, RecordLimits
from millstream.kafka.records import Headers, Value, encode, encode_headers, encode_key, sent_at
from millstream.kafka.settings import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from datetime import datetime
    from types import TracebackType

    from millstream.kafka.clients.consuming.consumer import Consumer

_CACHE_SECONDS = 60.0  # of the number of partitions
_POLL_EVERY = 1024  # records
_LARGE = UNCHECKED_BYTES // 2


class Producer:
    """Appends records to topics.

        with Producer() as producer:
            producer.send("bids", {"auction": 7, "price": 5.0}, key="7")

    Records with a key go to the partition of that key, in the order of sending; those without
    one are distributed over all partitions. `acks="all"` waits for every in-sync replica, 1 for
    the leader, and 0 does not wait: losses go unnoticed. Retries of an idempotent producer (the
    default with `acks="all"`) neither duplicate nor reorder records. Sending returns at once; the
    next `flush` or `close` raises if records could not be delivered. Sending creates no topics.

    With `transactional_id` records are sent inside `with producer.transaction():`.
    `on_delivery` is called with a `Delivery` for each record, while sending and flushing.
    """

    def __init__(
        self,
        kafka: str | Cluster | None = None,
        *,
        acks: Acks = "all",
        idempotent: bool | None = None,
        partitioner: Partitioner | Named = "murmur2",
        linger: Duration = "5 ms",
        compression: str = "lz4",
        transactional_id: str | None = None,
        on_delivery: Callable[[Delivery], None] | None = None,
        settings: Mapping[str, ClientSetting] | None = None,
    ) -> None:
        self._choose = chooser(partitioner)
        self.idempotent = acks == "all" if idempotent is None else idempotent
        config = {
            **throughput(linger, compression),
            **safety(acks, transactional_id, idempotent=self.idempotent),
            "partitioner": IN_LIBRDKAFKA.get(str(partitioner), "murmur2_random"),
            **ANY_SIZE,
            **client_settings(settings),
        }
        self._counts: dict[str, tuple[int, float]] = {}
        self._sent = 0
        self._closed = False
        self._link = Link(Cluster.resolve(kafka))
        self._limits = RecordLimits(self._link)
        self._deliveries = Deliveries(self._link, on_delivery)
        self._client = self._link.producer(
            config,
            on_delivery=self._deliveries.report,
            **{"delivery.report.only.error": on_delivery is None},
        )
        self._transactions = (
            None if transactional_id is None else Transactions(self._client, self._link)
        )
        self._ready = self._transactions is None

    @property
    def sent(self) -> int:
        """How many records were sent."""
        return self._sent

    @property
    def acknowledged(self) -> int:
        """How many are acknowledged (with `acks=0`: written to the connection)."""
        self._serve(lambda: self._client.poll(0))
        not_delivered = self._deliveries.failed + self._deliveries.purged
        return max(0, self._sent - not_delivered - len(self._client))

    @property
    def failed(self) -> int:
        """How many could not be delivered, without those of aborted transactions."""
        return self._deliveries.failed

    def send(
        self,
        topic: str,
        value: Value,
        *,
        key: bytes | str | None = None,
        partition: int | None = None,
        timestamp: datetime | int | None = None,
        headers: Headers | None = None,
    ) -> None:
        """Append one record: bytes, text, a mapping (as JSON), or None (a tombstone).

        Raises:
            NotFound: the topic does not exist.
            InvalidInput: a value, key, partition, timestamp or header is invalid, or the record
                is larger than the topic accepts (`max.message.bytes`).
            Unavailable: the cluster does not answer when a topic is first used.
        """
        if not self._ready or topic not in self._counts:
            self._prepare(topic)
        plain = value if value.__class__ is bytes else encode(value)
        name = key if key.__class__ is bytes else encode_key(key)
        place = -1
        if partition is not None:
            place = self._existing(topic, partition)
        elif self._choose is not None:
            place = self._choose(name, self._count(topic))
        moment = 0 if timestamp is None else sent_at(timestamp)
        named = None if headers is None else encode_headers(headers)
        if _is_large(plain, name) or named:
            self._check_size(topic, plain, name, named)
        self._append(topic, plain, name, place, moment, named)
        self._sent += 1
        if not self._sent % _POLL_EVERY:
            self._serve(lambda: self._client.poll(0))

    def send_many(
        self,
        topic: str,
        values: Iterable[Value],
        *,
        keys: Iterable[bytes | str | None] | None = None,
        timestamps: Iterable[datetime | int | None] | None = None,
    ) -> int:
        """Append many records in order, and return how many.

        Raises:
            InvalidInput: there are not as many keys or timestamps as values (nothing is sent if
                the lengths are known), or one of them is invalid (those before it are sent).
        """
        self._prepare(topic)
        produce, choose, before, count = self._client.produce, self._choose, self._sent, 0
        partitions = self._count(topic)
        try:
            for value, key, timestamp in rows(values, keys, timestamps):
                plain: Any = value if value.__class__ is bytes else encode(value)
                name: Any = key if key.__class__ is bytes else encode_key(key)
                moment = 0 if timestamp is None else sent_at(timestamp)
                place = -1 if choose is None else choose(name, partitions)
                if _is_large(plain, name):
                    self._check_size(topic, plain, name)
                try:
                    produce(topic, plain, name, place, None, None, moment)
                except BufferError:
                    self._append(topic, plain, name, place, moment, None)
                count += 1
        except KafkaException as refused:
            raise self._link.failure(refused, f"sending to {topic}") from None
        finally:
            self._sent = before + count
        self._serve(lambda: self._client.poll(0))
        return count

    def flush(self, timeout: Duration = "30 seconds") -> None:
        """Return when every record sent so far is acknowledged.

        Raises:
            Fenced: another producer uses this transactional id.
            Unavailable: some are not acknowledged after `timeout`; they are retried for the rest
                of the delivery timeout (two minutes).
            MillstreamError: some could not be delivered; the message has their number and
                the first cause. Each failure is raised once.
        """
        wait = positive_micros(timeout, what="timeout") / 1e6
        left = self._serve(lambda: self._client.flush(wait))
        self._deliveries.raise_failures()
        if left:
            raise Unavailable(
                f"{left} sent {'record needs' if left == 1 else 'records need'} an "
                f"acknowledgement from Kafka at {self._link.cluster.address}",
                got=f"none within {timeout}",
                do="flush again when Kafka answers",
            )

    def close(self) -> None:
        """Flush and close; a second call does nothing.

        Raises:
            MillstreamError: as `flush` does; records not acknowledged by then are dropped.
        """
        if self._closed:
            return
        self._closed, self._ready = True, False
        try:
            self.flush()
        finally:
            self._client.purge()
            with suppress(KafkaException):
                self._client.poll(0)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All records sent inside become visible together, or, after an exception, never.

            with producer.transaction():
                producer.send("hot", b"...")
                producer.send_offsets(consumer)

        Raises:
            Fenced: another producer uses this transactional id.
        """
        transactions = self._transactions
        if transactions is None or self._closed:
            raise InvalidInput(
                "a transaction needs an open producer with a transactional_id",
                got="a closed one" if self._closed else "one without",
                do='create it with Producer(transactional_id="...")',
            )
        transactions.begin()
        self._ready = True
        try:
            yield
        except BaseException as problem:
            self._abort(transactions, problem)
            raise
        finally:
            self._ready = False
        transactions.commit()

    def send_offsets(self, consumer: Consumer) -> None:
        """Commit the consumer's positions with the open transaction.

        A position is the offset after the last record delivered.
        """
        if self._transactions is None or not self._transactions.begun:
            raise InvalidInput(
                "send_offsets needs an open transaction",
                got="none",
                do="call it inside `with producer.transaction():`",
            )
        group = consumer.group_metadata()
        if positions := consumer.position():
            self._transactions.add_offsets(positions, group)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except MillstreamError as second:
            if problem is None:
                raise
            problem.add_note(f"while closing the producer: {second}")

    def _serve(self, call: Callable[[], int]) -> int:
        """Call the client, which serves delivery reports and raises fatal errors."""
        try:
            return call()
        except KafkaException as fatal:
            raise self._link.failure(fatal, "sending") from None

    def _append(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int,
        moment: int,
        headers: Any,
    ) -> None:
        """Pass one record to the client; if its queue is full, wait for space."""
        while True:
            try:
                return self._client.produce(
                    topic, value, key, partition, None, None, moment, headers
                )
            except BufferError:
                self._serve(lambda: self._client.poll(0.05))
            except KafkaException as refused:
                raise self._link.failure(refused, f"sending to {topic}") from None

    def _check_size(self, topic: str, value: Any, key: Any, headers: Any = None) -> None:
        parts = [value, key, *(part for pair in headers or () for part in pair)]
        sizes = [len(part) for part in parts if part is not None]
        if sum(sizes) > UNCHECKED_BYTES:
            self._limits.check(topic, sum(sizes))

    def _prepare(self, topic: str) -> None:
        if self._closed:
            raise InvalidInput("sending needs an open producer", got="a closed one")
        if not self._ready:
            raise InvalidInput(
                "a producer with a transactional_id needs to send in a transaction",
                got="a record outside of one",
                do="send inside `with producer.transaction():`",
            )
        self._count(check_topic(topic))

    def _count(self, topic: str) -> int:
        """How many partitions a topic has; refreshed once per minute."""
        now = time.monotonic()
        partitions, read_at = self._counts.get(topic, (0, 0.0))
        if not partitions or now - read_at > _CACHE_SECONDS:
            partitions = self._read_count(topic)
        return partitions

    def _read_count(self, topic: str) -> int:
        partitions = len(described(self._link, [topic])[topic].partitions)
        self._counts[topic] = (partitions, time.monotonic())
        return partitions

    def _existing(self, topic: str, partition: int) -> int:
        whole = isinstance(partition, int) and not isinstance(partition, bool)
        if whole and (
            0 <= partition < self._counts[topic][0] or 0 <= partition < self._read_count(topic)
        ):
            return partition
        raise InvalidInput(
            f"{topic} has partitions 0 to {self._counts[topic][0] - 1}",
            got=f"partition {partition!r}",
            do="use an existing partition, or omit it",
        )

    @staticmethod
    def _abort(transactions: Transactions, problem: BaseException) -> None:
        if sys.is_finalizing():  # the broker will abort it; waiting here might never end
            return
        try:
            transactions.abort()
        except MillstreamError as second:
            problem.add_note(f"while aborting the transaction: {second}")


def _is_large(value: bytes | None, key: bytes | None) -> bool:
    """Whether a record may exceed a topic's limit; a cheap test, made for every record."""
    return (value is not None and len(value) > _LARGE) or (key is not None and len(key) > _LARGE)
