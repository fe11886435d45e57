"""Who leads partitions and who coordinates groups and transactions: Metadata, FindCoordinator."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from millstream.kafka.protocol.messages import Api, ProtocolError, Reader, Request, array, string

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.kafka.protocol.connection import Address, Connection

METADATA_V5 = Api(3, 5)
FIND_COORDINATOR_V2 = Api(10, 2)
GROUP, TRANSACTION = 0, 1
"""Key types of FindCoordinator."""

_UNKNOWN_TOPIC = 3


class TopicMetadata(NamedTuple):
    """A topic and the node that leads each of its partitions; -1 is none."""

    error: int
    name: str
    leaders: Mapping[int, int]


class Metadata(NamedTuple):
    """A cluster as one broker describes it."""

    brokers: Mapping[int, Address]
    cluster_id: str
    topics: tuple[TopicMetadata, ...]


def metadata_request(*topics: str) -> Request:
    """Describe the cluster and these topics; none is created."""
    return Request(METADATA_V5, array(map(string, topics)) + struct.pack(">b", 0))


def parse_metadata_response(response: memoryview) -> Metadata:
    reader = Reader(response)
    reader.field("i")  # throttle time
    brokers = {}
    for _ in reader.array():
        node, host, port, _ = reader.field("i"), reader.string(), reader.field("i"), reader.string()
        brokers[node] = host, port
    cluster_id = reader.string()
    reader.field("i")  # controller
    return Metadata(brokers, cluster_id, tuple(_topic(reader) for _ in reader.array()))


def _topic(reader: Reader) -> TopicMetadata:
    error, name, _ = reader.field("h"), reader.string(), reader.field("?")
    leaders = {}
    for _ in reader.array():
        _, partition, leader = reader.fields("hii")
        for _ in ("replicas", "in-sync replicas", "offline replicas"):
            reader.bytes(4 * reader.field("i"))
        leaders[partition] = leader
    return TopicMetadata(error, name, leaders)


def find_coordinator_request(key_type: int, key: str) -> Request:
    """Find the broker that coordinates a group or the transactions of a transactional id."""
    return Request(FIND_COORDINATOR_V2, string(key) + struct.pack(">b", key_type))


def parse_find_coordinator_response(response: memoryview) -> tuple[int, Address]:
    """An error code, and the coordinator's address."""
    reader = Reader(response)
    _, error = reader.fields("ih")
    reader.string()  # error message
    reader.field("i")  # node
    return error, (reader.string(), reader.field("i"))


def partition_leaders(connection: Connection, topic: str) -> dict[int, Address | None]:
    """All partitions of a topic and the addresses of their leaders; empty if it does not exist.

    Raises:
        ProtocolError: the topic exists, but its partitions are unknown for now.
    """
    metadata = parse_metadata_response(connection.call(metadata_request(topic)))
    leaders = {
        partition: metadata.brokers.get(node)
        for described in metadata.topics
        for partition, node in described.leaders.items()
    }
    missing = any(described.error == _UNKNOWN_TOPIC for described in metadata.topics)
    if not leaders and not missing:
        raise ProtocolError(f"no partition of {topic} has a leader now")
    return leaders


def available_leaders(connection: Connection, topic: str) -> dict[int, Address]:
    """The partitions of a topic that have a leader; empty if the topic does not exist.

    Raises:
        ProtocolError: the topic exists, but none of its partitions has a leader.
    """
    partitions = partition_leaders(connection, topic)
    leaders = {number: address for number, address in partitions.items() if address is not None}
    if partitions and not leaders:
        raise ProtocolError(f"no partition of {topic} has a leader now")
    return leaders
