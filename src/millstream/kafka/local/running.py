"""The Kafka that runs on this machine: a single broker or a cluster. Reads folders only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.kafka.local.broker_folder import BrokerFolder
from millstream.kafka.local.cluster_folder import ClusterFolder
from millstream.toolchain.folders import home_folder

if TYPE_CHECKING:
    from pathlib import Path


def running_address() -> str | None:
    """The address of the local Kafka, or None if none is running."""
    return BrokerFolder.at().running_address() or ClusterFolder.at().running_address()


def output_files() -> list[Path]:
    """The files with the standard output of local brokers; their log files rotate, these do not."""
    home = home_folder()
    return [*home.glob("broker/broker.out"), *home.glob("brokers/*/broker.out")]
