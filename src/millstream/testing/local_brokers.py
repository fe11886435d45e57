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
    """One broker of a cluster, to be hurt."""

    def __init__(
        self, number: int, status: local.BrokerStatus, settings: Mapping[str, str | int]
    ) -> None:
        super().__init__(status, settings)
        self.number = number

    def start(self) -> None:
        """Bring it back after `kill` or `stop`: the same records, the same address."""
        cluster.start_node(self.number, self.folder.parent, settings=self._settings)


class ThrowAwayBrokers:
    """A cluster whose nodes can be killed, paused and started again, each by its number."""

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
        """One broker more, which holds nothing yet."""
        number = cluster.add(self.folder, settings=self._settings)
        status = cluster.status(self.folder).nodes[number]
        self.nodes[number] = ThrowAwayNode(number, status, self._settings)
        return self.nodes[number]

    def revive(self) -> None:
        """Every node runs again, those that were down started side by side."""
        for node in self.nodes.values():
            node.resume()
        if cluster.status(self.folder).down:
            cluster.start(self.folder, settings=self._settings)

    def mend(self, *, timeout: float = 180) -> None:
        """Bring everything back: every node runs, and every partition is in sync on all of its.

        Raises:
            TimeoutError: some partition is still not, after `timeout` seconds.
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
    except MillstreamError as trouble:
        return [str(trouble)]


@contextmanager
def brokers(
    count: int = 3,
    *,
    settings: Mapping[str, str | int] | None = None,
    timeout: float = 120,
) -> Iterator[ThrowAwayBrokers]:
    """A real Kafka of several brokers on free ports; all of it is gone afterwards.

        with brokers(3) as cluster:
            topics = Topics(cluster.address)
            cluster[1].kill()

    Topics are kept on three brokers and acknowledged by at least two, unless they say otherwise.
    It ends with the block, and with the process that runs it, even when that is killed.

    Args:
        count: how many; the first three are controllers too.
        settings: Kafka broker settings, such as `{"num.partitions": 4}`.
        timeout: seconds they get to answer.
    """
    told = {**QUICK, **(settings or {})}
    folder = Path(tempfile.mkdtemp(prefix="millstream-brokers-"))
    with watched(folder, "brokers"):
        status = cluster.start(folder, brokers=count, settings=told, timeout=timeout)
        yield ThrowAwayBrokers(status, told)
