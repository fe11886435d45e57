"""Who is at a port: a broker is told from silence, from a stranger and from half an answer."""

from __future__ import annotations

import socket
import struct
import threading
import time
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient

from millstream.kafka.local.broker_identity import Answer, ask

if TYPE_CHECKING:
    from millstream.testing.local_broker import ThrowAwayBroker


def test_a_broker_names_its_cluster_as_it_does_to_any_client(broker: ThrowAwayBroker) -> None:
    port = int(broker.address.rpartition(":")[2])
    theirs = AdminClient({"bootstrap.servers": broker.address}).list_topics(timeout=10)
    assert ask(port) == Answer(cluster=theirs.cluster_id, nodes=(1,))


def test_a_closed_port_gives_no_answer() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        assert ask(unused.getsockname()[1]) is None


def test_silence_ends_after_the_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        began = time.monotonic()
        assert ask(silent.getsockname()[1], timeout=0.2) is None
        assert 0.1 < time.monotonic() - began < 5


@pytest.mark.parametrize(
    "reply",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"",
        struct.pack(">i", -1),
        struct.pack(">i", 0),
        struct.pack(">iii", 8, 7, 1),  # the answer to another question
        struct.pack(">iii", 8, 1, 5),  # five brokers announced, none named
        struct.pack(">iii", 8, 1, -1),
        struct.pack(">iiiih", 14, 1, 1, 1, 9),  # a host name longer than the reply
        struct.pack(">iiih", 12, 1, 0, 2) + b"\xff\xff",  # a name that is no text
    ],
)  # fmt: skip
def test_a_stranger_is_not_taken_for_a_broker(reply: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1024)
                connection.sendall(reply)

        stranger = threading.Thread(target=serve)
        stranger.start()
        assert ask(server.getsockname()[1]) is None
        stranger.join()
