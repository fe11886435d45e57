"""Which Kafka a command talks to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.cli.terminal.output import detail
from millstream.errors import InvalidInput

if TYPE_CHECKING:
    from millstream.kafka.admin.topic_info import TopicInfo
    from millstream.kafka.admin.topics import Topics
    from millstream.kafka.settings import Cluster


def cluster_of(kafka: str | None) -> Cluster:
    """The cluster that is meant.

    Raises:
        Unavailable: none is named and none runs here.
    """
    from millstream.kafka.settings import Cluster

    cluster = Cluster.resolve(kafka)
    detail(f"kafka at {cluster.address}")
    return cluster


def topics_of(kafka: str | None) -> Topics:
    """What there is on the cluster that is meant; each call on it answers or fails in seconds."""
    from millstream.kafka.admin.topics import Topics

    return Topics(cluster_of(kafka))


def check_partitions(wanted: list[int], topic: TopicInfo) -> None:
    """Refuses partitions the topic does not have.

    Raises:
        InvalidInput: names the first of them.
    """
    there = [part.partition for part in topic.partitions]
    for partition in wanted:
        if partition not in there:
            raise InvalidInput(
                f"--partition needs one that {topic.name} has, 0 to {max(there)}",
                got=str(partition),
            )
