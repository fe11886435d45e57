"""The errors of reading a topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import KafkaError

from millstream.errors import DamagedLog, DataGone, NotFound, Unavailable
from millstream.kafka.ping import system_at
from millstream.outages import waiting_for

if TYPE_CHECKING:
    from millstream.errors import MillstreamError
    from millstream.kafka.protocol.batch_headers import BadBatch
    from millstream.outages import Notice

GONE = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)
UNKNOWN = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC,
           KafkaError._UNKNOWN_PARTITION)  # fmt: skip


def of(error: KafkaError, topic: str, address: str, gone: DataGone) -> MillstreamError | None:
    """Classify an error of librdkafka: `gone` if the log no longer holds an offset, None if a retry
    may succeed."""
    if error.code() in GONE:
        return gone
    if error.code() in UNKNOWN:
        return unknown(topic, address)
    return None if error.retriable() else unavailable(topic, address, error.str())


def gone(topic: str, partition: int, offset: int) -> DataGone:
    """The log no longer holds an offset."""
    return DataGone(
        f"the job needs {topic}/{partition} from offset {offset} on",
        got="a log that no longer holds it",
        do="start with a fresh --checkpoint, and give the topic a longer retention",
    )


def damaged(topic: str, partition: int, bad: BadBatch) -> DamagedLog:
    """A record batch cannot be read."""
    return DamagedLog(
        f"reading {topic}/{partition} needs an intact record batch at offset {bad.first}",
        got=bad.why,
        do="continue after that batch by `millstream run … --skip-damaged`, or restore the "
        "partition from a replica",
        place=(partition, bad.first, bad.after),
    )


def unknown(topic: str, address: str) -> NotFound:
    """The topic does not exist."""
    return NotFound(
        f"reading needs the topic {topic!r} to exist",
        got=f"no such topic at {address}",
        do=f"create it with `millstream topics create {topic}`",
    )


def waiting(address: str, why: str | None) -> Notice:
    """What a job that waits for Kafka reports."""
    return waiting_for(system_at(address), why or "no answer")


def unavailable(topic: str, address: str, got: str) -> Unavailable:
    """Kafka does not answer."""
    return Unavailable(
        f"reading the topic {topic!r} needs Kafka at {address}",
        got=got,
        do="start it, or choose another with --kafka",
    )
