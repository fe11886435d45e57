"""A sender that uses librdkafka: it supports secured listeners, with one call per message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.kafka.librdkafka import LOG
from millstream.kafka.record_limits import ANY_SIZE
from millstream.sinks.kafka.sender import CALL_SECONDS, TRANSACTION_MS
from millstream.timeouts import bounded

if TYPE_CHECKING:
    from millstream.kafka.protocol.transactions import GroupOffset
    from millstream.kafka.settings import Cluster
    from millstream.sinks.kafka.messages import Outgoing


class ClientSender:
    """As `Sender`."""

    def __init__(self, cluster: Cluster, name: str | None) -> None:
        self._cluster, self._name = cluster, name
        self._failures: list[Any] = []
        self._disconnected = False
        self._producer: Any = None
        self._groups: dict[str, Any] = {}

    def open(self) -> None:
        from confluent_kafka import Producer

        self._failures, self._disconnected = [], False
        settings = self._cluster.client(
            **self._kind(),
            **{
                **ANY_SIZE,
                "partitioner": "murmur2_random",
                "compression.type": "lz4",
                "linger.ms": "5",
                "batch.num.messages": "20000",
                "batch.size": "1000000",
                "queue.buffering.max.messages": "1000000",
                "queue.buffering.max.kbytes": "524288",
            },
        )
        callbacks = {"error_cb": self._on_error, "on_delivery": self._on_delivery_error}
        self._producer = Producer(
            {**settings, **callbacks, "delivery.report.only.error": True}, logger=LOG
        )
        if self._name is not None:
            self._producer.init_transactions(CALL_SECONDS)

    def _kind(self) -> dict[str, str]:
        if self._name is None:
            return {"enable.idempotence": "true", "acks": "all"}
        return {"transactional.id": self._name, "transaction.timeout.ms": str(TRANSACTION_MS)}

    def _on_error(self, error: Any) -> None:
        """Called while polling, e.g. when librdkafka has lost all brokers."""
        from confluent_kafka import KafkaError

        self._disconnected |= error.code() == KafkaError._ALL_BROKERS_DOWN

    def _on_delivery_error(self, error: Any, _message: Any) -> None:
        """Called for messages that were not delivered."""
        self._failures.append(error)

    def begin(self) -> None:
        if self._name is not None:
            self._producer.begin_transaction()

    def send(self, topic: str, chunk: Outgoing, limit: int | None = None) -> None:
        produce, poll = self._producer.produce, self._producer.poll
        for message in _messages(chunk):
            while True:
                try:
                    produce(topic, **message)
                    break
                except BufferError:
                    poll(0.05)
        poll(0)

    def commit_offset(self, offset: GroupOffset) -> None:
        """As `Sender.commit_offset`. librdkafka may never return from this call after brokers were
        unavailable, whatever the timeout (librdkafka issues 5456, 5511)."""
        from confluent_kafka import KafkaError, KafkaException, TopicPartition

        place = TopicPartition(offset.topic, 0, offset.offset, metadata=offset.metadata)
        send, group = self._producer.send_offsets_to_transaction, self._group(offset.group)
        try:
            bounded(lambda: send([place], group, CALL_SECONDS), 2 * CALL_SECONDS)
        except TimeoutError as error:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, str(error))) from error

    def _group(self, name: str) -> Any:
        """The metadata of a group without members; librdkafka takes it from a consumer."""
        from confluent_kafka import Consumer

        if name not in self._groups:
            reader = Consumer(self._cluster.client(**{"group.id": name}), logger=LOG)
            self._groups[name] = reader.consumer_group_metadata()
            reader.close()
        return self._groups[name]

    def commit(self) -> None:
        from confluent_kafka import KafkaError, KafkaException

        if self._name is not None:
            self._producer.commit_transaction(2 * CALL_SECONDS)
            return
        left = self._producer.flush(3 * CALL_SECONDS)
        if self._failures:
            raise KafkaException(self._failures[0])
        if left:
            said = f"{left} records without an answer"
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, said))

    def disconnected(self) -> bool:
        self._producer.poll(0)
        return self._disconnected

    def finish(self) -> None:
        self.close()

    def close(self) -> None:
        if self._producer is not None:
            self._producer.purge()
        self._producer = None


def _messages(chunk: Outgoing) -> list[dict[str, Any]]:
    """Messages as arguments of `Producer.produce`."""
    found: list[dict[str, Any]] = [{"value": value} for value in chunk.values.to_pylist()]
    if chunk.keys is not None:
        for message, key in zip(found, chunk.keys.to_pylist(), strict=True):
            message["key"] = key
    if chunk.stamps is not None:
        for message, stamp in zip(found, chunk.stamps.tolist(), strict=True):
            if stamp >= 0:
                message["timestamp"] = stamp
    if chunk.own is not None or chunk.common:
        for message, own in zip(found, chunk.own or [[]] * len(found), strict=True):
            message["headers"] = [*own, *chunk.common]
    return found
