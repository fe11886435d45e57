"""The settings of a local broker: its role in its cluster, its listeners, and our defaults."""

from __future__ import annotations

import uuid
from base64 import urlsafe_b64encode
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from millstream.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Mapping

# Paths are relative, because Kafka would read a comma in a path as a list: a broker's working
# directory is its folder.
_EVERY_NODE: Mapping[str, str | int] = {
    "listener.security.protocol.map": "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT,RELAYED:PLAINTEXT",
    "inter.broker.listener.name": "BROKER",
    "controller.listener.names": "CONTROLLER",
    "log.dirs": "data",
}
_DEFAULTS: Mapping[str, str | int] = {
    "offsets.topic.num.partitions": 4,
    "transaction.state.log.num.partitions": 4,
    "share.coordinator.state.topic.num.partitions": 4,
    "group.initial.rebalance.delay.ms": 0,
    # A member of a share group gets its first record with its second heartbeat, and the partitions
    # of a dead one are reassigned after a session timeout: keep both short.
    "group.share.session.timeout.ms": 10_000,
    "group.share.min.session.timeout.ms": 5000,
    "group.share.heartbeat.interval.ms": 1000,
    "group.share.min.heartbeat.interval.ms": 500,
    "group.share.min.record.lock.duration.ms": 1000,
    "group.share.max.record.lock.duration.ms": 3_600_000,
    # Committed offsets must survive weeks in which a laptop sleeps.
    "offsets.retention.minutes": 525_600,
    # Record timestamps are event times: old records must not be deleted minutes after they arrive,
    # and future ones not be refused. Size limits the disk; a topic may set its own retention.
    "log.retention.ms": -1,
    "log.retention.bytes": 8 << 30,
    "log.message.timestamp.after.max.ms": (1 << 63) - 1,
    "log.cleaner.dedupe.buffer.size": 32 << 20,
}
# A killed broker can register again, and others lead its partitions, only after its session has
# expired: 9 s by default.
_SINGLE: Mapping[str, str | int] = {
    "broker.session.timeout.ms": 2000,
    "broker.heartbeat.interval.ms": 400,
}
_IN_CLUSTER: Mapping[str, str | int] = {
    "broker.session.timeout.ms": 3000,
    "broker.heartbeat.interval.ms": 500,
}
_OWN = frozenset(_EVERY_NODE) | {
    "process.roles",
    "node.id",
    "listeners",
    "advertised.listeners",
    "controller.quorum.voters",
    "controller.quorum.bootstrap.servers",
    "metadata.log.dir",
    "log.dir",
    "broker.id",
}


def new_cluster_id() -> str:
    """A random cluster id in Kafka's form: 22 characters."""
    return urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


@dataclass(frozen=True)
class Seat:
    """The role of one node in its cluster.

    `controllers` are the ports of the controller nodes; a node that is not among them is a broker
    only. `copies` is the default replication factor of topics, `heap` the size of Java's heap in
    megabytes. `relayed` is a second port to listen on, and the port advertised for it: that of a
    relay between clients and the broker.
    """

    controllers: Mapping[int, int]
    node: int = 1
    cluster: str = field(default_factory=new_cluster_id)
    copies: int = 1
    heap: int = 512
    relayed: tuple[int, int] | None = None

    def settings(self, port: int, more: Mapping[str, str | int]) -> dict[str, str | int]:
        """All settings of a node that listens on this port, with `more` from the user.

        Raises:
            InvalidInput: one of `more` is set by the seat, or is malformed.
        """
        return {
            **_DEFAULTS,
            **(_SINGLE if self.copies == 1 else _IN_CLUSTER),
            **self._copies(),
            **checked(more),
            **_EVERY_NODE,
            **self._place(port),
        }

    def _place(self, port: int) -> dict[str, str | int]:
        listening = {"BROKER": port}
        advertised = {"BROKER": port}
        if self.relayed is not None:
            listening["RELAYED"], advertised["RELAYED"] = self.relayed
        if self.node in self.controllers:
            listening["CONTROLLER"] = self.controllers[self.node]
        return {
            "process.roles": "broker,controller" if "CONTROLLER" in listening else "broker",
            "node.id": self.node,
            "listeners": _listeners(listening),
            "advertised.listeners": _listeners(advertised),
            "controller.quorum.voters": ",".join(
                f"{node}@127.0.0.1:{at}" for node, at in sorted(self.controllers.items())
            ),
        }

    def _copies(self) -> dict[str, str | int]:
        least = 2 if self.copies > 2 else 1
        return {
            "default.replication.factor": self.copies,
            "offsets.topic.replication.factor": self.copies,
            "transaction.state.log.replication.factor": self.copies,
            "share.coordinator.state.topic.replication.factor": self.copies,
            "min.insync.replicas": least,
            "transaction.state.log.min.isr": least,
            "share.coordinator.state.topic.min.isr": least,
        }


def _listeners(ports: Mapping[str, int]) -> str:
    return ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())


def checked(settings: Mapping[str, str | int]) -> Mapping[str, str | int]:
    """The settings, if a user may set them."""
    for name, value in settings.items():
        if name in _OWN:
            raise InvalidInput(
                "a local broker's roles, listeners and folders are set by Millstream",
                got=f"the setting {name!r}",
                do="omit it",
            )
        if not (text := f"{name}={value}").isascii() or not text.isprintable():
            raise InvalidInput(
                "a broker's setting needs one line of plain ASCII", got=repr(text), do="rewrite it"
            )
    return settings


def properties(settings: Mapping[str, str | int]) -> str:
    """The settings as a Java properties file."""
    return "".join(f"{name}={_escaped(value)}\n" for name, value in settings.items())


def _escaped(value: str | int) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text.replace("\\", "\\\\")
