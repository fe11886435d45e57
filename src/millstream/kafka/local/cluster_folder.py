"""The folder of a local cluster: which nodes it has, where they listen, who votes.

cluster.json   format, the cluster's id, how many copies topics have, the nodes and their ports
1/ 2/ 3/ …     one broker's folder each
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
class NodePlace:
    """Where one node listens: for clients, and, if it votes, for the other controllers."""

    port: int
    controller: int | None = None


@dataclass(frozen=True)
class ClusterNote:
    """What a cluster remembers between starts; `chosen` says that `up` starts it by itself."""

    cluster: str
    copies: int
    nodes: Mapping[int, NodePlace] = field(default_factory=dict)
    chosen: bool = True

    @property
    def controllers(self) -> dict[int, int]:
        """The nodes that vote, and their ports."""
        return {
            node: place.controller
            for node, place in self.nodes.items()
            if place.controller is not None
        }

    @property
    def address(self) -> str:
        """Where clients begin: any of the nodes will do."""
        return ",".join(f"127.0.0.1:{place.port}" for _, place in sorted(self.nodes.items()))

    def seat(self, node: int) -> Seat:
        return Seat(self.controllers, node, self.cluster, self.copies, _HEAP)

    def text(self) -> str:
        nodes = {
            str(node): {"port": place.port, "controller": place.controller}
            for node, place in sorted(self.nodes.items())
        }
        return json.dumps(
            {"format": FORMAT, "cluster": self.cluster, "copies": self.copies,
             "chosen": self.chosen, "nodes": nodes}, indent=1
        )  # fmt: skip


def _note(told: Any) -> ClusterNote:
    if told["format"] != FORMAT:
        raise ValueError(f"format {told['format']}")
    nodes = {
        int(node): NodePlace(int(at["port"]), at["controller"])
        for node, at in told["nodes"].items()
    }
    return ClusterNote(str(told["cluster"]), int(told["copies"]), nodes, bool(told["chosen"]))


def planned(brokers: int, *, first_port: int | None = None) -> ClusterNote:
    """A new cluster: up to three of its nodes vote, each topic is kept on up to three."""
    taken: set[int] = set()
    if first_port is not None:
        taken |= set(range(first_port, first_port + brokers))
    ports = sorted(taken) or [_fresh(taken) for _ in range(brokers)]
    voters = 1 if brokers == 2 else min(brokers, 3)  # of two, either would stop the other
    nodes = {
        number: NodePlace(port, _fresh(taken) if number <= voters else None)
        for number, port in enumerate(ports, start=1)
    }
    return ClusterNote(new_cluster_id(), min(brokers, 3), nodes)


def _fresh(taken: set[int]) -> int:
    """A free port that is not among those taken, and is from now on."""
    while (found := free_port()) in taken:
        pass
    taken.add(found)
    return found


@dataclass(frozen=True)
class ClusterFolder:
    """The places inside one cluster's folder."""

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
        """What the folder remembers, or None when no cluster has used it."""
        try:
            told = json.loads(self.file.read_text())
            return _note(told)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Damaged(
                f"a cluster's folder needs a readable {self.file} of format {FORMAT}",
                got=f"{type(error).__name__}: {error}",
                do="bring it back from a copy, or move the folder away to begin anew",
            ) from error

    def known(self) -> ClusterNote:
        """What the folder remembers.

        Raises:
            NotFound: there has never been a cluster.
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

    def begin(self, note: ClusterNote) -> ClusterNote:
        """Remember a new cluster, or give the one that somebody else made meanwhile."""
        with written_in(self.path, "MILLSTREAM_HOME"):
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            fresh = self._written(note)
            try:
                os.link(fresh, self.file)
            except FileExistsError:
                return self.known()
            finally:
                fresh.unlink()
        return note

    def remember(self, note: ClusterNote) -> None:
        """Remember what has changed."""
        with written_in(self.path, "MILLSTREAM_HOME"):
            self._written(note).replace(self.file)

    def _written(self, note: ClusterNote) -> Path:
        fresh = self.path / f"cluster.json.{os.getpid()}"
        with fresh.open("w", encoding="ascii") as file:
            file.write(note.text())
            file.flush()
            os.fsync(file.fileno())
        return fresh
