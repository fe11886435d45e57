"""Whether a PostgreSQL server is there, without a session: it is asked whether it takes TLS."""

from __future__ import annotations

import os
import socket
import struct
from contextlib import closing

from psycopg.conninfo import conninfo_to_dict

_TLS_REQUEST = struct.pack(">ii", 8, 80877103)
_SECONDS = 2.0
_PORT = "5432"


def ask(url: str) -> None:
    """Return if a server of this address answers.

    Raises:
        OSError: none does.
    """
    given = conninfo_to_dict(url)

    def setting(name: str, variable: str, default: str) -> list[str]:
        return str(given.get(name) or os.environ.get(variable) or default).split(",")

    hosts = setting("hostaddr", "PGHOSTADDR", "") if given.get("hostaddr") else []
    hosts = hosts or setting("host", "PGHOST", "/var/run/postgresql")
    ports = setting("port", "PGPORT", _PORT)
    failure: OSError = ConnectionError("no server is named")
    for place, host in enumerate(hosts):
        try:
            _ask(host, int(ports[place] if len(ports) > 1 else ports[0]))
        except OSError as error:
            failure = error
        else:
            return
    raise failure


def _ask(host: str, port: int) -> None:
    with closing(_connection(host, port)) as server:
        server.sendall(_TLS_REQUEST)
        if not server.recv(1):
            raise ConnectionError("the server closed the connection")


def _connection(host: str, port: int) -> socket.socket:
    if not host.startswith("/"):
        return socket.create_connection((host, port), timeout=_SECONDS)
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.settimeout(_SECONDS)
    try:
        server.connect(f"{host}/.s.PGSQL.{port}")
    except OSError:
        server.close()
        raise
    return server
