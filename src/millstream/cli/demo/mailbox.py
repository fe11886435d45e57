"""The demo's mailbox: a mail server for this machine alone that shows what it is sent."""

from __future__ import annotations

import threading
from email import message_from_bytes, policy
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

_LONGEST_LINE = 4096
_LARGEST_MAIL = 1 << 20
_PATIENCE = 30.0


class Mailbox:
    """Takes mails for the length of a `with` block and hands each recipient and subject on."""

    def __init__(self, arrived: Callable[[str, str], None]) -> None:
        self._server = _Server(("127.0.0.1", 0), _Session)
        self._server.arrived = arrived
        self._thread = threading.Thread(target=self._server.serve_forever, name="mailbox")

    @property
    def url(self) -> str:
        """Where mails are handed in."""
        return f"smtp://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    arrived: Callable[[str, str], None]


class _Session(StreamRequestHandler):
    """The part of SMTP that one sender on this machine needs (RFC 5321, 4.5.1)."""

    timeout = _PATIENCE
    server: _Server

    def handle(self) -> None:
        try:
            self._say("220 millstream demo")
            while line := self.rfile.readline(_LONGEST_LINE):
                if not self._heard(line[:4].strip().upper().decode("ascii", "replace")):
                    break
        except OSError:
            return  # the sender is gone, or said nothing for too long

    def _heard(self, verb: str) -> bool:
        """Answer one command; whether the session goes on."""
        if verb == "DATA":
            self._say("354 end with a dot")
            self._take()
        elif verb == "QUIT":
            self._say("221 bye")
            return False
        else:
            known = verb in ("EHLO", "HELO", "MAIL", "RCPT", "RSET", "NOOP")
            self._say("250 ok" if known else "502 not here")
        return True

    def _take(self) -> None:
        lines: list[bytes] = []
        size = 0
        while (line := self.rfile.readline(_LONGEST_LINE)) not in (b".\r\n", b""):
            size += len(line)
            if size <= _LARGEST_MAIL:
                lines.append(line.removeprefix(b"."))
        if size > _LARGEST_MAIL:
            self._say("552 too large")
            return
        mail = message_from_bytes(b"".join(lines), policy=policy.default)
        self.server.arrived(str(mail["To"]), str(mail["Subject"]))
        self._say("250 taken")

    def _say(self, words: str) -> None:
        self.wfile.write(f"{words}\r\n".encode())
