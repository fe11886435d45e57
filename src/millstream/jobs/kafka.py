"""The Kafka cluster of the stack and of each job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.jobs.registry import JobRegistry
from millstream.jobs.stack import KAFKA

if TYPE_CHECKING:
    from millstream.jobs.folders import StackFolder
    from millstream.kafka.settings import Cluster


def cluster_of(stack: StackFolder, job: str | None = None) -> Cluster:
    """Return the job's cluster, else the one given to `millstream up`, else the local one.

    Raises:
        NotFound: there is no such job.
        Unavailable: no cluster is configured and none runs on this machine.
    """
    from millstream.kafka.settings import Cluster

    with JobRegistry(stack.registry, read_only=True) as registry:
        own = None if job is None else registry.job(job).kafka
        return Cluster.resolve(own or registry.setting(KAFKA))
