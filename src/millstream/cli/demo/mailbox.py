"""The demo's mailbox: a mail server on the loopback that shows the mails it receives."""

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
_TIMEOUT = 30.0


class Mailbox:
    """Receives mails during a `with` block and passes each recipient and subject to `on_mail`."""

    def __init__(self, on_mail: Callable[[str, str], None]) -> None:
        self._server = _Server(("127.0.0.1", 0), _Session)
        self._server.on_mail = on_mail
        self._thread = threading.Thread(target=self._server.serve_forever, name="mailbox")

    @property
    def url(self) -> str:
        """The address of the mail server."""
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
    on_mail: Callable[[str, str], None]


class _Session(StreamRequestHandler):
    """The part of SMTP that a sender on this machine needs (RFC 5321, 4.5.1)."""

    timeout = _TIMEOUT
    server: _Server

    def handle(self) -> None:
        try:
            self._reply("220 millstream demo")
            while line := self.rfile.readline(_LONGEST_LINE):
                if not self._answer(line[:4].strip().upper().decode("ascii", "replace")):
                    break
        except OSError:
            return  # the sender has disconnected or timed out

    def _answer(self, verb: str) -> bool:
        """Answer one command; return whether the session continues."""
        if verb == "DATA":
            self._reply("354 end with a dot")
            self._receive()
        elif verb == "QUIT":
            self._reply("221 bye")
            return False
        else:
            accepted = verb in ("EHLO", "HELO", "MAIL", "RCPT", "RSET", "NOOP")
            self._reply("250 ok" if accepted else "502 not implemented")
        return True

    def _receive(self) -> None:
        lines: list[bytes] = []
        size = 0
        while (line := self.rfile.readline(_LONGEST_LINE)) not in (b".\r\n", b""):
            size += len(line)
            if size <= _LARGEST_MAIL:
                lines.append(line.removeprefix(b"."))
        if size > _LARGEST_MAIL:
            self._reply("552 too large")
            return
        mail = message_from_bytes(b"".join(lines), policy=policy.default)
        self.server.on_mail(str(mail["To"]), str(mail["Subject"]))
        self._reply("250 accepted")

    def _reply(self, text: str) -> None:
        self.wfile.write(f"{text}\r\n".encode())
