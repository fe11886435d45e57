"""Ask a broker on this machine who it is, in one request over a bare socket.

A client library would bring threads, retries and chatter to a yes-or-no question. The requests
are of versions old enough for every Kafka of the last ten years; Metadata 2 is new enough to name
the cluster, so that a stranger on the port is not mistaken for the broker that was asked for.
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass

_METADATA, _FIND_COORDINATOR = (3, 2), (10, 1)  # api key, version
_GROUPS, _TRANSACTIONS = 0, 1
_CORRELATION, _CLIENT = 1, b"millstream"
_LARGEST = 1 << 20


@dataclass(frozen=True)
class Answer:
    """What a broker said: the cluster it belongs to, and the brokers it knows there."""

    cluster: str | None
    nodes: tuple[int, ...]

    @property
    def brokers(self) -> int:
        """How many it knows."""
        return len(self.nodes)


def ask(port: int, *, timeout: float = 1.0) -> Answer | None:
    """The answer of the broker at this port of the loopback, or None when there is none."""
    of_no_topic = struct.pack(">i", 0)
    try:
        return _answer(_call(port, _METADATA, of_no_topic, timeout=timeout))
    except (OSError, struct.error, ValueError):
        return None


def wake_coordinators(port: int, *, timeout: float = 1.0) -> None:
    """Have the broker make its topics for groups and transactions now, in the background.

    It makes them when first asked for a coordinator, and refuses until they are there; clients
    then wait in steps of a second. Asked for at its start, the first group joins in 0.2 s
    instead of 3. Nobody depends on it: a broker that does not reply is left alone.
    """
    for kind in (_GROUPS, _TRANSACTIONS):
        whose = struct.pack(">h", len(_CLIENT)) + _CLIENT + struct.pack(">b", kind)
        try:
            _call(port, _FIND_COORDINATOR, whose, timeout=timeout)
        except (OSError, struct.error, ValueError):
            return


def _call(port: int, api: tuple[int, int], body: bytes, *, timeout: float) -> bytes:
    """The reply to one request, without its length and correlation id."""
    request = struct.pack(">hhih", *api, _CORRELATION, len(_CLIENT)) + _CLIENT + body
    with socket.create_connection(("127.0.0.1", port), timeout) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        (size,) = struct.unpack(">i", _exactly(connection, 4))
        if not 4 <= size <= _LARGEST:
            raise ValueError("no size of a reply")
        reply = _exactly(connection, size)
    if struct.unpack_from(">i", reply) != (_CORRELATION,):
        raise ValueError("the reply to another request")
    return reply[4:]


def _exactly(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        piece = connection.recv(size - len(received))
        if not piece:
            raise ConnectionResetError
        received += piece
    return bytes(received)


def _answer(reply: bytes) -> Answer:
    (brokers,) = struct.unpack_from(">i", reply)
    if brokers < 0:
        raise ValueError("fewer brokers than none")
    at, nodes = 4, []
    for _ in range(brokers):
        nodes.append(struct.unpack_from(">i", reply, at)[0])
        _, at = _text(reply, at + 4)  # host
        _, at = _text(reply, at + 4)  # port, rack
    cluster, _ = _text(reply, at)
    return Answer(cluster, tuple(nodes))


def _text(reply: bytes, at: int) -> tuple[str | None, int]:
    (size,) = struct.unpack_from(">h", reply, at)
    at += 2
    if size < 0:
        return None, at
    if at + size > len(reply):
        raise ValueError("a text longer than the reply")
    return reply[at : at + size].decode(), at + size
