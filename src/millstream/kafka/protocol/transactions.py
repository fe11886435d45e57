"""Producing with and without transactions: Produce and the APIs that a transaction needs.

The versions are the last ones before the flexible encoding, which brokers support since 2018;
DescribeTransactions exists since 2021.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from millstream.kafka.protocol.messages import (
    NO_TAGS,
    Api,
    CompactReader,
    Reader,
    Request,
    UnexpectedResponse,
    array,
    compact_array,
    compact_string,
    int32s,
    nullable_string,
    string,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

PRODUCE_V7 = Api(0, 7)
INIT_PRODUCER_ID_V1 = Api(22, 1)
ADD_PARTITIONS_TO_TXN_V1 = Api(24, 1)
ADD_OFFSETS_TO_TXN_V1 = Api(25, 1)
END_TXN_V1 = Api(26, 1)
TXN_OFFSET_COMMIT_V2 = Api(28, 2)
DESCRIBE_TRANSACTIONS_V0 = Api(65, 0, flexible=True)

_ACKS_ALL = -1
_NO_EPOCH = -1


class Identity(NamedTuple):
    """Who produces: the transactional id, if there is one, the producer id and its epoch."""

    transactional_id: str | None
    producer_id: int
    epoch: int

    def encode(self) -> bytes:
        """As the requests of a transaction begin."""
        return string(self.transactional_id or "") + self.encode_producer()

    def encode_producer(self) -> bytes:
        return struct.pack(">qh", self.producer_id, self.epoch)


class GroupOffset(NamedTuple):
    """An offset that a group commits for partition 0 of a topic, and its metadata."""

    group: str
    topic: str
    offset: int
    metadata: str


def produce_request(
    who: Identity, topic: str, partition: int, batch: bytes, timeout_ms: int
) -> Request:
    """Append a record batch to a partition, acknowledged by all in-sync replicas."""
    head = nullable_string(who.transactional_id) + struct.pack(">hi", _ACKS_ALL, timeout_ms)
    return Request(
        PRODUCE_V7,
        b"".join([head, struct.pack(">i", 1), string(topic),
                  struct.pack(">iii", 1, partition, len(batch)), batch]),
    )  # fmt: skip


def parse_produce_response(response: memoryview) -> int:
    """The first error code of a partition, or 0."""
    reader = Reader(response)
    return _first_error(reader, "ihqqq")  # partition, error, base offset, append time, start


def init_producer_id_request(transactional_id: str | None, timeout_ms: int) -> Request:
    """Request a producer id. With a transactional id this fences earlier producers of that id and
    aborts their open transaction."""
    return Request(
        INIT_PRODUCER_ID_V1, nullable_string(transactional_id) + struct.pack(">i", timeout_ms)
    )


def parse_init_producer_id_response(
    response: memoryview, transactional_id: str | None
) -> tuple[int, Identity]:
    """An error code, and the identity to produce with."""
    _, error, producer_id, epoch = Reader(response).fields("ihqh")
    return error, Identity(transactional_id, producer_id, epoch)


def add_partitions_to_txn_request(who: Identity, topic: str, partitions: Iterable[int]) -> Request:
    topics = array([string(topic) + int32s(partitions)])
    return Request(ADD_PARTITIONS_TO_TXN_V1, who.encode() + topics)


def parse_add_partitions_to_txn_response(response: memoryview) -> int:
    """The first error code of a partition, or 0."""
    reader = Reader(response)
    reader.field("i")  # throttle time
    return _first_error(reader, "ih")


def add_offsets_to_txn_request(who: Identity, group: str) -> Request:
    return Request(ADD_OFFSETS_TO_TXN_V1, who.encode() + string(group))


def parse_add_offsets_to_txn_response(response: memoryview) -> int:
    """The error code, or 0."""
    _, error = Reader(response).fields("ih")
    return int(error)


def txn_offset_commit_request(who: Identity, offset: GroupOffset) -> Request:
    """Have the group's coordinator store an offset, which becomes valid with the transaction."""
    partition = struct.pack(">iqi", 0, offset.offset, _NO_EPOCH) + string(offset.metadata)
    return Request(
        TXN_OFFSET_COMMIT_V2,
        string(who.transactional_id or "")
        + string(offset.group)
        + who.encode_producer()
        + array([string(offset.topic) + array([partition])]),
    )


parse_txn_offset_commit_response = parse_add_partitions_to_txn_response


def end_txn_request(who: Identity) -> Request:
    """Commit the transaction."""
    return Request(END_TXN_V1, who.encode() + struct.pack(">b", 1))


parse_end_txn_response = parse_add_offsets_to_txn_response


def describe_transactions_request(transactional_id: str) -> Request:
    return Request(
        DESCRIBE_TRANSACTIONS_V0, compact_array([compact_string(transactional_id)]) + NO_TAGS
    )


def parse_describe_transactions_response(response: memoryview) -> tuple[int, str]:
    """An error code, and the state: `PrepareCommit` until readers can see all of it."""
    reader = CompactReader(response)
    reader.field("i")  # throttle time
    if len(reader.array()) != 1:
        raise UnexpectedResponse("a response with another number of transactions")
    error = reader.field("h")
    reader.string()  # transactional id
    return error, reader.string()


def _first_error(reader: Reader, partition: str) -> int:
    """The first error code in an array of topics with arrays of partitions of this form."""
    errors = []
    for _ in reader.array():
        reader.string()
        errors += [reader.fields(partition)[1] for _ in reader.array()]
    return next(filter(None, errors), 0)
