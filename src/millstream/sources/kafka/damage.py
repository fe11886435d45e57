"""Finds the first readable offset after a damaged record batch.

The last offset in the header of a damaged batch may be damaged as well. So the log is searched for
the first offset after the batch from which an intact batch can be read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import DamagedLog
from millstream.sources.kafka import errors
from millstream.sources.kafka.wire_fetch import WireFetcher

if TYPE_CHECKING:
    from millstream.kafka.protocol.batch_headers import Batch
    from millstream.kafka.settings import Cluster


def behind(cluster: Cluster, topic: str, partition: int, offset: int, end: int) -> int | None:
    """The offset at which reading can continue, up to `end`; None if the batch is intact.

    Raises:
        Unavailable: Kafka does not answer.
    """
    log = _Log(cluster, topic, partition, end)
    try:
        guess = log.damage(offset)
        return None if guess is None else log.behind(offset, guess)
    finally:
        log.fetcher.close()


class _Log:
    """One partition up to an offset."""

    def __init__(self, cluster: Cluster, topic: str, partition: int, end: int) -> None:
        self.fetcher = WireFetcher(cluster, topic)
        self._topic, self._address = topic, cluster.address
        self._partition, self._end = partition, end

    def damage(self, offset: int) -> int | None:
        """If the batch at this offset is damaged, the end offset in its header."""
        columns = ["partition", "offset"]
        try:
            next(iter(self.fetcher.read({self._partition: (offset, self._end)}, columns)), None)
        except DamagedLog as error:
            if error.place is not None and error.place[1] <= offset:
                return error.place[2]
        return None

    def behind(self, offset: int, guess: int) -> int:
        """The first offset after a damaged one from which the log can be read."""
        if self._readable(guess):
            batch = self._batch(guess) if guess < self._end else None
            return (
                min(guess, self._end)
                if batch is None or batch.base <= offset
                else min(guess, batch.base)
            )
        damaged, step = offset, 1
        while not self._readable(damaged + step):
            damaged, step = damaged + step, 2 * step
        readable = damaged + step
        while readable - damaged > 1:
            middle = (damaged + readable) // 2
            if self._readable(middle):
                readable = middle
            else:
                damaged = middle
        return min(readable, self._end)

    def _readable(self, offset: int) -> bool:
        """Whether an intact batch can be read at an offset, or nothing is left to read."""
        try:
            return offset >= self._end or self._batch(offset) is not None
        except DamagedLog:
            return False

    def _batch(self, offset: int) -> Batch | None:
        try:
            return self.fetcher.batch_at(self._partition, offset)
        except OSError as error:
            raise errors.unavailable(self._topic, self._address, str(error)) from error
