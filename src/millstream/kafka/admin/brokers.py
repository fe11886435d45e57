"""The brokers of a cluster: what each holds and leads, and moving partitions between them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.errors import InvalidInput, NotFound, Unavailable
from millstream.kafka.admin.topics import Topics
from millstream.kafka.librdkafka import ANSWER_TIME, Link
from millstream.kafka.protocol import cluster as requests
from millstream.kafka.settings import Cluster
from millstream.kafka.topic_settings import IN_SYNC

if TYPE_CHECKING:
    from millstream.kafka.admin.topic_info import TopicInfo
    from millstream.kafka.positions import Slot
    from millstream.kafka.protocol.cluster import Quorum

Told = Callable[[int, int], None]
"""Told how many partitions have arrived, of how many."""

_LOOK = 0.2
_ABSENT = 30.0  # seconds after which a broker that is down is not waited for


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """One broker. `address` is None for one that is down.

    `votes` says that it is one of the controllers, `controls` that it is the one in charge;
    `holds` counts the partitions it keeps, `leads` those it leads, and `behind` those of which
    it lacks the newest records.
    """

    node: int
    address: str | None
    votes: bool
    controls: bool
    holds: int
    leads: int
    behind: int


class Brokers:
    """The brokers of a cluster with an open listener.

    brokers = Brokers()
    [broker.node for broker in brokers.list() if broker.address is None]    # those down
    brokers.move("bids", to=[1, 2, 4])
    """

    def __init__(self, kafka: str | Cluster | None = None) -> None:
        self._cluster = Cluster.resolve(kafka)
        self._topics = Topics(self._cluster)
        self._link = Link(self._cluster)

    def quorum(self) -> Quorum:
        """Who controls the cluster."""
        return requests.describe_quorum(self._cluster)

    def list(self) -> tuple[BrokerInfo, ...]:
        """All brokers by number: those that answer, those that vote, those that hold something."""
        addresses, quorum = self._alive(), self.quorum()
        holds: Counter[int] = Counter()
        leads: Counter[int] = Counter()
        behind: Counter[int] = Counter()
        for part in self._link.partitions().values():
            holds.update(part.replicas)
            behind.update(set(part.replicas) - set(part.isrs))
            leads[part.leader] += 1
        return tuple(
            BrokerInfo(node, addresses.get(node), node in quorum.voters, node == quorum.leader,
                       holds[node], leads[node], behind[node])
            for node in sorted({*addresses, *quorum.voters, *holds})
        )  # fmt: skip

    def move(
        self,
        topic: str,
        to: Sequence[int],
        *,
        partitions: Sequence[int] | None = None,
        replicas: int | None = None,
        told: Told | None = None,
    ) -> int:
        """Spread a topic's partitions over these brokers and return when they are there.

        They take turns in leading. Records can be read and written meanwhile. Each partition
        keeps the number of its copies unless `replicas` says another (`min.insync.replicas` is
        then 1 for one copy, and no longer so for several). Gives how many partitions were moved.

        Raises:
            InvalidInput: a broker or partition is not there, or brokers are fewer than copies.
        """
        info = self._topics.describe(topic)
        wanted = spread(info, self._checked(to), partitions=partitions, replicas=replicas)
        if replicas is not None and (replicas == 1) != (info.settings.get(IN_SYNC) == "1"):
            self._topics.alter(topic, settings={IN_SYNC: 1 if replicas == 1 else None})
        return self._move(wanted, told)

    def empty(self, node: int, *, told: Told | None = None) -> int:
        """Move all that a broker holds to the others, and return when it holds nothing.

        What is made on it meanwhile is moved as well.

        Raises:
            InvalidInput: a partition has as many copies as there are brokers.
        """
        alive = self._alive()
        if node not in alive:
            raise NotFound(f"there is no broker {node}", do=_those(alive))
        others = [other for other in alive if other != node]
        moved = 0
        while wanted := without(node, self._topics.list(internal=True), others):
            moved += self._move(wanted, told)
            time.sleep(_LOOK)  # for the change to be known to whoever is asked next
        return moved

    def held(self, node: int) -> Sequence[Slot]:
        """The partitions that a broker keeps, up or down."""
        kept = self._link.partitions()
        return sorted(slot for slot, part in kept.items() if node in part.replicas)

    def forget(self, node: int) -> None:
        """Have the cluster forget a broker that has ended and holds nothing."""
        requests.unregister_broker(self._cluster, node)

    def _move(self, wanted: Mapping[Slot, Sequence[int]], told: Told | None) -> int:
        if not wanted:
            return 0
        requests.alter_reassignments(self._cluster, wanted)
        absent: dict[int, float] = {}
        while left := wanted.keys() & requests.list_reassignments(self._cluster).keys():
            if told is not None:
                told(len(wanted) - len(left), len(wanted))
            absent = self._absent({node for slot in left for node in wanted[slot]}, absent)
            time.sleep(_LOOK)
        requests.elect_leaders(self._cluster, wanted)
        if told is not None:
            told(len(wanted), len(wanted))
        return len(wanted)

    def _absent(self, nodes: Set[int], before: Mapping[int, float]) -> dict[int, float]:
        """Since when each of these that is down has been found down.

        Raises:
            Unavailable: one has been so for long.
        """
        now = time.monotonic()
        absent = {node: before.get(node, now) for node in nodes - self._alive().keys()}
        for node, since in absent.items():
            if now - since > _ABSENT:
                raise Unavailable(
                    f"a move to broker {node} needs it to be up",
                    got=f"one that has been down for {_ABSENT:.0f} seconds",
                    do="start it: the move is not given up and goes on when it is there; or "
                    "move the partitions elsewhere",
                )
        return absent

    def _checked(self, nodes: Sequence[int]) -> Sequence[int]:
        alive = self._alive()
        for node in nodes:
            if node not in alive:
                raise InvalidInput(
                    "a move needs brokers that are up", got=f"broker {node}", do=_those(alive)
                )
        if not nodes or len(set(nodes)) != len(nodes):
            raise InvalidInput("a move needs brokers, each once", got=repr(list(nodes)))
        return nodes

    def _alive(self) -> dict[int, str]:
        told = self._link.call(
            "asking for the brokers",
            lambda admin: admin.describe_cluster(request_timeout=ANSWER_TIME),
        )
        return {node.id: f"{node.host}:{node.port}" for node in told.nodes}


def spread(
    topic: TopicInfo,
    to: Sequence[int],
    *,
    partitions: Sequence[int] | None = None,
    replicas: int | None = None,
) -> dict[Slot, tuple[int, ...]]:
    """Which brokers each partition belongs on: in turn, so that each leads as many as another.

    Partitions that are there already are left out.
    """
    there = {part.partition: part for part in topic.partitions}
    chosen = sorted(there) if partitions is None else list(partitions)
    if missing := set(chosen) - there.keys():
        raise InvalidInput(f"{topic.name} has partitions {_span(there)}", got=str(min(missing)))
    found: dict[Slot, tuple[int, ...]] = {}
    for number in chosen:
        copies = len(there[number].replicas) if replicas is None else replicas
        if not 1 <= copies <= len(to):
            raise InvalidInput(
                f"{topic.name}/{number} needs at least as many brokers as copies, {copies}",
                got=f"brokers {', '.join(map(str, to))}",
                do="name more brokers, or fewer copies",
            )
        nodes = tuple(to[(number + place) % len(to)] for place in range(copies))
        if nodes != there[number].replicas:
            found[topic.name, number] = nodes
    return found


def without(
    node: int, topics: Sequence[TopicInfo], others: Sequence[int]
) -> dict[Slot, tuple[int, ...]]:
    """Where partitions go that a broker holds: each time to the one that then holds least."""
    load = Counter(n for topic in topics for part in topic.partitions for n in part.replicas)
    found: dict[Slot, tuple[int, ...]] = {}
    for topic in topics:
        for part in topic.partitions:
            if node not in part.replicas:
                continue
            free = [other for other in others if other not in part.replicas]
            if not free:
                raise InvalidInput(
                    f"{topic.name}/{part.partition} needs a broker for each of its "
                    f"{len(part.replicas)} copies",
                    got=f"no other than those without broker {node}",
                    do="add one first with `millstream brokers add`",
                )
            heir = min(free, key=lambda other: (load[other], other))
            load[heir] += 1
            found[topic.name, part.partition] = tuple(
                heir if n == node else n for n in part.replicas
            )
    return found


def _those(nodes: Mapping[int, str]) -> str:
    return f"there are {', '.join(map(str, sorted(nodes)))}"


def _span(partitions: Mapping[int, object]) -> str:
    return f"0 to {max(partitions)}"
