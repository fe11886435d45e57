"""What librdkafka cannot ask a cluster, asked by Kafka's own protocol: who votes, what moves.

Five questions, each answered by any broker, which passes it on to the controller: DescribeQuorum,
AlterPartitionReassignments, ListPartitionReassignments, UnregisterBroker, ElectLeaders (librdkafka
has the last, and its Python side cannot call it). For listeners without security, as `wire.py`.
"""

from __future__ import annotations

import struct
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from millstream.errors import InvalidInput, MillstreamError, Unavailable
from millstream.kafka.protocol.flexible import NO_TAGS, Compact, many, text
from millstream.kafka.protocol.wire import Connection, WireError, place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from millstream.kafka.settings import Cluster

Slot = tuple[str, int]
_T = TypeVar("_T")

_QUORUM, _MOVE, _MOVING, _UNREGISTER, _ELECT = (55, 0), (45, 0), (46, 0), (64, 0), (43, 2)
_PATIENCE_MS = 10_000
_NO_REASSIGNMENT = 85
_PASSING = {6, 7, 41}
_CHANGING = 15.0  # seconds in which the controllers elect another leader
_LOOK = 0.2
_ERRORS = {
    6: "a broker that does not lead",
    7: "a controller that did not answer in time",
    37: "a number of partitions that is none",
    39: "a broker that is not there",
    41: "a broker that is no controller",
    60: "a move of that partition that is under way",
    102: "no such broker",
}


class _PassingError(MillstreamError):
    """The controllers are electing another leader: the same question may soon be answered."""


@dataclass(frozen=True, slots=True)
class Quorum:
    """The controllers: who leads them, who votes, who only listens, and how far each is."""

    leader: int
    epoch: int
    voters: Mapping[int, int]
    observers: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Move:
    """A partition on its way: the brokers it is on, those it comes to, those it leaves."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


def quorum(cluster: Cluster) -> Quorum:
    """Who controls the cluster."""
    topic = text("__cluster_metadata") + many([struct.pack(">i", 0) + NO_TAGS]) + NO_TAGS
    return _asked(cluster, _QUORUM, many([topic]) + NO_TAGS, _quorum)


def move(cluster: Cluster, to: Mapping[Slot, Sequence[int] | None]) -> None:
    """Have these partitions moved to these brokers, the first of them to lead; None ends a move.

    Raises:
        MillstreamError: the controller refuses one of them; none of its topic is then moved.
    """
    topics = [
        text(topic) + many(_wanted(partitions)) + NO_TAGS
        for topic, partitions in _by_topic(to).items()
    ]
    body = struct.pack(">i", _PATIENCE_MS) + many(topics) + NO_TAGS
    _asked(cluster, _MOVE, body, _moved)


def moving(cluster: Cluster) -> dict[Slot, Move]:
    """The partitions that are on their way now."""
    everything = struct.pack(">i", _PATIENCE_MS) + b"\0" + NO_TAGS
    return _asked(cluster, _MOVING, everything, _moves)


def elect(cluster: Cluster, slots: Iterable[Slot]) -> None:
    """Have these partitions led by the first of their brokers, where that one is in sync."""
    named: dict[str, list[int]] = {}
    for topic, partition in slots:
        named.setdefault(topic, []).append(partition)
    topics = [
        text(topic) + many(struct.pack(">i", p) for p in partitions) + NO_TAGS
        for topic, partitions in named.items()
    ]
    preferred = struct.pack(">b", 0)
    body = preferred + many(topics) + struct.pack(">i", _PATIENCE_MS) + NO_TAGS
    _asked(cluster, _ELECT, body, _elected)


def unregister(cluster: Cluster, node: int) -> None:
    """Have the cluster forget a broker that has gone for good."""
    _asked(cluster, _UNREGISTER, struct.pack(">i", node) + NO_TAGS, _forgotten)


def _asked(
    cluster: Cluster, kind: tuple[int, int], body: bytes, told: Callable[[Compact], _T]
) -> _T:
    """The answer of the first broker that gives one; while the controllers change it is awaited."""
    if cluster.settings:
        raise InvalidInput(
            "this needs a cluster with an open listener",
            got=f"one with {', '.join(sorted(cluster.settings))}",
            do="use Kafka's own kafka-reassign-partitions there",
        )
    until = time.monotonic() + _CHANGING
    while True:
        try:
            return _asked_once(cluster, kind, body, told)
        except _PassingError:
            if time.monotonic() > until:
                raise
        time.sleep(_LOOK)


def _asked_once(
    cluster: Cluster, kind: tuple[int, int], body: bytes, told: Callable[[Compact], _T]
) -> _T:
    trouble: OSError | None = None
    for server in cluster.address.split(","):
        try:
            connection = Connection(*place(server))
        except OSError as error:
            trouble = error
            continue
        try:
            connection.ask(kind, NO_TAGS + body)
            answer = Compact(connection.answer())
            answer.tags()
            return told(answer)
        except OSError as error:
            trouble = error
        finally:
            connection.close()
    raise Unavailable(f"this needs Kafka at {cluster.address} to answer", got=str(trouble))


def _quorum(told: Compact) -> Quorum:
    _refuse(told.number("h"), "")
    _only_one(told.count())
    told.text()
    _only_one(told.count())
    _, error, leader, epoch, _ = told.numbers("ihiiq")
    _refuse(error, "")
    voters, observers = _ends(told), _ends(told)
    return Quorum(leader, epoch, voters, observers)


def _only_one(things: range) -> None:
    if len(things) != 1:
        raise WireError("an answer about something else")


def _ends(told: Compact) -> dict[int, int]:
    found = {}
    for _ in told.count():
        node, end = told.numbers("iq")
        found[node] = end
        told.tags()
    return found


def _moved(told: Compact) -> None:
    _, error = told.numbers("ih")
    _refuse(error, told.text())
    for _ in told.count():
        topic = told.text()
        for _ in told.count():
            partition, error = told.numbers("ih")
            said = told.text()
            told.tags()
            if error != _NO_REASSIGNMENT:
                _refuse(error, said, f"{topic}/{partition}")
        told.tags()


def _moves(told: Compact) -> dict[Slot, Move]:
    _, error = told.numbers("ih")
    _refuse(error, told.text())
    found = {}
    for _ in told.count():
        topic = told.text()
        for _ in told.count():
            partition = told.number("i")
            found[topic, partition] = Move(*(told.numbers_list() for _ in range(3)))
            told.tags()
        told.tags()
    return found


def _elected(told: Compact) -> None:
    """A leader that is one already, or cannot be one now, is no failure of the request."""
    _, error = told.numbers("ih")
    _refuse(error, "")


def _forgotten(told: Compact) -> None:
    _, error = told.numbers("ih")
    _refuse(error, told.text())


def _refuse(error: int, said: str, what: str = "the cluster") -> None:
    if error:
        kind = _PassingError if error in _PASSING else MillstreamError
        raise kind(
            f"the controller needs to agree to a change of {what}",
            got=said or _ERRORS.get(error) or f"error {error}",
            do="see `millstream brokers list`",
        )


def _by_topic(
    to: Mapping[Slot, Sequence[int] | None],
) -> dict[str, dict[int, Sequence[int] | None]]:
    found: dict[str, dict[int, Sequence[int] | None]] = {}
    for (topic, partition), nodes in to.items():
        found.setdefault(topic, {})[partition] = nodes
    return found


def _wanted(partitions: Mapping[int, Sequence[int] | None]) -> Iterable[bytes]:
    for partition, nodes in partitions.items():
        named = b"\0" if nodes is None else many(struct.pack(">i", node) for node in nodes)
        yield struct.pack(">i", partition) + named + NO_TAGS
