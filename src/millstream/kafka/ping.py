"""Whether a Kafka cluster is there: a broker answers, and the partitions of topics have leaders."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from millstream.kafka.protocol.connection import Connection, parse_address
from millstream.kafka.protocol.messages import ProtocolError
from millstream.kafka.protocol.metadata import metadata_request, parse_metadata_response

if TYPE_CHECKING:
    from millstream.kafka.librdkafka import Link
    from millstream.kafka.protocol.metadata import Metadata
    from millstream.kafka.settings import Cluster

_SECONDS = 2.0


def system_of(cluster: Cluster) -> str:
    """The name under which an outage of this cluster is reported."""
    return system_at(cluster.address)


def system_at(address: str) -> str:
    """The same, of the cluster at this address."""
    return f"Kafka at {address}"


class KafkaPing:
    """Asks a cluster for these topics, on a connection that it keeps.

    With security settings librdkafka asks, and only whether a broker answers.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.topics: frozenset[str] = frozenset()
        self._cluster = cluster
        self._servers = deque(parse_address(server) for server in cluster.address.split(","))
        self._connection: Connection | None = None
        self._link: Link | None = None

    def ask(self) -> None:
        """Return if the cluster answers.

        Raises:
            OSError: no broker answers, or a partition has no leader.
            Unavailable: the same, as librdkafka says it.
        """
        if self._cluster.settings:
            self._ask_by_librdkafka()
            return
        for topic in self._metadata().topics:
            missing = sum(leader < 0 for leader in topic.leaders.values())
            if missing:
                several = f"{missing} of {len(topic.leaders)} partitions of {topic.name}"
                raise ProtocolError(f"{several} have no leader")

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
        self._connection = self._link = None

    def _metadata(self) -> Metadata:
        failure: OSError = ProtocolError("no broker is named")
        for host, port in tuple(self._servers):
            try:
                if self._connection is None:
                    seconds = _SECONDS / len(self._servers)
                    self._connection = Connection(host, port, timeout=seconds)
                request = metadata_request(*sorted(self.topics))
                return parse_metadata_response(self._connection.call(request))
            except OSError as error:
                failure = error
                self.close()
                self._servers.rotate(-1)
        raise failure

    def _ask_by_librdkafka(self) -> None:
        from millstream.kafka.librdkafka import Link

        self._link = self._link or Link(self._cluster)
        self._link.ping(_SECONDS)
