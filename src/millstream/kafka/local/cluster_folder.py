"""The folder of a local cluster: its nodes, their ports, and which of them are controllers.

cluster.json   format, cluster id, default replication factor, the nodes and their ports
1/ 2/ 3/ …     the folder of each broker
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.errors import Damaged, NotFound
from millstream.kafka.local.broker_folder import BrokerFolder, free_port
from millstream.kafka.local.broker_settings import Seat, new_cluster_id
from millstream.toolchain.folders import home_folder, written_in

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMAT = 1
_HEAP = 320


@dataclass(frozen=True)
class NodePorts:
    """The ports of one node: for clients, and, if it is a controller, for controllers."""

    port: int
    controller: int | None = None


@dataclass(frozen=True)
class ClusterNote:
    """The contents of `cluster.json`; if `chosen`, `up` starts this cluster by default."""

    cluster: str
    copies: int
    nodes: Mapping[int, NodePorts] = field(default_factory=dict)
    chosen: bool = True

    @property
    def controllers(self) -> dict[int, int]:
        """The controllers and their ports."""
        return {
            node: ports.controller
            for node, ports in self.nodes.items()
            if ports.controller is not None
        }

    @property
    def address(self) -> str:
        """The bootstrap servers: all nodes."""
        return ",".join(f"127.0.0.1:{ports.port}" for _, ports in sorted(self.nodes.items()))

    def seat(self, node: int) -> Seat:
        return Seat(self.controllers, node, self.cluster, self.copies, _HEAP)

    def to_json(self) -> str:
        nodes = {
            str(node): {"port": ports.port, "controller": ports.controller}
            for node, ports in sorted(self.nodes.items())
        }
        return json.dumps(
            {"format": FORMAT, "cluster": self.cluster, "copies": self.copies,
             "chosen": self.chosen, "nodes": nodes}, indent=1
        )  # fmt: skip


def _from_json(stored: Any) -> ClusterNote:
    if stored["format"] != FORMAT:
        raise ValueError(f"format {stored['format']}")
    nodes = {
        int(node): NodePorts(int(ports["port"]), ports["controller"])
        for node, ports in stored["nodes"].items()
    }
    return ClusterNote(str(stored["cluster"]), int(stored["copies"]), nodes, bool(stored["chosen"]))


def planned(brokers: int, *, first_port: int | None = None) -> ClusterNote:
    """A new cluster with up to three controllers and up to three replicas of each partition."""
    taken: set[int] = set()
    if first_port is not None:
        taken |= set(range(first_port, first_port + brokers))
    ports = sorted(taken) or [_new_port(taken) for _ in range(brokers)]
    controllers = 1 if brokers == 2 else min(brokers, 3)  # two need each other for a majority
    nodes = {
        number: NodePorts(port, _new_port(taken) if number <= controllers else None)
        for number, port in enumerate(ports, start=1)
    }
    return ClusterNote(new_cluster_id(), min(brokers, 3), nodes)


def _new_port(taken: set[int]) -> int:
    """A free port that is not in `taken`, to which it is added."""
    while (found := free_port()) in taken:
        pass
    taken.add(found)
    return found


@dataclass(frozen=True)
class ClusterFolder:
    """The files of one cluster's folder."""

    path: Path

    @classmethod
    def at(cls, path: Path | None = None) -> ClusterFolder:
        """The folder at `path`, by default `~/.millstream/brokers`."""
        return cls(Path(path).expanduser().absolute() if path else home_folder() / "brokers")

    @property
    def file(self) -> Path:
        return self.path / "cluster.json"

    def node(self, node: int) -> Path:
        """The folder of one broker."""
        return self.path / str(node)

    def note(self) -> ClusterNote | None:
        """The contents of `cluster.json`, or None if no cluster has used the folder."""
        try:
            return _from_json(json.loads(self.file.read_text()))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Damaged(
                f"a cluster's folder needs a readable {self.file} of format {FORMAT}",
                got=f"{type(error).__name__}: {error}",
                do="restore it from a backup, or move the folder away and start a new cluster",
            ) from error

    def existing(self) -> ClusterNote:
        """The contents of `cluster.json`.

        Raises:
            NotFound: the folder has no cluster.
        """
        note = self.note()
        if note is None:
            raise NotFound(
                f"there is no cluster in {self.path}",
                do="start one with `millstream up --brokers 3`",
            )
        return note

    def running_address(self) -> str | None:
        """Where the folder's cluster listens, or None if none of its nodes runs."""
        note = self.note()
        if note and any(BrokerFolder(self.node(node)).running_address() for node in note.nodes):
            return note.address
        return None

    def create(self, note: ClusterNote) -> ClusterNote:
        """Store a new cluster; if another process has stored one meanwhile, return that."""
        with written_in(self.path, "MILLSTREAM_HOME"):
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            written = self._write(note)
            try:
                os.link(written, self.file)
            except FileExistsError:
                return self.existing()
            finally:
                written.unlink()
        return note

    def replace(self, note: ClusterNote) -> None:
        """Store a changed cluster."""
        with written_in(self.path, "MILLSTREAM_HOME"):
            self._write(note).replace(self.file)

    def _write(self, note: ClusterNote) -> Path:
        """Write to a temporary file."""
        path = self.path / f"cluster.json.{os.getpid()}"
        with path.open("w", encoding="ascii") as file:
            file.write(note.to_json())
            file.flush()
            os.fsync(file.fileno())
        return path
