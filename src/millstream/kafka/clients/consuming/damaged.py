"""Record batches that cannot be read: which offsets they hold, and where the log continues.

librdkafka reports a batch with a wrong checksum, or one it cannot decompress, as an error at every
fetch. The error has the first offset; the last one is found by fetching later offsets, since every
offset inside the batch returns the same batch.
"""

from __future__ import annotations

import re
import time
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, Message, TopicPartition

from millstream.errors import DamagedLog, Unavailable
from millstream.kafka.clients.consuming.consumer_options import client_config
from millstream.kafka.librdkafka import Link
from millstream.kafka.positions import bounds
from millstream.kafka.protocol.batch_headers import BadBatch, UnknownFormat, batches
from millstream.kafka.protocol.connection import Connection, parse_address
from millstream.kafka.protocol.fetch import fetch_request, parse_fetch_response
from millstream.kafka.protocol.metadata import available_leaders

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from confluent_kafka import Consumer as Client

    from millstream.kafka.clients.consuming.consumer import Consumer
    from millstream.kafka.positions import Slot
    from millstream.kafka.records import Record
    from millstream.kafka.settings import Cluster

CODES = frozenset({
    KafkaError._BAD_MSG,
    KafkaError._BAD_COMPRESSION,
    KafkaError._UNDERFLOW,
    KafkaError._NOT_IMPLEMENTED,
    KafkaError.INVALID_MSG,
})  # fmt: skip
"""librdkafka's errors for a batch that it cannot read."""

_CRC = re.compile(r"failed CRC32C? check")
_MAGIC = re.compile(r"MagicByte (\d+)")
_FORMAT = "is of format"
_WAIT = 0.2
_PATIENCE = 20.0
_REOPEN_SECONDS = 2.0  # without an answer, after which the client is replaced
_SILENCE_SECONDS = 1.0  # inside a batch of an unknown format the client reports nothing at all
_FAST_FETCH = {"fetch.wait.max.ms": "10", "fetch.error.backoff.ms": "0", "fetch.min.bytes": "1"}


class DamagedBatch(DamagedLog):
    """A batch of records that cannot be read; it holds the offset `first`."""

    def __init__(self, slot: Slot, first: int, why: str) -> None:
        self.slot, self.first, self.why = slot, first, why
        super().__init__(
            f"partition {slot[1]} of {slot[0]} needs to hold batches that can be read",
            got=f"one at offset {first} that {why}",
            do="continue after it with seek(...), or restore it from another replica",
        )


@dataclass(frozen=True)
class LostOffsets:
    """Offsets of one partition that cannot be read: from `first` up to before `next`, and why."""

    partition: int
    first: int
    next: int
    why: str

    def __str__(self) -> str:
        last = self.next - 1
        which = f"offset {self.first}" if last <= self.first else f"offsets {self.first} to {last}"
        return f"partition {self.partition}: {which} cannot be read: the batch {self.why}"


def why(error: KafkaError) -> str:
    """What is wrong with a batch, as the predicate of "the batch ..."."""
    text = error.str()
    if _CRC.search(text):
        return "fails its checksum"
    if magic := _MAGIC.search(text):
        return f"{_FORMAT} {magic[1]}, which is not supported"
    if error.code() == KafkaError._NOT_IMPLEMENTED:
        return "has a compression that is not supported"
    if error.code() == KafkaError._BAD_COMPRESSION:
        return "cannot be decompressed"
    return "is inconsistent"


def lost_offsets(link: Link, damaged: DamagedBatch) -> LostOffsets:
    """The offsets of a damaged batch, so that reading can continue after them.

    Raises:
        Unavailable: the broker stopped answering.
    """
    slot, first = damaged.slot, damaged.first
    next_batch = _end_by_header(link, slot, first)
    if next_batch is not None:
        return LostOffsets(slot[1], first, next_batch, damaged.why)
    end = bounds(link, [slot])[slot][1]
    search = _Search(link, damaged)
    try:
        inside, step = first, 1
        while inside + step < end and search.holds(inside + step):
            inside, step = inside + step, 2 * step
        outside = min(inside + step, end)
        while outside - inside > 1:
            middle = (inside + outside) // 2
            if search.holds(middle):
                inside = middle
            else:
                outside = middle
    finally:
        search.close()
    return LostOffsets(slot[1], first, max(outside, first + 1), damaged.why)


def _end_by_header(link: Link, slot: Slot, first: int) -> int | None:
    """Where the batch at this offset ends, if its checksum is correct and the listener open.

    Fetching by librdkafka takes seconds per offset where a batch decompresses to gigabytes.
    """
    if link.cluster.settings:
        return None
    topic, partition = slot
    try:
        servers = link.cluster.address.split(",")
        with closing(Connection(*parse_address(servers[0]))) as connection:
            leader = available_leaders(connection, topic)[partition]
        with closing(Connection(*leader)) as connection:
            request = fetch_request(topic, [(partition, first)], max_bytes=1, max_wait_ms=100)
            [part] = parse_fetch_response(connection.call(request), topic, [partition])
            found = batches(part.records, end=first + 1)
    except (OSError, KeyError, BadBatch, UnknownFormat):
        return None
    return found[0].last + 1 if found and found[0].base <= first <= found[0].last else None


def skip_damaged(
    consumer: Consumer, cluster: Cluster, on_skip: Callable[[LostOffsets], None]
) -> Iterator[Record]:
    """The records of a consumer without a group; damaged batches are reported and skipped."""
    while True:
        try:
            yield from consumer
        except DamagedBatch as damaged:
            lost = lost_offsets(Link(cluster), damaged)
            on_skip(lost)
            consumer.seek(*damaged.slot, lost.next)
        else:
            return


class _Search:
    """Finds out which batch holds an offset, with a separate client.

    In a damaged batch librdkafka may take other bytes for a batch and then fetch from an offset
    that does not exist, without an error. A client that does not answer is replaced.
    """

    def __init__(self, link: Link, damaged: DamagedBatch) -> None:
        self._link, self._damaged = link, damaged
        self._silent = damaged.why.startswith(_FORMAT)
        self._client = self._open()

    def _open(self) -> Client:
        settings = {**client_config(None, "read_uncommitted", until_end=True), **_FAST_FETCH}
        return self._link.consumer(settings)

    def close(self) -> None:
        self._client.close()

    def holds(self, offset: int) -> bool:
        """Whether the damaged batch holds this offset."""
        until = time.monotonic() + _PATIENCE
        while time.monotonic() < until:
            found = self._fetch(offset)
            if found is not None:
                return found
            if self._silent:
                return True
            self._client.close()
            self._client = self._open()
        raise Unavailable(
            f"finding the end of a damaged batch of {self._damaged.slot[0]} needs its broker to "
            "answer",
            got=f"nothing within {_PATIENCE:g} s",
            do="try again when the cluster is less busy",
        )

    def _fetch(self, offset: int) -> bool | None:
        self._client.assign([TopicPartition(*self._damaged.slot, offset)])
        until = time.monotonic() + (_SILENCE_SECONDS if self._silent else _REOPEN_SECONDS)
        while time.monotonic() < until:
            for message in self._client.consume(1, _WAIT):
                if (found := _is_from_batch(message, self._damaged.first)) is not None:
                    return found
        return None


def _is_from_batch(message: Message, first: int) -> bool | None:
    """Whether a message is about the batch at this offset; None if it is about no batch."""
    error = message.error()
    if error is None or error.code() == KafkaError._PARTITION_EOF:
        return False
    if error.code() not in CODES:
        return None
    begins = message.offset()
    return begins is None or begins < 0 or begins <= first
