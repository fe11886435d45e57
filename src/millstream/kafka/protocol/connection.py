"""A plain socket to one broker, for listeners without TLS and SASL."""

from __future__ import annotations

import select
import socket
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from millstream.kafka.protocol.messages import ProtocolError

if TYPE_CHECKING:
    from millstream.kafka.protocol.messages import Request

TIMEOUT = 10.0  # seconds without a byte after which a broker is given up
_MAX_RESPONSE = 1 << 30
_PIECE = 4 << 20  # bytes; a large response is allocated as it arrives, not as it claims
_FIRST_READ = 4096  # bytes; a small response arrives whole
MAX_FETCH_BYTES = 32 << 20  # of one fetch response, unless a single batch is larger

Address = tuple[str, int]
_T = TypeVar("_T", int, bytes)


def parse_address(server: str) -> Address:
    """Host and port of `host:port`; `[::1]:9092` gives the host without brackets."""
    host, _, port = server.strip().rpartition(":")
    return host.strip("[]"), int(port)


class Connection:
    """One connection to one broker. Responses arrive in the order of the requests."""

    def __init__(self, host: str, port: int, *, timeout: float | None = None) -> None:
        self._socket = _connect(host, port, timeout or TIMEOUT)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        self._sent = self._received = 0
        self._buffer, self._unread = bytearray(), b""

    def send(self, request: Request) -> None:
        self._sent += 1
        self._socket.sendall(request.encode(self._sent))

    def receive(self) -> memoryview:
        """The response to the oldest request without one, from behind the correlation id.

        Its bytes are valid until the next call.
        """
        self._received += 1
        size = self._response_size()
        if not 4 <= size <= _MAX_RESPONSE:
            raise ProtocolError(f"a response of {size} bytes, which Kafka does not send")
        response = self._exactly(size)
        if struct.unpack_from(">i", response)[0] != self._received:
            raise ProtocolError("a response to another request")
        return response[4:]

    def call(self, request: Request) -> memoryview:
        """Send a request and receive its response."""
        self.send(request)
        return self.receive()

    def _response_size(self) -> int:
        """Read the size; what arrived with it stays in `_unread`."""
        while len(self._unread) < 4:
            self._unread += self._checked(self._socket.recv(_FIRST_READ))
        (size,) = struct.unpack_from(">i", self._unread)
        self._unread = self._unread[4:]
        return int(size)

    def _exactly(self, size: int) -> memoryview:
        """The next `size` bytes, in the buffer of earlier responses: fresh memory is slow."""
        if size > max(MAX_FETCH_BYTES, len(self._buffer)):
            return self._in_pieces(size)
        if size > len(self._buffer):
            self._buffer = bytearray(size)
        buffer = memoryview(self._buffer)[:size]
        self._fill(buffer)
        return buffer

    def _in_pieces(self, size: int) -> memoryview:
        """The next `size` bytes, when that is more than was requested and may be a false claim."""
        parts: list[bytearray] = []
        missing = size
        while missing:
            parts.append(bytearray(min(max(_PIECE, size - missing), missing)))
            self._fill(memoryview(parts[-1]))
            missing -= len(parts[-1])
        return memoryview(b"".join(parts))

    def _fill(self, buffer: memoryview) -> None:
        size = len(buffer)
        at = min(size, len(self._unread))
        buffer[:at], self._unread = self._unread[:at], self._unread[at:]
        while at < size:
            at += self._checked(self._socket.recv_into(buffer[at:]))

    @staticmethod
    def _checked(received: _T) -> _T:
        if not received:
            raise ProtocolError("the broker closed the connection")
        return received

    def is_closed_by_broker(self) -> bool:
        """Whether the broker closed it. Call this while no response is outstanding."""
        readable, _, _ = select.select([self._socket], [], [], 0)
        return bool(readable) and not self._socket.recv(1, socket.MSG_PEEK)

    def fileno(self) -> int:
        """Its socket, for `select`."""
        return self._socket.fileno()

    def interrupt(self) -> None:
        """End what waits for this connection, in another thread, with an error there."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._socket.close()


def _connect(host: str, port: int, timeout: float) -> socket.socket:
    if not 0 < port < 1 << 16:
        raise ProtocolError(f"a broker at port {port}")
    try:
        return socket.create_connection((host, port), timeout=timeout)
    except ValueError as error:  # no valid host name
        raise ProtocolError(f"a broker at {host!r}") from error
