"""The Kafka cluster a command uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.cli.terminal.output import detail
from millstream.errors import InvalidInput

if TYPE_CHECKING:
    from millstream.kafka.admin.topic_info import TopicInfo
    from millstream.kafka.admin.topics import Topics
    from millstream.kafka.settings import Cluster


def cluster_of(kafka: str | None) -> Cluster:
    """The cluster at the address in `kafka`, else the local one.

    Raises:
        Unavailable: none is named and none runs here.
    """
    from millstream.kafka.settings import Cluster

    cluster = Cluster.resolve(kafka)
    detail(f"kafka at {cluster.address}")
    return cluster


def topics_of(kafka: str | None) -> Topics:
    """The topics of that cluster; each call answers or fails in seconds."""
    from millstream.kafka.admin.topics import Topics

    return Topics(cluster_of(kafka))


def check_partitions(wanted: list[int], topic: TopicInfo) -> None:
    """Refuse partitions the topic does not have.

    Raises:
        InvalidInput: the topic has no such partition.
    """
    existing = [part.partition for part in topic.partitions]
    for partition in wanted:
        if partition not in existing:
            raise InvalidInput(
                f"--partition needs one that {topic.name} has, 0 to {max(existing)}",
                got=str(partition),
            )
