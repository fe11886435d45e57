"""A network in between that can be cut, held up and slowed: a relay of our own, in threads."""

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
    """Passes bytes between clients at one port and a broker at another, of the loopback."""

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
        """Every connection ends, and none is taken until `mend`."""
        with self._lock:
            self._open = False
            for end in self._ends:
                _hang_up(end)

    def hold(self) -> None:
        """Connections stay, and no byte passes until `mend`."""
        self._flowing.clear()

    def slow(self, seconds: float) -> None:
        """Each piece of data comes so much later, until `mend`."""
        self._delay = seconds

    def mend(self) -> None:
        """All is as it was."""
        self._open, self._delay = True, 0.0
        self._flowing.set()

    @contextmanager
    def running(self) -> Iterator[Relay]:
        with socket.create_server(("127.0.0.1", self._port)) as server:
            self._start(self._take, server)
            try:
                yield self
            finally:
                _hang_up(server)
                self.cut()
                self._flowing.set()
                for thread in self._threads:
                    thread.join(30)
        assert not self._ends, "connections that were never closed"

    def _start(self, work: object, *given: object) -> threading.Thread:
        assert callable(work)
        thread = threading.Thread(target=work, args=given, name="relay")
        self._threads.append(thread)
        thread.start()
        return thread

    def _take(self, server: socket.socket) -> None:
        """Take connections until the server is hung up."""
        with suppress(OSError):
            while True:
                here, _ = server.accept()
                self._start(self._between, here)

    def _between(self, here: socket.socket) -> None:
        """One connection, as long as both ends want it and nobody cuts it."""
        with here, suppress(OSError), socket.create_connection(("127.0.0.1", self._to)) as there:
            both = {here, there}
            with self._lock:
                if not self._open:
                    return
                self._ends |= both
            try:
                back = self._start(self._pass, there, here)
                self._pass(here, there)
                back.join()
            finally:
                with self._lock:
                    self._ends -= both

    def _pass(self, one: socket.socket, other: socket.socket) -> None:
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
            _hang_up(one)
            _hang_up(other)


def _hang_up(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
