"""What a local broker is told: its seat in its cluster, its listeners, and our choices for it."""

from __future__ import annotations

import uuid
from base64 import urlsafe_b64encode
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from millstream.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Mapping

# Paths are relative: a broker runs inside its folder, so that no character of the folder's name
# meets Kafka's list syntax.
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
    # A member of a share group gets its first record with its second heartbeat, and a dead one
    # keeps its partitions from the others for a session; who tries a queue out wants seconds.
    "group.share.session.timeout.ms": 10_000,
    "group.share.min.session.timeout.ms": 5000,
    "group.share.heartbeat.interval.ms": 1000,
    "group.share.min.heartbeat.interval.ms": 500,
    "group.share.min.record.lock.duration.ms": 1000,
    "group.share.max.record.lock.duration.ms": 3_600_000,
    # A laptop may sleep for weeks; a job's committed offsets must still be there.
    "offsets.retention.minutes": 525_600,
    # Record timestamps are event times here: old ones must not be deleted within minutes of their
    # arrival, future ones not refused. Size bounds the disk; a topic may set its own retention.
    "log.retention.ms": -1,
    "log.retention.bytes": 8 << 30,
    "log.message.timestamp.after.max.ms": (1 << 63) - 1,
    "log.cleaner.dedupe.buffer.size": 32 << 20,
}
# A killed broker is let in again, and its partitions are led by others, only when its old session
# has run out: 9 s by default. Alone it has nobody to give way to.
_ALONE: Mapping[str, str | int] = {
    "broker.session.timeout.ms": 2000,
    "broker.heartbeat.interval.ms": 400,
}
_AMONG_OTHERS: Mapping[str, str | int] = {
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
    """An id as Kafka gives it: 22 letters."""
    return urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


@dataclass(frozen=True)
class Seat:
    """The place of one node in its cluster.

    `controllers` are the nodes that vote, with their ports; a node that is not among them only
    holds records. `copies` is how many brokers a topic is kept on unless it says otherwise,
    `heap` the megabytes of memory Java may use for itself. `relayed` is a second port to listen
    on, and the one that its clients are told instead: that of a relay in between.
    """

    controllers: Mapping[int, int]
    node: int = 1
    cluster: str = field(default_factory=new_cluster_id)
    copies: int = 1
    heap: int = 512
    relayed: tuple[int, int] | None = None

    def settings(self, port: int, more: Mapping[str, str | int]) -> dict[str, str | int]:
        """All the node is told when it listens on this port.

        Raises:
            InvalidInput: one of `more` is the seat's own, or no setting.
        """
        alone = self.copies == 1
        return {
            **_DEFAULTS,
            **(_ALONE if alone else _AMONG_OTHERS),
            **self._copies(),
            **checked(more),
            **_EVERY_NODE,
            **self._place(port),
        }

    def _place(self, port: int) -> dict[str, str | int]:
        open_at = {"BROKER": port}
        told = {"BROKER": port}
        if self.relayed is not None:
            open_at["RELAYED"], told["RELAYED"] = self.relayed
        if self.node in self.controllers:
            open_at["CONTROLLER"] = self.controllers[self.node]
        return {
            "process.roles": "broker,controller" if "CONTROLLER" in open_at else "broker",
            "node.id": self.node,
            "listeners": _listeners(open_at),
            "advertised.listeners": _listeners(told),
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
    """The settings, if a user may give them."""
    for name, value in settings.items():
        if name in _OWN:
            raise InvalidInput(
                "a local broker's place, roles and listeners are its own",
                got=f"the setting {name!r}",
                do="leave it out",
            )
        if not (text := f"{name}={value}").isascii() or not text.isprintable():
            raise InvalidInput(
                "a broker's setting is one line of plain ASCII", got=repr(text), do="rewrite it"
            )
    return settings


def properties(settings: Mapping[str, str | int]) -> str:
    """The settings as a file of Java's."""
    return "".join(f"{name}={_escaped(value)}\n" for name, value in settings.items())


def _escaped(value: str | int) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text.replace("\\", "\\\\")
