"""Which Kafka the stack means, and which one a job does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.jobs.registry import Book
from millstream.jobs.stack import KAFKA

if TYPE_CHECKING:
    from millstream.jobs.folders import StackPlace
    from millstream.kafka.settings import Cluster


def cluster_of(place: StackPlace, job: str | None = None) -> Cluster:
    """The cluster that a job was given, else the stack's: the one `up` was told, else the local.

    Raises:
        NotFound: there is no such job.
        Unavailable: none is named and none runs here.
    """
    from millstream.kafka.settings import Cluster

    with Book(place.book, read_only=True) as book:
        own = None if job is None else book.job(job).kafka
        return Cluster.resolve(own or book.setting(KAFKA))
