"""A sender that uses librdkafka: it supports secured listeners, with one call per message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.kafka.librdkafka import LOG
from millstream.kafka.record_limits import ANY
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
        self._refused: list[Any] = []
        self._lost_sight = False
        self._producer: Any = None
        self._groups: dict[str, Any] = {}

    def open(self) -> None:
        from confluent_kafka import Producer

        self._refused, self._lost_sight = [], False
        told = self._cluster.client(
            **self._kind(),
            **{
                **ANY,
                "partitioner": "murmur2_random",
                "compression.type": "lz4",
                "linger.ms": "5",
                "batch.num.messages": "20000",
                "batch.size": "1000000",
                "queue.buffering.max.messages": "1000000",
                "queue.buffering.max.kbytes": "524288",
            },
        )
        heard = {"error_cb": self._hear, "on_delivery": self._hear_of}
        self._producer = Producer({**told, **heard, "delivery.report.only.error": True}, logger=LOG)
        if self._name is not None:
            self._producer.init_transactions(CALL_SECONDS)

    def _kind(self) -> dict[str, str]:
        if self._name is None:
            return {"enable.idempotence": "true", "acks": "all"}
        return {"transactional.id": self._name, "transaction.timeout.ms": str(TRANSACTION_MS)}

    def _hear(self, error: Any) -> None:
        """librdkafka says, when it is polled, that it has lost sight of every broker."""
        from confluent_kafka import KafkaError

        self._lost_sight |= error.code() == KafkaError._ALL_BROKERS_DOWN

    def _hear_of(self, error: Any, _message: Any) -> None:
        """Only told of what was not delivered."""
        self._refused.append(error)

    def begin(self) -> None:
        if self._name is not None:
            self._producer.begin_transaction()

    def send(self, topic: str, some: Outgoing, most: int | None = None) -> None:
        produce, poll = self._producer.produce, self._producer.poll
        for message in _messages(some):
            while True:
                try:
                    produce(topic, **message)
                    break
                except BufferError:
                    poll(0.05)
        poll(0)

    def sign(self, offset: GroupOffset) -> None:
        """A librdkafka whose brokers were away may never answer this call, whatever its timeout
        (librdkafka issues 5456, 5511)."""
        from confluent_kafka import KafkaError, KafkaException, TopicPartition

        place = TopicPartition(offset.topic, 0, offset.offset, metadata=offset.metadata)
        send, group = self._producer.send_offsets_to_transaction, self._group(offset.group)
        try:
            bounded(lambda: send([place], group, CALL_SECONDS), 2 * CALL_SECONDS)
        except TimeoutError as error:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, str(error))) from error

    def _group(self, name: str) -> Any:
        """A group without members, as librdkafka wants to be told of it: by a consumer."""
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
        if self._refused:
            raise KafkaException(self._refused[0])
        if left:
            said = f"{left} records without an answer"
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, said))

    def lost_sight(self) -> bool:
        self._producer.poll(0)
        return self._lost_sight

    def finish(self) -> None:
        self.close()

    def close(self) -> None:
        if self._producer is not None:
            self._producer.purge()
        self._producer = None


def _messages(some: Outgoing) -> list[dict[str, Any]]:
    """One by one, as librdkafka takes them."""
    found: list[dict[str, Any]] = [{"value": value} for value in some.values.to_pylist()]
    if some.keys is not None:
        for message, key in zip(found, some.keys.to_pylist(), strict=True):
            message["key"] = key
    if some.stamps is not None:
        for message, stamp in zip(found, some.stamps.tolist(), strict=True):
            if stamp >= 0:
                message["timestamp"] = stamp
    if some.own is not None or some.common:
        for message, own in zip(found, some.own or [[]] * len(found), strict=True):
            message["headers"] = [*own, *some.common]
    return found
