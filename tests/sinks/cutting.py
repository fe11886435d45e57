"""A proxy that breaks a connection when a given word passes."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Literal, Self

Cut = Literal["before", "after"]


class Wire:
    """Forwards bytes between a free local port and a server.

    `cut("after", b"COMMIT")`: the word reaches the server, but its response is lost.
    `cut("before", …)`: the word does not reach the server. This happens once; the next
    connection works.
    """

    def __init__(self, port: int) -> None:
        self._server = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._cut: tuple[Cut, bytes] | None = None
        self.cuts = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, when: Cut, word: bytes) -> None:
        """Break the connection at the next occurrence of the word."""
        self._cut = (when, word)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._server))
            except OSError:
                return
            silent = threading.Event()
            for source, target, asking in ((client, server, True), (server, client, False)):
                threading.Thread(
                    target=self._pass, args=(source, target, silent, asking), daemon=True
                ).start()

    def _pass(
        self, source: socket.socket, target: socket.socket, silent: threading.Event, asking: bool
    ) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if asking and self._cut is not None and self._cut[1] in data:
                    when, self._cut = self._cut[0], None
                    self.cuts += 1
                    silent.set()
                    if when == "before":
                        break
                if not asking and silent.is_set():
                    break
                target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
