"""A TCP relay in threads, which can cut, stall and slow the connections through it."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_PIECE = 1 << 16


class Relay:
    """Forwards bytes between clients at one port of the loopback and a broker at another."""

    def __init__(self, port: int, to: int) -> None:
        self._port, self._to = port, to
        self._open = True
        self._flowing = threading.Event()
        self._flowing.set()
        self._delay = 0.0
        self._lock = threading.Lock()
        self._ends: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self.passed = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    def cut(self) -> None:
        """Close all connections, and accept none until `restore`."""
        with self._lock:
            self._open = False
            for end in self._ends:
                _shut_down(end)

    def stall(self) -> None:
        """Keep connections, and forward nothing until `restore`."""
        self._flowing.clear()

    def slow(self, seconds: float) -> None:
        """Delay each piece of data by `seconds`, until `restore`."""
        self._delay = seconds

    def restore(self) -> None:
        """Forward normally again."""
        self._open, self._delay = True, 0.0
        self._flowing.set()

    @contextmanager
    def running(self) -> Iterator[Relay]:
        with socket.create_server(("127.0.0.1", self._port)) as server:
            self._start(self._accept, server)
            try:
                yield self
            finally:
                _shut_down(server)
                self.cut()
                self._flowing.set()
                for thread in self._threads:
                    thread.join(30)
        assert not self._ends, "connections that are still open"

    def _start(self, work: object, *given: object) -> threading.Thread:
        assert callable(work)
        thread = threading.Thread(target=work, args=given, name="relay")
        self._threads.append(thread)
        thread.start()
        return thread

    def _accept(self, server: socket.socket) -> None:
        """Accept connections until the server socket is shut down."""
        with suppress(OSError):
            while True:
                here, _ = server.accept()
                self._start(self._forward, here)

    def _forward(self, here: socket.socket) -> None:
        """Forward one connection until either end closes it, or `cut`."""
        with here, suppress(OSError), socket.create_connection(("127.0.0.1", self._to)) as there:
            both = {here, there}
            with self._lock:
                if not self._open:
                    return
                self._ends |= both
            try:
                back = self._start(self._copy, there, here)
                self._copy(here, there)
                back.join()
            finally:
                with self._lock:
                    self._ends -= both

    def _copy(self, one: socket.socket, other: socket.socket) -> None:
        try:
            while piece := one.recv(_PIECE):
                self._flowing.wait()
                time.sleep(self._delay)
                other.sendall(piece)
                with self._lock:
                    self.passed += len(piece)
        except OSError:
            pass
        finally:
            _shut_down(one)
            _shut_down(other)


def _shut_down(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
