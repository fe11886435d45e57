"""Identifies the broker at a port; other servers and incomplete responses give None."""

from __future__ import annotations

import socket
import struct
import threading
import time
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient

from millstream.kafka.local.broker_identity import Identity, identify

if TYPE_CHECKING:
    from millstream.testing.local_broker import ThrowAwayBroker


def test_a_broker_is_identified_by_its_cluster_id(broker: ThrowAwayBroker) -> None:
    port = int(broker.address.rpartition(":")[2])
    theirs = AdminClient({"bootstrap.servers": broker.address}).list_topics(timeout=10)
    assert identify(port) == Identity(cluster=str(theirs.cluster_id), nodes=(1,))


def test_a_closed_port_has_no_broker() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        assert identify(unused.getsockname()[1]) is None


def test_a_server_that_does_not_answer_times_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        began = time.monotonic()
        assert identify(silent.getsockname()[1], timeout=0.2) is None
        assert 0.1 < time.monotonic() - began < 5


@pytest.mark.parametrize(
    "reply",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"",
        struct.pack(">i", -1),
        struct.pack(">i", 0),
        struct.pack(">iii", 8, 7, 1),  # the response to another request
        struct.pack(">iiii", 12, 1, 0, 5),  # five brokers announced, none named
        struct.pack(">iiii", 12, 1, 0, -1),
        struct.pack(">iiiiih", 18, 1, 0, 1, 1, 9),  # a host name longer than the response
        struct.pack(">iiiih", 16, 1, 0, 0, 2) + b"\xff\xff",  # a name that is not UTF-8
    ],
)  # fmt: skip
def test_another_server_is_not_identified_as_a_broker(reply: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1024)
                connection.sendall(reply)

        stranger = threading.Thread(target=serve)
        stranger.start()
        assert identify(server.getsockname()[1]) is None
        stranger.join()
