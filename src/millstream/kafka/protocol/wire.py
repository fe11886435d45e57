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
    from collections.abc import Collection, Iterable

    from millstream.kafka.protocol.batch_headers import Aborted

_METADATA, _FETCH = (3, 5), (1, 11)
_CLIENT = b"millstream"
_TIMEOUT = 10.0  # seconds without a byte after which a broker is given up, and another asked
_LARGEST = 1 << 30
_GROWN_BY = 4 << 20  # bytes: memory for a large answer follows what has arrived of it
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


class WrongAnswer(WireError):
    """An answer about something that was not asked; another connection would not help."""


@dataclass(frozen=True, slots=True)
class Part:
    """What a broker said about one partition: an error code, or bytes and who aborted.

    `high` is the high watermark: records end before it, or little behind it where more was
    written while the broker answered. The bytes are those of the connection's answer, and stand
    there as long as it does.
    """

    partition: int
    error: int
    high: int
    stable: int
    aborted: Aborted
    records: memoryview


class Connection:
    """One connection to one broker, which answers in the order of the questions."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = _connected(host, port)
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
        if size > max(_ALL_PARTITIONS, len(self._heard)):
            return self._growing(size)
        if size > len(self._heard):
            self._heard = bytearray(size)
        buffer = memoryview(self._heard)[:size]
        self._fill(buffer)
        return buffer

    def _growing(self, size: int) -> memoryview:
        """The same for an answer larger than was asked for, which may be a claim and no more."""
        parts: list[bytearray] = []
        missing = size
        while missing:
            parts.append(bytearray(min(max(_GROWN_BY, size - missing), missing)))
            self._fill(memoryview(parts[-1]))
            missing -= len(parts[-1])
        return memoryview(b"".join(parts))

    def _fill(self, buffer: memoryview) -> None:
        size = len(buffer)
        place = min(size, len(self._spare))
        buffer[:place], self._spare = self._spare[:place], self._spare[place:]
        while place < size:
            place += self._some(self._socket.recv_into(buffer[place:]))

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


def _connected(host: str, port: int) -> socket.socket:
    if not 0 < port < 1 << 16:
        raise WireError(f"a broker at port {port}")
    try:
        return socket.create_connection((host, port), timeout=_TIMEOUT)
    except ValueError as error:  # what no resolver takes for a name
        raise WireError(f"a broker at {host!r}") from error


class Answer:
    """Reads an answer from its front to its end.

    No length or count in it is believed: what reaches beyond its end is a `WireError`.
    """

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
        return self.words(self.number("h"))

    def words(self, size: int) -> str:
        """So many bytes as text."""
        try:
            return bytes(self.bytes(size)).decode()
        except UnicodeDecodeError:
            raise WireError("an answer whose names are not text") from None

    def bytes(self, size: int) -> memoryview:
        size = max(0, size)
        if size > len(self._data) - self._place:
            raise WireError("an answer that ends too early")
        found = self._data[self._place : self._place + size]
        self._place += size
        return found

    def count(self) -> range:
        return self.counted(self.number("i"))

    def counted(self, count: int) -> range:
        """So many parts, each of a byte at least."""
        if count > len(self._data) - self._place:
            raise WireError("an answer that ends too early")
        return range(max(0, count))


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


def answered(connection: Connection, topic: str, asked: Collection[int]) -> list[Part]:
    """What it was answered about the partitions that were `asked` for, each once.

    Raises:
        WrongAnswer: it is about another topic or partition, or twice about one.
    """
    told = Answer(connection.answer())
    _, error, _ = told.numbers("ihi")
    if error:
        raise WireError(f"error {error}")
    found: dict[int, Part] = {}
    for _ in told.count():
        name = told.text()
        for _ in told.count():
            part = _part(told)
            if name != topic or part.partition not in asked or part.partition in found:
                raise WrongAnswer(f"an answer about {name}/{part.partition}, which was not asked")
            found[part.partition] = part
    return list(found.values())


def _part(told: Answer) -> Part:
    partition, error, high, stable, _ = told.numbers("ihqqq")
    aborted = [told.numbers("qq") for _ in told.count()]
    told.number("i")
    return Part(partition, error, high, stable, aborted, told.bytes(told.number("i")))
