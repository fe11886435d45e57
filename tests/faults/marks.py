"""Reads the ledger with a separate client."""

from __future__ import annotations

from typing import NamedTuple

from confluent_kafka import Consumer, TopicPartition

from millstream.sinks.kafka.writer import LEDGER


class Mark(NamedTuple):
    """The batch, the job that wrote it, and its intent."""

    batch: int
    job: str
    intent: str


def mark(kafka: str, pipeline: str) -> Mark | None:
    """The ledger entry of a pipeline, if it has one.

    librdkafka returns the text together with the memory after it, which may not be text, so only
    the words before the last are read.
    """
    reader = Consumer({"bootstrap.servers": kafka, "group.id": f"millstream.ledger.{pipeline}"})
    try:
        [place] = reader.committed([TopicPartition(LEDGER, 0)], timeout=30)
    finally:
        reader.close()
    if place.offset < 0:
        return None
    try:
        plain = str(place.metadata).encode()
    except UnicodeDecodeError as error:
        plain = error.object
    job, intent, end = plain.split(b" ", 2)
    assert end.startswith(b".")
    return Mark(place.offset, job.decode(), intent.decode())
