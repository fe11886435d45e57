"""The Kafka of this machine, be it one broker or a cluster of several."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.kafka.local import broker, cluster
from millstream.toolchain.folders import home_folder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def running_address() -> str | None:
    """Where the local Kafka listens, or None when none runs."""
    return broker.running_address() or cluster.running_address()


def outputs() -> list[Path]:
    """The files into which the local brokers print beside their own logs, which rotate."""
    home = home_folder()
    return [*home.glob("broker/broker.out"), *home.glob("brokers/*/broker.out")]


def stop(*, say: Callable[[str], None] | None = None) -> int:
    """End the local Kafka, whatever it is of; gives how many brokers were running."""
    count = len(cluster.status().running)
    cluster.stop(say=say)
    return count + broker.stop(say=say)
