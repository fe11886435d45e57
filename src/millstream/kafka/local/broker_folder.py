"""The folder of a local broker, and the files in it.

broker.json        format of the folder, Kafka's version, the broker's port
broker.lock        locked while the broker runs; its process id
server.properties  rewritten at every start
log4j2.properties  rewritten at every start
broker.log         the broker's log, up to 10 MB; three older ones are kept
broker.out         the output of Java
data/              Kafka's log directory; exists once it is formatted
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import socket
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from millstream.errors import Damaged, InvalidInput, SetupFailed, Unavailable
from millstream.kafka.local.broker_settings import properties
from millstream.kafka.local.processes import ProcessLock
from millstream.toolchain.folders import home_folder

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMAT = 1
# Below the ephemeral ports, so that the port of a stopped broker stays free.
_FREE_PORTS = range(20_000, 32_000)

_LOGGING = """\
status = error
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = broker.log
appender.file.filePattern = broker.log.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{yyyy-MM-dd'T'HH:mm:ss.SSSXXX} %-5p %m (%c{1})%n
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 10MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 3
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
"""

# Files of a first start that is in progress, here or in another process.
_FIRST_FILES = frozenset(
    {"broker.lock", "broker.json", "server.properties", "format.properties", "log4j2.properties"}
)


@dataclass(frozen=True)
class Note:
    """The contents of `broker.json`."""

    format: int
    kafka: str
    port: int | None = None


@dataclass(frozen=True)
class BrokerFolder:
    """The files of one broker's folder."""

    path: Path

    @classmethod
    def at(cls, path: Path | None = None) -> BrokerFolder:
        """The folder at `path`, by default `~/.millstream/broker`."""
        return cls(Path(path).expanduser().absolute() if path else home_folder() / "broker")

    @property
    def life(self) -> ProcessLock:
        """Held while the broker runs."""
        return ProcessLock(self.path / "broker.lock")

    @property
    def log(self) -> Path:
        return self.path / "broker.log"

    @property
    def output(self) -> Path:
        return self.path / "broker.out"

    @property
    def settings(self) -> Path:
        return self.path / "server.properties"

    @property
    def data(self) -> Path:
        return self.path / "data"

    @property
    def unfinished(self) -> Path:
        """Formatted first, then renamed to `data`."""
        return self.path / "data.new"

    @property
    def cluster(self) -> str | None:
        """The cluster id given at formatting."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            for line in (self.data / "meta.properties").read_text().splitlines():
                name, _, value = line.partition("=")
                if name.strip() == "cluster.id":
                    return value.strip()
        return None

    def make(self) -> None:
        """Create the folder, accessible to its owner only; refuse one with other files in it."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        names = {entry.name.removesuffix(".new") for entry in self.path.iterdir()}
        other = names - _FIRST_FILES
        if other and self.note() is None:
            raise InvalidInput(
                "a broker's folder needs to be new, empty or used by a broker before",
                got=f"{self.path} with {min(other)!r} in it",
                do="use another folder",
            )
        self.path.chmod(0o700)

    def note(self) -> Note | None:
        """The contents of `broker.json`, or None if no broker has used the folder."""
        file = self.path / "broker.json"
        try:
            content = json.loads(file.read_text())
            return Note(int(content["format"]), str(content["kafka"]), content.get("port"))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise Damaged(
                f"a broker's folder needs a readable {file}",
                got=f"{type(error).__name__} while reading it",
                do='write {"format": 1, "kafka": "<version>"} to it, or use another folder',
            ) from error

    def running_address(self) -> str | None:
        """Where the folder's broker listens, or None if it is not running."""
        note = self.note()
        if note is None or note.port is None or not self.life.held():
            return None
        return f"127.0.0.1:{note.port}"

    def write_note(self, note: Note) -> None:
        self._write("broker.json", json.dumps(asdict(note)))

    def configure(self, settings: Mapping[str, str | int]) -> None:
        """Write the configuration for this start."""
        formatting = {**settings, "log.dirs": self.unfinished.name}
        self._write("server.properties", properties(settings))
        self._write("format.properties", properties(formatting))
        self._write("log4j2.properties", _LOGGING)

    def _write(self, name: str, text: str) -> None:
        fresh = self.path / f"{name}.new"
        with fresh.open("w", encoding="ascii") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self.path / name)


def refuse_newer(folder: BrokerFolder, note: Note, kafka: str) -> None:
    """Refuse a folder that a later Kafka or a later Millstream has written."""
    if note.format == FORMAT and _order(note.kafka) <= _order(kafka):
        return
    raise SetupFailed(
        f"this Millstream reads broker folders of format {FORMAT} up to Kafka {kafka}",
        got=f"{folder.path} of format {note.format} and Kafka {note.kafka}",
        do="use a later Millstream, or another folder",
    )


def free_port(*, besides: int | None = None) -> int:
    """A free port of the loopback."""
    for port in random.sample(_FREE_PORTS, k=200):
        if port != besides and _is_free(port):
            return port
    raise Unavailable(
        "a broker needs a free port",
        got=f"200 used ones between {_FREE_PORTS.start} and {_FREE_PORTS.stop}",
        do="choose one with port=",
    )


def refuse_taken(port: int) -> None:
    """Refuse a port on which a broker cannot listen; the error names the process that uses it."""
    if not 0 < port < 1 << 16:
        raise InvalidInput("a port is a number from 1 to 65535", got=str(port), do="choose another")
    if not _is_free(port):
        raise Unavailable(
            f"the broker needs port {port} of 127.0.0.1",
            got=f"a port in use by {_listener(port)}",
            do="stop that process, or choose another port",
        )


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except PermissionError as error:
            raise InvalidInput(
                f"port {port} needs privileges", got=str(error), do="choose one above 1023"
            ) from error
        except OSError:
            return False
    return True


def _listener(port: int) -> str:
    with contextlib.suppress(psutil.Error, OSError):
        for connection in psutil.net_connections("tcp"):
            listens = connection.status == psutil.CONN_LISTEN and connection.laddr[1:] == (port,)
            if listens and connection.pid is not None:
                return f"{psutil.Process(connection.pid).name()} (pid {connection.pid})"
    return "another process"


def _order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())
