"""A receiver of webhooks: an HTTP server on this machine with scripted answers."""

from __future__ import annotations

import json
import threading
from collections import deque
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping


@dataclass(frozen=True)
class Post:
    """A request, and the status it was answered with."""

    headers: Mapping[str, str]
    body: bytes
    status: int

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def data(self) -> Any:
        return json.loads(self.body)["data"]


@dataclass
class Receiver:
    """Answers each post with the next of `answers` (a status, headers), then with 200."""

    tls: ssl.SSLContext | None = None
    posts: list[Post] = field(default_factory=list)
    answers: deque[tuple[int, dict[str, str]]] = field(default_factory=deque)
    hang: threading.Event | None = None

    def answering(self, *statuses: int, **headers: str) -> Self:
        """Answer with these statuses first."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.answers.extend((status, named) for status in statuses)
        return self

    def taken(self) -> list[Post]:
        """The posts answered with 200."""
        return [post for post in self.posts if post.status == 200]

    @property
    def url(self) -> str:
        scheme = "http" if self.tls is None else "https"
        return f"{scheme}://127.0.0.1:{self._server.server_port}/hook?key=canary"

    def __enter__(self) -> Self:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if receiver.hang is not None:
                    receiver.hang.wait(60)
                status, headers = receiver.answers.popleft() if receiver.answers else (200, {})
                receiver.posts.append(Post(dict(self.headers.items()), body, status))
                self.send_response(status)
                for name, value in {"Content-Length": "0", **headers}.items():
                    self.send_header(name, value)
                self.end_headers()

            def log_message(self, format: str, *arguments: Any) -> None:
                """No log."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if self.tls is not None:
            self._server.socket = self.tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}
        )
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.hang is not None:
            self.hang.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
