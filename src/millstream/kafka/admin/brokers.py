"""The brokers of a cluster: their replicas and leaders, and moving partitions between them."""

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

OnProgress = Callable[[int, int], None]
"""Called with the number of partitions moved so far, and of all that are moved."""

_POLL_SECONDS = 0.2
_DOWN_SECONDS = 30.0  # for which a move waits for a broker that is down


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """One broker. `address` is None if it is down.

    `votes` is true for the controllers, `controls` for the active one. `holds` counts its
    replicas, `leads` the partitions it leads, and `behind` the replicas that are not in sync.
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
    [broker.node for broker in brokers.list() if broker.address is None]    # those that are down
    brokers.move("bids", to=[1, 2, 4])
    """

    def __init__(self, kafka: str | Cluster | None = None) -> None:
        self._cluster = Cluster.resolve(kafka)
        self._topics = Topics(self._cluster)
        self._link = Link(self._cluster)

    def quorum(self) -> Quorum:
        """The controllers."""
        return requests.describe_quorum(self._cluster)

    def list(self) -> tuple[BrokerInfo, ...]:
        """All brokers by number: those that are up, are controllers or have replicas."""
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
        on_progress: OnProgress | None = None,
    ) -> int:
        """Distribute a topic's partitions over these brokers, and return when all are moved.

        The brokers lead in turn. Records can be read and written during the move. Each partition
        keeps its number of replicas unless `replicas` is given (`min.insync.replicas` is then 1
        for one replica, and the default for several). Returns how many partitions were moved.

        Raises:
            InvalidInput: there is no such broker or partition, or fewer brokers than replicas.
        """
        info = self._topics.describe(topic)
        wanted = assign_replicas(info, self._checked(to), partitions=partitions, replicas=replicas)
        if replicas is not None and (replicas == 1) != (info.settings.get(IN_SYNC) == "1"):
            self._topics.alter(topic, settings={IN_SYNC: 1 if replicas == 1 else None})
        return self._move(wanted, on_progress)

    def drain(self, node: int, *, on_progress: OnProgress | None = None) -> int:
        """Move all replicas of a broker to the others, including those added meanwhile.

        Raises:
            InvalidInput: a partition has as many replicas as there are brokers.
        """
        alive = self._alive()
        if node not in alive:
            raise NotFound(f"there is no broker {node}", do=_choices(alive))
        others = [other for other in alive if other != node]
        moved = 0
        while wanted := drain_plan(node, self._topics.list(internal=True), others):
            moved += self._move(wanted, on_progress)
            time.sleep(_POLL_SECONDS)  # until every broker knows the new replicas
        return moved

    def partitions_on(self, node: int) -> Sequence[Slot]:
        """The partitions with a replica on a broker, which may be down."""
        partitions = self._link.partitions()
        return sorted(slot for slot, part in partitions.items() if node in part.replicas)

    def unregister(self, node: int) -> None:
        """Unregister a broker that has stopped permanently and has no replicas."""
        requests.unregister_broker(self._cluster, node)

    def _move(self, wanted: Mapping[Slot, Sequence[int]], on_progress: OnProgress | None) -> int:
        if not wanted:
            return 0
        requests.alter_reassignments(self._cluster, wanted)
        down: dict[int, float] = {}
        while left := wanted.keys() & requests.list_reassignments(self._cluster).keys():
            if on_progress is not None:
                on_progress(len(wanted) - len(left), len(wanted))
            down = self._down({node for slot in left for node in wanted[slot]}, down)
            time.sleep(_POLL_SECONDS)
        requests.elect_leaders(self._cluster, wanted)
        if on_progress is not None:
            on_progress(len(wanted), len(wanted))
        return len(wanted)

    def _down(self, nodes: Set[int], before: Mapping[int, float]) -> dict[int, float]:
        """Those of the brokers that are down, and since when.

        Raises:
            Unavailable: one has been down for too long.
        """
        now = time.monotonic()
        down = {node: before.get(node, now) for node in nodes - self._alive().keys()}
        for node, since in down.items():
            if now - since > _DOWN_SECONDS:
                raise Unavailable(
                    f"a move to broker {node} needs it to be up",
                    got=f"one that has been down for {_DOWN_SECONDS:.0f} seconds",
                    do="start it, and the move continues; or move the partitions to other brokers",
                )
        return down

    def _checked(self, nodes: Sequence[int]) -> Sequence[int]:
        alive = self._alive()
        for node in nodes:
            if node not in alive:
                raise InvalidInput(
                    "a move needs brokers that are up", got=f"broker {node}", do=_choices(alive)
                )
        if not nodes or len(set(nodes)) != len(nodes):
            raise InvalidInput("a move needs brokers, each once", got=repr(list(nodes)))
        return nodes

    def _alive(self) -> dict[int, str]:
        cluster = self._link.call(
            "asking for the brokers",
            lambda admin: admin.describe_cluster(request_timeout=ANSWER_TIME),
        )
        return {node.id: f"{node.host}:{node.port}" for node in cluster.nodes}


def assign_replicas(
    topic: TopicInfo,
    to: Sequence[int],
    *,
    partitions: Sequence[int] | None = None,
    replicas: int | None = None,
) -> dict[Slot, tuple[int, ...]]:
    """The new replicas of each partition: round-robin, so that leaders are balanced.

    Partitions that need no move are left out.
    """
    existing = {part.partition: part for part in topic.partitions}
    chosen = sorted(existing) if partitions is None else list(partitions)
    if missing := set(chosen) - existing.keys():
        raise InvalidInput(
            f"{topic.name} has partitions 0 to {max(existing)}", got=str(min(missing))
        )
    found: dict[Slot, tuple[int, ...]] = {}
    for number in chosen:
        copies = len(existing[number].replicas) if replicas is None else replicas
        if not 1 <= copies <= len(to):
            raise InvalidInput(
                f"{topic.name}/{number} needs at least as many brokers as replicas, {copies}",
                got=f"brokers {', '.join(map(str, to))}",
                do="choose more brokers or fewer replicas",
            )
        nodes = tuple(to[(number + index) % len(to)] for index in range(copies))
        if nodes != existing[number].replicas:
            found[topic.name, number] = nodes
    return found


def drain_plan(
    node: int, topics: Sequence[TopicInfo], others: Sequence[int]
) -> dict[Slot, tuple[int, ...]]:
    """The new replicas of a broker's partitions: each goes to the broker with the fewest."""
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
                    f"{len(part.replicas)} replicas",
                    got=f"too few without broker {node}",
                    do="add one first with `millstream brokers add`",
                )
            target = min(free, key=lambda other: (load[other], other))
            load[target] += 1
            found[topic.name, part.partition] = tuple(
                target if n == node else n for n in part.replicas
            )
    return found


def _choices(nodes: Mapping[int, str]) -> str:
    return f"choose one of {', '.join(map(str, sorted(nodes)))}"
