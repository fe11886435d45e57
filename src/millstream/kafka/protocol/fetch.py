"""Fetch: record batches of a topic's partitions, as they are in the log."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.kafka.protocol.connection import MAX_FETCH_BYTES
from millstream.kafka.protocol.messages import (
    Api,
    ProtocolError,
    Reader,
    Request,
    UnexpectedResponse,
    array,
    string,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from millstream.kafka.protocol.batch_headers import Aborted

FETCH_V11 = Api(1, 11)

_CONSUMER = _NO_EPOCH = _NO_OFFSET = -1
_NO_SESSION = 0
_READ_COMMITTED = 1


@dataclass(frozen=True, slots=True)
class FetchedPartition:
    """What a leader returned for one partition.

    Offsets end at `high_watermark`, or a little after it if records were written while the broker
    answered. `records` is a slice of the connection's response and is valid as long as that.
    """

    partition: int
    error: int
    high_watermark: int
    last_stable_offset: int
    aborted: Aborted
    records: memoryview


def fetch_request(
    topic: str,
    offsets: Iterable[tuple[int, int]],
    *,
    max_bytes: int,
    max_wait_ms: int,
    min_bytes: int = 1,
) -> Request:
    """Fetch partitions from these offsets, up to `max_bytes` of each.

    The broker answers after `max_wait_ms` at the latest, or once it has `min_bytes` in all.
    """
    partitions = (
        struct.pack(">iiqqi", partition, _NO_EPOCH, offset, _NO_OFFSET, max_bytes)
        for partition, offset in offsets
    )
    head = struct.pack(
        ">iiiibii", _CONSUMER, max_wait_ms, min_bytes, MAX_FETCH_BYTES, _READ_COMMITTED,
        _NO_SESSION, _NO_EPOCH,
    )  # fmt: skip
    topics = array([string(topic) + array(partitions)])
    forgotten, rack = array([]), string("")
    return Request(FETCH_V11, head + topics + forgotten + rack)


def parse_fetch_response(
    response: memoryview, topic: str, partitions: Collection[int]
) -> list[FetchedPartition]:
    """The response to a fetch of these partitions.

    Raises:
        ProtocolError: the whole request failed, or the response is malformed.
        UnexpectedResponse: another topic or partition, or one partition twice.
    """
    reader = Reader(response)
    _, error, _ = reader.fields("ihi")  # throttle time, error, session
    if error:
        raise ProtocolError(f"error {error}")
    fetched: dict[int, FetchedPartition] = {}
    for _ in reader.array():
        name = reader.string()
        for _ in reader.array():
            part = _partition(reader)
            number = part.partition
            if name != topic or number not in partitions or number in fetched:
                raise UnexpectedResponse(
                    f"a response about {name}/{number}, which was not requested"
                )
            fetched[number] = part
    return list(fetched.values())


def _partition(reader: Reader) -> FetchedPartition:
    partition, error, high_watermark, last_stable_offset, _ = reader.fields("ihqqq")
    aborted = [reader.fields("qq") for _ in reader.array()]
    reader.field("i")  # preferred read replica
    records = reader.bytes(reader.field("i"))
    return FetchedPartition(partition, error, high_watermark, last_stable_offset, aborted, records)
