"""A real cluster of several brokers for the length of a `with` block."""

from __future__ import annotations

import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.kafka.local import broker as local
from millstream.kafka.local import cluster
from millstream.testing.local_broker import QUICK, ThrowAwayBroker
from millstream.testing.watchdog import watched

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_LOOK = 0.1


class ThrowAwayNode(ThrowAwayBroker):
    """One broker of a cluster."""

    def __init__(
        self, number: int, status: local.BrokerStatus, settings: Mapping[str, str | int]
    ) -> None:
        super().__init__(status, settings)
        self.number = number

    def start(self) -> None:
        """Start it after `kill` or `stop`, with the same records and address."""
        cluster.start_node(self.number, self.folder.parent, settings=self._settings)


class ThrowAwayBrokers:
    """A cluster whose nodes can be killed, paused and started again, by their number."""

    def __init__(self, status: cluster.ClusterStatus, settings: Mapping[str, str | int]) -> None:
        assert status.address is not None
        self.folder = status.folder
        self.address: str = status.address
        self.controllers = status.controllers
        self.nodes = {n: ThrowAwayNode(n, s, settings) for n, s in status.nodes.items()}
        self._settings = settings

    def __getitem__(self, node: int) -> ThrowAwayNode:
        return self.nodes[node]

    def add(self) -> ThrowAwayNode:
        """Add a broker, which has no partitions yet."""
        number = cluster.add(self.folder, settings=self._settings)
        status = cluster.status(self.folder).nodes[number]
        self.nodes[number] = ThrowAwayNode(number, status, self._settings)
        return self.nodes[number]

    def revive(self) -> None:
        """Resume paused nodes and start those that are down, all at once."""
        for node in self.nodes.values():
            node.resume()
        if cluster.status(self.folder).down:
            cluster.start(self.folder, settings=self._settings)

    def repair(self, *, timeout: float = 180) -> None:
        """Start every node, and wait until all replicas of every partition are in sync.

        Raises:
            TimeoutError: a partition is not in sync after `timeout` seconds.
        """
        from millstream.kafka.admin.topics import Topics

        self.revive()
        until = time.monotonic() + timeout
        while behind := _behind(Topics(self.address)):
            if time.monotonic() > until:
                raise TimeoutError(f"{', '.join(behind)} not in sync after {timeout:g} s")
            time.sleep(_LOOK)


def _behind(topics: object) -> list[str]:
    from millstream.errors import MillstreamError
    from millstream.kafka.admin.topics import Topics

    assert isinstance(topics, Topics)
    try:
        return [
            f"{topic.name}/{part.partition}"
            for topic in topics.list(internal=True)
            for part in topic.partitions
            if part.leader is None or set(part.isr) != set(part.replicas)
        ]
    except MillstreamError as error:
        return [str(error)]


@contextmanager
def brokers(
    count: int = 3,
    *,
    settings: Mapping[str, str | int] | None = None,
    timeout: float = 120,
) -> Iterator[ThrowAwayBrokers]:
    """A real Kafka of several brokers on free ports, removed afterwards.

        with brokers(3) as cluster:
            topics = Topics(cluster.address)
            cluster[1].kill()

    By default topics have three replicas and `min.insync.replicas` of two. It ends with the block
    or with this process, even if that is killed.

    Args:
        count: how many; the first three are controllers too.
        settings: Kafka broker settings, such as `{"num.partitions": 4}`.
        timeout: seconds until they have to answer.
    """
    merged = {**QUICK, **(settings or {})}
    folder = Path(tempfile.mkdtemp(prefix="millstream-brokers-"))
    with watched(folder, "brokers"):
        status = cluster.start(folder, brokers=count, settings=merged, timeout=timeout)
        yield ThrowAwayBrokers(status, merged)
