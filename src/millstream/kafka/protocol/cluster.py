"""Cluster requests that librdkafka or its Python client lacks: quorum, reassignments, log sizes.

Any broker answers them or forwards them to the controller. For listeners without TLS and SASL.
"""

from __future__ import annotations

import struct
import time
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from millstream.errors import InvalidInput, MillstreamError, Unavailable
from millstream.kafka.protocol.connection import Address, Connection, parse_address
from millstream.kafka.protocol.messages import (
    NO_TAGS,
    Api,
    CompactReader,
    Reader,
    Request,
    UnexpectedResponse,
    array,
    compact_array,
    compact_int32s,
    compact_string,
    int32s,
    string,
)
from millstream.kafka.protocol.metadata import available_leaders

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from millstream.kafka.settings import Cluster

Slot = tuple[str, int]
_T = TypeVar("_T")

DESCRIBE_LOG_DIRS_V1 = Api(35, 1)
ELECT_LEADERS_V2 = Api(43, 2, flexible=True)
ALTER_PARTITION_REASSIGNMENTS_V0 = Api(45, 0, flexible=True)
LIST_PARTITION_REASSIGNMENTS_V0 = Api(46, 0, flexible=True)
DESCRIBE_QUORUM_V0 = Api(55, 0, flexible=True)
UNREGISTER_BROKER_V0 = Api(64, 0, flexible=True)

_METADATA_TOPIC, _METADATA_PARTITION = "__cluster_metadata", 0
_PREFERRED = 0
_TIMEOUT_MS = 10_000
_NO_REASSIGNMENT = 85
_RETRIABLE = {6, 7, 41}
_ELECTION_SECONDS = 15.0  # in which the controllers elect another leader
_RETRY_SECONDS = 0.2
_ERRORS = {
    6: "a broker that is not the leader",
    7: "a controller that did not answer in time",
    37: "an invalid number of partitions",
    39: "a broker that does not exist",
    41: "a broker that is not the controller",
    60: "a partition that is being moved already",
    102: "a broker that is not registered",
}


class _NotNowError(MillstreamError):
    """The controllers are electing another leader: a retry may succeed."""


@dataclass(frozen=True, slots=True)
class Quorum:
    """The controllers: the leader, and the log end offset of each voter and observer."""

    leader: int
    epoch: int
    voters: Mapping[int, int]
    observers: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Reassignment:
    """A partition that is being moved: the brokers it is on, those added, those removed."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


# What callers use: each sends one request, to whichever broker answers.


def describe_quorum(cluster: Cluster) -> Quorum:
    return _call(cluster, describe_quorum_request(), parse_describe_quorum_response)


def alter_reassignments(cluster: Cluster, to: Mapping[Slot, Sequence[int] | None]) -> None:
    """Move partitions to these brokers, the first of which shall lead; None cancels a move.

    Raises:
        MillstreamError: the controller refuses one of them; no partition of its topic is moved.
    """
    _call(cluster, alter_reassignments_request(to), parse_alter_reassignments_response)


def list_reassignments(cluster: Cluster) -> dict[Slot, Reassignment]:
    """The partitions that are being moved now."""
    return _call(cluster, list_reassignments_request(), parse_list_reassignments_response)


def elect_leaders(cluster: Cluster, slots: Iterable[Slot]) -> None:
    """Have the first replica of each partition lead it, where that one is in sync."""
    _call(cluster, elect_leaders_request(slots), parse_elect_leaders_response)


def unregister_broker(cluster: Cluster, node: int) -> None:
    """Remove a broker that has stopped permanently from the cluster."""
    _call(cluster, unregister_broker_request(node), parse_unregister_broker_response)


def partition_sizes(cluster: Cluster, topic: str) -> dict[int, int]:
    """Bytes of each partition on its leader's disk; without those whose leader does not answer.

    Empty for a cluster with security, which needs librdkafka.
    """
    if cluster.settings:
        return {}
    sizes: dict[int, int] = {}
    leaders = _leaders(cluster, topic)
    for leader in set(leaders.values()):
        led = sorted(partition for partition, address in leaders.items() if address == leader)
        with suppress(OSError), closing(Connection(*leader)) as connection:
            response = connection.call(describe_log_dirs_request(topic, led))
            sizes |= parse_describe_log_dirs_response(response, led)
    return sizes


def _leaders(cluster: Cluster, topic: str) -> dict[int, Address]:
    """The leaders of a topic's partitions, from the first broker that answers."""
    for server in cluster.address.split(","):
        with suppress(OSError), closing(Connection(*parse_address(server))) as connection:
            return available_leaders(connection, topic)
    return {}


def _call(cluster: Cluster, request: Request, parse: Callable[[memoryview], _T]) -> _T:
    """The response of the first broker that answers; retried while controllers hold an election."""
    if cluster.settings:
        raise InvalidInput(
            "this needs a cluster with an open listener",
            got=f"one with {', '.join(sorted(cluster.settings))}",
            do="use Kafka's own kafka-reassign-partitions there",
        )
    until = time.monotonic() + _ELECTION_SECONDS
    while True:
        try:
            return _call_once(cluster, request, parse)
        except _NotNowError:
            if time.monotonic() > until:
                raise
        time.sleep(_RETRY_SECONDS)


def _call_once(cluster: Cluster, request: Request, parse: Callable[[memoryview], _T]) -> _T:
    failure: OSError | None = None
    for server in cluster.address.split(","):
        try:
            with closing(Connection(*parse_address(server))) as connection:
                return parse(connection.call(request))
        except OSError as error:
            failure = error
    raise Unavailable(f"this needs Kafka at {cluster.address} to answer", got=str(failure))


def describe_quorum_request() -> Request:
    partition = struct.pack(">i", _METADATA_PARTITION) + NO_TAGS
    topic = compact_string(_METADATA_TOPIC) + compact_array([partition]) + NO_TAGS
    return Request(DESCRIBE_QUORUM_V0, compact_array([topic]) + NO_TAGS)


def parse_describe_quorum_response(response: memoryview) -> Quorum:
    reader = CompactReader(response)
    _refuse(reader.field("h"))
    _expect_one(reader.array())
    reader.string()
    _expect_one(reader.array())
    _, error, leader, epoch, _ = reader.fields("ihiiq")
    _refuse(error)
    return Quorum(leader, epoch, _replica_states(reader), _replica_states(reader))


def _expect_one(items: range) -> None:
    if len(items) != 1:
        raise UnexpectedResponse("a response with another number of partitions")


def _replica_states(reader: CompactReader) -> dict[int, int]:
    """Node ids and log end offsets."""
    ends = {}
    for _ in reader.array():
        node, end = reader.fields("iq")
        ends[node] = end
        reader.tagged_fields()
    return ends


def alter_reassignments_request(to: Mapping[Slot, Sequence[int] | None]) -> Request:
    topics = [
        compact_string(topic)
        + compact_array(
            struct.pack(">i", partition) + compact_int32s(to[topic, partition]) + NO_TAGS
            for partition in partitions
        )
        + NO_TAGS
        for topic, partitions in _by_topic(to).items()
    ]
    body = struct.pack(">i", _TIMEOUT_MS) + compact_array(topics) + NO_TAGS
    return Request(ALTER_PARTITION_REASSIGNMENTS_V0, body)


def parse_alter_reassignments_response(response: memoryview) -> None:
    reader = CompactReader(response)
    _, error = reader.fields("ih")
    _refuse(error, reader.string())
    for _ in reader.array():
        topic = reader.string()
        for _ in reader.array():
            partition, error = reader.fields("ih")
            message = reader.string()
            reader.tagged_fields()
            if error != _NO_REASSIGNMENT:
                _refuse(error, message, f"{topic}/{partition}")
        reader.tagged_fields()


def list_reassignments_request() -> Request:
    every_topic = compact_array(None)
    body = struct.pack(">i", _TIMEOUT_MS) + every_topic + NO_TAGS
    return Request(LIST_PARTITION_REASSIGNMENTS_V0, body)


def parse_list_reassignments_response(response: memoryview) -> dict[Slot, Reassignment]:
    reader = CompactReader(response)
    _, error = reader.fields("ih")
    _refuse(error, reader.string())
    found = {}
    for _ in reader.array():
        topic = reader.string()
        for _ in reader.array():
            partition = reader.field("i")
            found[topic, partition] = Reassignment(
                reader.int32s(), reader.int32s(), reader.int32s()
            )
            reader.tagged_fields()
        reader.tagged_fields()
    return found


def elect_leaders_request(slots: Iterable[Slot]) -> Request:
    topics = [
        compact_string(topic) + compact_int32s(partitions) + NO_TAGS
        for topic, partitions in _by_topic(slots).items()
    ]
    body = struct.pack(">b", _PREFERRED) + compact_array(topics)
    return Request(ELECT_LEADERS_V2, body + struct.pack(">i", _TIMEOUT_MS) + NO_TAGS)


def parse_elect_leaders_response(response: memoryview) -> None:
    """A partition that has its preferred leader already, or cannot have it now, is no error."""
    _, error = CompactReader(response).fields("ih")
    _refuse(error)


def unregister_broker_request(node: int) -> Request:
    return Request(UNREGISTER_BROKER_V0, struct.pack(">i", node) + NO_TAGS)


def parse_unregister_broker_response(response: memoryview) -> None:
    reader = CompactReader(response)
    _, error = reader.fields("ih")
    _refuse(error, reader.string())


def describe_log_dirs_request(topic: str, partitions: Iterable[int]) -> Request:
    return Request(DESCRIBE_LOG_DIRS_V1, array([string(topic) + int32s(partitions)]))


def parse_describe_log_dirs_response(
    response: memoryview, partitions: Iterable[int]
) -> dict[int, int]:
    """Bytes of each partition, without logs that a broker is still copying between directories."""
    reader = Reader(response)
    reader.field("i")  # throttle time
    sizes: dict[int, int] = {}
    for _ in reader.array():
        error = reader.field("h")
        reader.string()  # directory
        for _ in reader.array():
            reader.string()  # topic
            for _ in reader.array():
                partition, size, _, future = reader.fields("iqq?")
                if not error and not future:
                    sizes[partition] = size
    if not set(sizes) <= set(partitions):
        raise UnexpectedResponse("a response with partitions that were not requested")
    return sizes


def _by_topic(slots: Iterable[Slot]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in slots:
        topics.setdefault(topic, []).append(partition)
    return topics


def _refuse(error: int, message: str = "", what: str = "the cluster") -> None:
    if error:
        kind = _NotNowError if error in _RETRIABLE else MillstreamError
        raise kind(
            f"the controller needs to accept a change of {what}",
            got=message or _ERRORS.get(error) or f"error {error}",
            do="see `millstream brokers list`",
        )
