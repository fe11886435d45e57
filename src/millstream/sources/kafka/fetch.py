"""Fetches records of a topic where they are decoded: on the driver, or in Spark's workers.

No record passes through the JVM before it is decoded. Only committed records are read.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa

    from millstream.kafka.settings import Cluster
    from millstream.sources.spec import Ranges


class Fetcher(Protocol):
    """Reads one topic range by range; connections stay open between ranges."""

    def read(
        self, ranges: Ranges, columns: Sequence[str], *, live: bool = False
    ) -> Iterator[pa.Table]:
        """The records of these ranges (`raw_schema`), in order within each partition.

        With `live` the ranges end at the current end of the log.

        Raises:
            DamagedLog: some of them cannot be read.
            DataGone: the log no longer holds some of them.
            NotFound: there is no such topic.
            Unavailable: no data for two minutes.
        """

    def close(self) -> None:
        """Close all connections."""


def fetcher(
    cluster: Cluster,
    topic: str,
    *,
    waiting: Callable[[str], None] = lambda why: None,
    answered: Callable[[str], None] = lambda system: None,
) -> Fetcher:
    """Return the faster fetcher if the listener is unsecured, otherwise librdkafka.

    `waiting` is called with the reason if it waits for more than a moment, `answered` with the name
    of the cluster when that is over.
    """
    if cluster.settings:
        from millstream.sources.kafka.librdkafka_fetch import ClientFetcher

        return ClientFetcher(cluster, topic)
    from millstream.sources.kafka.wire_fetch import WireFetcher

    return WireFetcher(cluster, topic, waiting=waiting, answered=answered)


@dataclass(frozen=True)
class Fetch:
    """The function of the Spark tasks: task n reads the n-th slice."""

    cluster: Cluster
    topic: str
    slices: tuple[tuple[int, int, int], ...]
    columns: tuple[str, ...]

    def __call__(self, numbers: Iterable[int]) -> Iterator[pa.RecordBatch]:
        """The records of the slices with these numbers."""
        here = worker_fetcher(self.cluster, self.topic)
        for number in numbers:
            partition, first, end = self.slices[number]
            for table in here.read({partition: (first, end)}, self.columns):
                yield from table.to_batches()


def sliced(ranges: Ranges, least: int) -> tuple[tuple[int, int, int], ...]:
    """Divide ranges into at least `least` slices if they are large; a slice is in one partition."""
    slices = [(p, a, b) for p, (a, b) in sorted(ranges.items()) if b > a]
    while 0 < len(slices) < least:
        place = max(range(len(slices)), key=lambda n: slices[n][2] - slices[n][1])
        partition, first, end = slices[place]
        if end - first < 2:
            break
        middle = (first + end) // 2
        slices[place : place + 1] = [(partition, first, middle), (partition, middle, end)]
    return tuple(slices)


@cache
def worker_fetcher(cluster: Cluster, topic: str) -> Fetcher:
    """The fetcher of this worker process, kept for later tasks."""
    return fetcher(cluster, topic)
