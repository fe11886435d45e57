"""A fake broker on the loopback, with responses chosen by the test, valid or not."""

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
class FetchResponse:
    """A response about one partition; `records_size` is its size field, by default the true one."""

    records: bytes
    partition: int = 0
    topic: str = "t"
    high: int = 1 << 40
    error: int = 0
    records_size: int | None = None
    aborted: int = 0
    twice: bool = False

    def bytes(self) -> bytes:
        """The response, without its size and correlation id."""
        size = len(self.records) if self.records_size is None else self.records_size
        part = struct.pack(">ihqqqiii", self.partition, self.error, self.high, self.high, 0,
                           self.aborted, -1, size) + self.records  # fmt: skip
        count = 2 if self.twice else 1
        return (struct.pack(">ihii", 0, 0, 0, 1) + _text(self.topic)
                + struct.pack(">i", count) + count * part)  # fmt: skip


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text.encode())) + text.encode()


def metadata(host: str, port: int, topic: str = "t") -> bytes:
    """A Metadata response: one broker, which leads the only partition of a topic."""
    broker = struct.pack(">i", 1) + _text(host) + struct.pack(">ih", port, -1)
    partition = struct.pack(">hii", 0, 0, 1) + 3 * struct.pack(">i", 0)
    head = struct.pack(">ii", 0, 1) + broker + struct.pack(">hi", -1, 1)
    return (head + struct.pack(">ih", 1, 0) + _text(topic) + b"\0" + struct.pack(">i", 1)
            + partition)  # fmt: skip


class Log:
    """A partition whose bytes a test changes between fetches. Like a broker, it returns the batches
    from the requested offset on, according to their headers."""

    def __init__(self) -> None:
        self.records = b""

    def answer(self, offset: int) -> bytes:
        """The response to a fetch from this offset."""
        at, records = 0, self.records
        while at + 61 <= len(records):
            base, size = struct.unpack_from(">qi", records, at)
            (last,) = struct.unpack_from(">i", records, at + 23)
            if min(base, size - 1, last) < 0 or base + last >= offset:
                break
            at += 12 + size
        return FetchResponse(records[at:]).bytes()


def _requested_offset(fetch: bytes) -> int:
    """The offset in a Fetch request of version 11 for one partition."""
    (client,) = struct.unpack_from(">h", fetch, 8)
    topics = 10 + client + 25
    (name,) = struct.unpack_from(">h", fetch, topics + 4)
    (offset,) = struct.unpack_from(">q", fetch, topics + 6 + name + 12)
    return int(offset)


@contextmanager
def broker(
    response: FetchResponse | Log, *, host: str = "127.0.0.1", port: int | None = None
) -> Iterator[str]:
    """The broker's address. Its metadata name `host` and `port`, by default its own, as leader."""

    def serve(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            while len(size := connection.recv(4, socket.MSG_WAITALL)) == 4:
                request = connection.recv(int.from_bytes(size), socket.MSG_WAITALL)
                kind, _, number = struct.unpack_from(">hhi", request)
                if kind != _FETCH:
                    answer = metadata(host, port or own)
                elif isinstance(response, Log):
                    answer = response.answer(_requested_offset(request))
                else:
                    answer = response.bytes()
                answer = struct.pack(">i", number) + answer
                connection.sendall(struct.pack(">i", len(answer)) + answer)

    def listen() -> None:
        while not stopping.is_set():
            with suppress(TimeoutError):
                connection, _ = server.accept()
                connection.settimeout(None)
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

    stopping = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.02)
        own = server.getsockname()[1]
        thread = threading.Thread(target=listen, daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{own}"
        finally:
            stopping.set()
            thread.join(10)
