"""A broker on the loopback that answers what a test tells it to, true or not."""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_FETCH = 1


@dataclass(frozen=True)
class Told:
    """What it says of a partition; `records_size` is claimed, where that is not the true one."""

    records: bytes
    partition: int = 0
    topic: str = "t"
    high: int = 1 << 40
    error: int = 0
    records_size: int | None = None
    aborted: int = 0
    twice: bool = False

    def bytes(self) -> bytes:
        """The answer to a fetch, without its length and number."""
        size = len(self.records) if self.records_size is None else self.records_size
        part = struct.pack(">ihqqqiii", self.partition, self.error, self.high, self.high, 0,
                           self.aborted, -1, size) + self.records  # fmt: skip
        count = 2 if self.twice else 1
        return (struct.pack(">ihii", 0, 0, 0, 1) + _text(self.topic)
                + struct.pack(">i", count) + count * part)  # fmt: skip


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text.encode())) + text.encode()


def metadata(host: str, port: int, topic: str = "t") -> bytes:
    """One broker, which leads the one partition of a topic."""
    broker = struct.pack(">i", 1) + _text(host) + struct.pack(">ih", port, -1)
    partition = struct.pack(">hii", 0, 0, 1) + 3 * struct.pack(">i", 0)
    head = struct.pack(">ii", 0, 1) + broker + struct.pack(">hi", -1, 1)
    return (head + struct.pack(">ih", 1, 0) + _text(topic) + b"\0" + struct.pack(">i", 1)
            + partition)  # fmt: skip


class Log:
    """A partition whose bytes a test changes between fetches; like a broker, it answers with the
    batches from the one that holds the offset on, as far as their headers say."""

    def __init__(self) -> None:
        self.records = b""

    def answer(self, offset: int) -> bytes:
        """The answer to a fetch from this offset."""
        at, records = 0, self.records
        while at + 61 <= len(records):
            base, size = struct.unpack_from(">qi", records, at)
            (last,) = struct.unpack_from(">i", records, at + 23)
            if min(base, size - 1, last) < 0 or base + last >= offset:
                break
            at += 12 + size
        return Told(records[at:]).bytes()


def _asked_for(fetch: bytes) -> int:
    """The offset that a Fetch request of version 11 for one partition names."""
    (client,) = struct.unpack_from(">h", fetch, 8)
    topics = 10 + client + 25
    (name,) = struct.unpack_from(">h", fetch, topics + 4)
    (offset,) = struct.unpack_from(">q", fetch, topics + 6 + name + 12)
    return int(offset)


@contextmanager
def broker(told: Told | Log, *, host: str = "127.0.0.1", port: int | None = None) -> Iterator[str]:
    """Its address. It says that the partition is led by that host and port: its own, as a rule."""

    def serve(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            while len(size := connection.recv(4, socket.MSG_WAITALL)) == 4:
                asked = connection.recv(int.from_bytes(size), socket.MSG_WAITALL)
                kind, _, number = struct.unpack_from(">hhi", asked)
                if kind != _FETCH:
                    answer = metadata(host, port or own)
                elif isinstance(told, Log):
                    answer = told.answer(_asked_for(asked))
                else:
                    answer = told.bytes()
                answer = struct.pack(">i", number) + answer
                connection.sendall(struct.pack(">i", len(answer)) + answer)

    def listen() -> None:
        while not over.is_set():
            with suppress(TimeoutError):
                connection, _ = server.accept()
                connection.settimeout(None)
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.02)
        own = server.getsockname()[1]
        thread = threading.Thread(target=listen, daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{own}"
        finally:
            over.set()
            thread.join(10)
