"""Kafka's protocol over a plain socket, with a server that disconnects or is not Kafka."""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from millstream.errors import InvalidInput, MillstreamError, Unavailable
from millstream.kafka.protocol import cluster as requests
from millstream.kafka.protocol.connection import Connection
from millstream.kafka.protocol.messages import ProtocolError
from millstream.kafka.protocol.metadata import available_leaders
from millstream.kafka.settings import Cluster
from millstream.sources.kafka.wire_fetch import WireFetcher

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kafka.shortly import Log

    from millstream.testing.local_broker import ThrowAwayBroker


@contextmanager
def answering(*answers: bytes) -> Iterator[int]:
    """A server that sends each connection one of these responses and closes it."""

    def serve(server: socket.socket) -> None:
        for answer in answers:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, args=(server,), daemon=True)
        thread.start()
        yield server.getsockname()[1]
        thread.join(10)


def leaders_at(port: int) -> dict[int, tuple[str, int]]:
    connection = Connection("127.0.0.1", port)
    try:
        return available_leaders(connection, "t")
    finally:
        connection.close()


def sized(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


BAD = {
    "nothing": b"",
    "half a size": b"\0\0",
    "half a response": struct.pack(">i", 100) + b"\0\0\0\1",
    "a size below zero": struct.pack(">i", -5),
    "a size that is too large": b"HTTP/1.1 400 Bad Request",
    "a response to another request": sized(struct.pack(">i", 77) + bytes(64)),
    "a response that ends too early": sized(struct.pack(">ii", 1, 0)),
    "too many brokers": sized(struct.pack(">iii", 1, 0, 1 << 30)),
}


@pytest.mark.parametrize("answer", BAD.values(), ids=BAD)
def test_a_malformed_response_raises_a_protocol_error(answer: bytes) -> None:
    with answering(answer) as port, pytest.raises(ProtocolError):
        leaders_at(port)


@pytest.mark.parametrize("step", [1, 3, 4, 5, 11, 5000, 10**6])
def test_responses_are_separated_wherever_the_network_splits_them(step: int) -> None:
    bodies = [b"", b"a", b"bb" * 3000, b"", b"c" * 4088, b"d" * 100_000, b"e"]
    whole = b"".join(sized(struct.pack(">i", number) + body)
                     for number, body in enumerate(bodies, start=1))  # fmt: skip

    def serve(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for place in range(0, len(whole), step):
                connection.sendall(whole[place : place + step])
            connection.recv(1)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, args=(server,), daemon=True)
        thread.start()
        connection = Connection("127.0.0.1", server.getsockname()[1])
        found = [bytes(connection.receive()) for _ in bodies]
        connection.close()
        thread.join(10)

    assert found == bodies


def metadata(error: int, leader: int) -> bytes:
    """A Metadata response about a topic with one partition, with one broker."""
    broker = struct.pack(">ih", 1, 9) + b"127.0.0.1" + struct.pack(">ih", 9092, -1)
    nodes = struct.pack(">i", 0)
    partition = struct.pack(">hii", 0, 0, leader) + 3 * nodes
    topic = struct.pack(">hh", error, 1) + b"t" + b"\0"
    partitions = struct.pack(">i", 0) if error == 3 else struct.pack(">i", 1) + partition
    head = struct.pack(">iii", 1, 0, 1) + broker + struct.pack(">hi", -1, 1)
    return sized(head + struct.pack(">i", 1) + topic + partitions)


def test_a_topic_without_a_leader_is_not_a_missing_topic() -> None:
    with answering(metadata(0, 1), metadata(3, -1), metadata(5, -1)) as port:
        found = [leaders_at(port) for _ in range(2)]
        with pytest.raises(ProtocolError, match="no partition of t has a leader now"):
            leaders_at(port)

    assert found == [{0: ("127.0.0.1", 9092)}, {}]


@pytest.mark.parametrize("answer", BAD.values(), ids=BAD)
def test_a_cluster_with_malformed_responses_is_unavailable(answer: bytes) -> None:
    with answering(answer) as port, pytest.raises(Unavailable, match=f"127.0.0.1:{port}"):
        requests.describe_quorum(Cluster(f"127.0.0.1:{port}"))


def test_a_broker_that_does_not_answer_is_skipped_and_tried_last_afterwards(
    broker: ThrowAwayBroker, log: Log, topic: str
) -> None:
    log.topics.create(topic)
    log.fill(topic, [b"1", b"2"])
    address = f"127.0.0.1:1,{broker.address}"
    assert requests.describe_quorum(Cluster(address)).voters.keys() == {1}

    fetcher = WireFetcher(Cluster(address), topic)
    for _ in range(2):
        [table] = fetcher.read({0: (0, 2)}, ["value", "partition", "offset", "timestamp"])
        assert table["value"].to_pylist() == [b"1", b"2"]
    fetcher.close()

    assert fetcher._servers[0] == ("127.0.0.1", int(broker.address.rpartition(":")[2]))


def test_long_names_and_lists_are_sent_in_the_flexible_encoding(log: Log, topic: str) -> None:
    name = f"{topic}-{'x' * 200}"[:240]
    log.topics.create(name, partitions=2)
    cluster = Cluster(log.address)

    requests.elect_leaders(cluster, [(name, number) for number in range(300)])
    requests.alter_reassignments(cluster, {(name, number): [1] for number in range(2)})

    assert requests.list_reassignments(cluster) == {}


def test_the_error_of_a_refused_move_has_the_reason_of_the_controller(log: Log, topic: str) -> None:
    log.topics.create(topic)

    with pytest.raises(MillstreamError, match=rf"a change of {topic}/0; got .*7"):
        requests.alter_reassignments(Cluster(log.address), {(topic, 0): [7]})
    requests.alter_reassignments(Cluster(log.address), {(topic, 0): None})
    with pytest.raises(MillstreamError, match=r"got .*99"):
        requests.unregister_broker(Cluster(log.address), 99)


def test_a_cluster_with_security_is_refused_before_any_request() -> None:
    cluster = Cluster("127.0.0.1:1", {"security.protocol": "SASL_SSL"})

    with pytest.raises(InvalidInput, match=r"an open listener; got one with security\.protocol"):
        requests.describe_quorum(cluster)
