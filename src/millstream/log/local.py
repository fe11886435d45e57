"""The Kafka of this machine, be it one broker or a cluster of several."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.log import broker, cluster

if TYPE_CHECKING:
    from collections.abc import Callable


def running_address() -> str | None:
    """Where the local Kafka listens, or None when none runs."""
    return broker.running_address() or cluster.running_address()


def stop(*, say: Callable[[str], None] | None = None) -> int:
    """End the local Kafka, whatever it is of; gives how many brokers were running."""
    count = len(cluster.status().running)
    cluster.stop(say=say)
    return count + broker.stop(say=say)
