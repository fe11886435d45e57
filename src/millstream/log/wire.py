"""Fetching by Kafka's own protocol over a plain socket: bytes as they lie in the log.

For listeners without security; the others are read by librdkafka. Two questions are asked:
who leads a partition (Metadata, version 5), and what it holds (Fetch, version 11).
"""

from __future__ import annotations

import select
import socket
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.log.record_batches import Aborted

_METADATA, _FETCH = (3, 5), (1, 11)
_CLIENT = b"millstream"
_TIMEOUT = 10.0  # seconds without a byte after which a broker is given up, and another asked
_LARGEST = 1 << 30
_AT_ONCE = 4096  # bytes: a small answer is whole with them
_ALL_PARTITIONS = 32 << 20  # bytes of one answer, unless a single batch is larger
_UNKNOWN_TOPIC = 3
READ_COMMITTED = 1

Place = tuple[str, int]
_T = TypeVar("_T", int, bytes)


def place(server: str) -> Place:
    """Host and port of `host:port`, the host of `[::1]:9092` without its brackets."""
    host, _, port = server.strip().rpartition(":")
    return host.strip("[]"), int(port)


class WireError(OSError):
    """The other side said something that cannot be understood, or ended the connection."""


@dataclass(frozen=True, slots=True)
class Part:
    """What a broker said about one partition: an error code, or bytes and who aborted.

    The bytes are those of the connection's answer, and stand there as long as it does.
    """

    partition: int
    error: int
    stable: int
    aborted: Aborted
    records: memoryview


class Connection:
    """One connection to one broker, which answers in the order of the questions."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), timeout=_TIMEOUT)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        self._asked = self._answered = 0
        self._heard, self._spare = bytearray(), b""

    def ask(self, kind: tuple[int, int], body: bytes) -> None:
        """Send a question."""
        self._asked += 1
        head = struct.pack(">hhih", *kind, self._asked, len(_CLIENT)) + _CLIENT
        self._socket.sendall(struct.pack(">i", len(head) + len(body)) + head + body)

    def answer(self) -> memoryview:
        """What the oldest open question is answered, without the header.

        It stands there until the next answer.
        """
        self._answered += 1
        size = self._size()
        if not 4 <= size <= _LARGEST:
            raise WireError(f"an answer of {size} bytes, which no Kafka gives")
        answer = self._exactly(size)
        if struct.unpack_from(">i", answer)[0] != self._answered:
            raise WireError("an answer to another question")
        return answer[4:]

    def _size(self) -> int:
        """How many bytes an answer has; what has come with it is kept for later."""
        while len(self._spare) < 4:
            self._spare += self._some(self._socket.recv(_AT_ONCE))
        (size,) = struct.unpack_from(">i", self._spare)
        self._spare = self._spare[4:]
        return int(size)

    def _exactly(self, size: int) -> memoryview:
        """So many bytes, where those before them stood: fresh memory is dear."""
        room = self._heard if size <= len(self._heard) else bytearray(size)
        if size <= _ALL_PARTITIONS:
            self._heard = room
        buffer, place = memoryview(room)[:size], min(size, len(self._spare))
        buffer[:place], self._spare = self._spare[:place], self._spare[place:]
        while place < size:
            place += self._some(self._socket.recv_into(buffer[place:]))
        return buffer

    @staticmethod
    def _some(got: _T) -> _T:
        if not got:
            raise WireError("the broker ended the connection")
        return got

    def ended(self) -> bool:
        """Whether the other side has ended it; asked while no answer is awaited."""
        readable, _, _ = select.select([self._socket], [], [], 0)
        return bool(readable) and not self._socket.recv(1, socket.MSG_PEEK)

    def close(self) -> None:
        """End it."""
        self._socket.close()


class Answer:
    """Reads an answer from its front to its end."""

    def __init__(self, data: memoryview) -> None:
        self._data, self._place = data, 0

    def numbers(self, form: str) -> tuple[Any, ...]:
        try:
            found = struct.unpack_from(f">{form}", self._data, self._place)
        except struct.error:
            raise WireError("an answer that ends too early") from None
        self._place += struct.calcsize(f">{form}")
        return found

    def number(self, form: str) -> Any:
        return self.numbers(form)[0]

    def text(self) -> str:
        size = max(0, self.number("h"))
        return bytes(self.bytes(size)).decode()

    def bytes(self, size: int) -> memoryview:
        found = self._data[self._place : self._place + max(0, size)]
        self._place += max(0, size)
        return found

    def count(self) -> range:
        return range(max(0, self.number("i")))


def leaders(connection: Connection, topic: str) -> dict[int, Place]:
    """Host and port of the broker that leads each partition of a topic, where there is one.

    None at all means that there is no such topic.

    Raises:
        WireError: there is the topic, and nobody leads any of it now.
    """
    found = led(connection, topic)
    lead = {partition: place for partition, place in found.items() if place is not None}
    if found and not lead:
        raise WireError(f"nobody leads {topic} now")
    return lead


def led(connection: Connection, topic: str) -> dict[int, Place | None]:
    """Every partition of a topic, with who leads it; none if there is no such topic.

    Raises:
        WireError: there is the topic, and its partitions are not known now.
    """
    name = topic.encode()
    connection.ask(_METADATA, struct.pack(">ih", 1, len(name)) + name + b"\0")
    told = Answer(connection.answer())
    told.number("i")
    brokers: dict[int, Place] = {}
    for _ in told.count():
        node = told.number("i")
        host = told.text()
        brokers[node] = (host, told.number("i"))
        told.text()
    told.text()
    told.number("i")
    found: dict[int, Place | None] = {}
    missing = False
    for _ in told.count():
        missing = told.number("h") == _UNKNOWN_TOPIC
        told.text()
        told.number("b")
        for _ in told.count():
            _, partition, leader = told.numbers("hii")
            for _ in range(3):
                told.bytes(4 * told.number("i"))
            found[partition] = brokers.get(leader)
    if not found and not missing:
        raise WireError(f"nobody leads {topic} now")
    return found


def ask_for(
    connection: Connection, topic: str, places: Iterable[tuple[int, int]], *, most: int, wait: int,
    least: int = 1,
) -> None:  # fmt: skip
    """Ask for what lies at these offsets of these partitions: up to `most` bytes of each,
    waiting `wait` milliseconds where there are not `least` bytes of all yet."""
    parts = [struct.pack(">iiqqi", partition, -1, offset, -1, most) for partition, offset in places]
    name = topic.encode()
    connection.ask(
        _FETCH,
        struct.pack(">iiiibii", -1, wait, least, _ALL_PARTITIONS, READ_COMMITTED, 0, -1)
        + struct.pack(">ih", 1, len(name))
        + name
        + struct.pack(">i", len(parts))
        + b"".join(parts)
        + struct.pack(">ih", 0, 0),
    )


def answered(connection: Connection) -> list[Part]:
    """What it was answered, partition by partition."""
    told = Answer(connection.answer())
    _, error, _ = told.numbers("ihi")
    if error:
        raise WireError(f"error {error}")
    found = []
    for _ in told.count():
        told.text()
        for _ in told.count():
            partition, error, _, stable, _ = told.numbers("ihqqq")
            aborted = [told.numbers("qq") for _ in told.count()]
            told.number("i")
            records = told.bytes(told.number("i"))
            found.append(Part(partition, error, stable, aborted, records))
    return found
