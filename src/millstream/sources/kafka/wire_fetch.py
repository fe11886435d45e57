"""Fetches a topic's record batches over a plain socket and parses them into Arrow tables.

The next fetch is sent before the response to the previous one is parsed.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn

from millstream.kafka.ping import system_of
from millstream.kafka.protocol.batch_headers import BadBatch, Batch, UnknownFormat, batches
from millstream.kafka.protocol.connection import Address, Connection, parse_address
from millstream.kafka.protocol.fetch import fetch_request, parse_fetch_response
from millstream.kafka.protocol.messages import ProtocolError, UnexpectedResponse
from millstream.kafka.protocol.metadata import available_leaders
from millstream.kafka.protocol.record_batches import Records, pieces
from millstream.sources.kafka import errors
from millstream.sources.kafka.raw_tables import joined, raw_table

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    import pyarrow as pa

    from millstream.errors import DamagedLog, Unavailable
    from millstream.kafka.protocol.fetch import FetchedPartition
    from millstream.kafka.settings import Cluster
    from millstream.sources.spec import Ranges

_MAX_BYTES = 4 << 20  # of a partition in one fetch
_MAX_BYTES_OF_FEW = 256 << 10
_MAX_WAIT_MS = 100
_TIMEOUT = 120.0
_RETRY_SECONDS = 0.1
_REPORT_AFTER = 2.0  # seconds of an outage
_NEW_TOPIC_SECONDS = 5.0  # in which a new topic becomes known to every broker
_OUT_OF_RANGE, _CORRUPT, _UNKNOWN_TOPIC, _FORBIDDEN = 1, 2, 3, 29
_BEYOND = 1 << 31  # offsets after the high watermark; more are not written while a broker answers
_MAX_UNPACKED = 64 << 20  # bytes of values that `following` returns
_LEADER_CHANGES = {5, 6, 9, 56, 74, 75, 78, 100}


@dataclass(frozen=True, slots=True)
class _Prefetch:
    """A fetch that was sent before it is needed: its offsets, and the partitions per leader."""

    starts: Mapping[int, int] = field(default_factory=dict)
    sent: dict[Address, list[int]] = field(default_factory=dict)


class WireFetcher:
    """One topic of a cluster with an open listener.

    With `only` nothing but the records at these offsets is read, and less is fetched at once.
    """

    def __init__(
        self, cluster: Cluster, topic: str, *, waiting: Callable[[str], None] = lambda why: None,
        answered: Callable[[str], None] = lambda system: None,
        only: Mapping[int, Collection[int]] | None = None,
    ) -> None:  # fmt: skip
        self._only = only
        self._cluster, self._topic = cluster, topic
        self._waiting, self._on_answer = waiting, answered
        self._prefetched, self._reported = _Prefetch(), False
        self._leaders: dict[int, Address] = {}
        self._connections: dict[Address, Connection] = {}
        self._servers = deque(parse_address(server) for server in cluster.address.split(","))

    def read(
        self, ranges: Ranges, columns: Sequence[str], *, live: bool = False
    ) -> Iterator[pa.Table]:
        """As `Fetcher.read`; `live` makes no difference here."""
        done = {p: a for p, (a, b) in ranges.items() if b > a}
        ends = {p: b for p, (_, b) in ranges.items()}
        try:
            yield from self._fetched(done, ends, columns)
        except UnknownFormat:
            self.close()
            left = {p: (a, ends[p]) for p, a in done.items()}
            yield from self._by_librdkafka(left, columns)

    def _fetched(
        self, done: dict[int, int], ends: dict[int, int], columns: Sequence[str]
    ) -> Iterator[pa.Table]:
        """The records from the offsets in `done` on; these advance with what is yielded."""
        at, sent, began = dict(done), dict[Address, list[int]](), time.monotonic()
        while at:
            try:
                sent = sent or self._send(at, began)
                parts = self._receive(sent)
                whole = {part.partition: self._whole(part, at, ends) for part in parts}
                if self._advance(parts, whole, at, ends, began):
                    began = time.monotonic()
                    self._answered()
                sent = self._send(at, began) if at else {}
            except UnexpectedResponse as error:
                raise self._unexpected(at, error) from error
            except OSError as error:
                at, sent = {p: a for p, a in done.items() if a < ends[p]}, {}
                self._reconnect(began, str(error))
                continue
            for part in parts:
                yield from self._records(part, whole[part.partition], done, ends, columns)

    def _records(
        self, part: FetchedPartition, whole: Sequence[Batch], done: dict[int, int],
        ends: Mapping[int, int], columns: Sequence[str],
    ) -> Iterator[pa.Table]:  # fmt: skip
        partition = part.partition
        first, end = done[partition], ends[partition]
        try:
            only = None if self._only is None else self._only[partition]
            for found in pieces(
                part.records, whole, part.aborted, first, end,
                keys="key" in columns, headers="headers" in columns, only=only,
            ):  # fmt: skip
                if len(found.offsets):
                    yield raw_table(found, partition, columns)
                done[partition] = max(found.next, first)
        except BadBatch as bad:
            raise self._damaged(partition, bad) from None
        done[partition] = max([done[partition], *(batch.last + 1 for batch in whole)])

    def batch_at(self, partition: int, offset: int) -> Batch | None:
        """The header of the batch with this offset, or of the next one; None at the end.

        Raises:
            DamagedLog: that batch is damaged.
            OSError: no answer, or an error; a retry may succeed.
        """
        at = {partition: offset}
        for part in self._receive(self._send(at, time.monotonic())):
            if part.error:
                self._raise_error(part, offset, time.monotonic())
            return next(iter(self._whole(part, at, {partition: offset + 1})), None)
        return None

    def _whole(
        self, part: FetchedPartition, at: Mapping[int, int], ends: Mapping[int, int]
    ) -> list[Batch]:
        """The complete batches of a response, checked against the offset that was requested."""
        start = at[part.partition]
        try:
            whole = batches(part.records, end=ends.get(part.partition))
            _check_offsets(part, whole, start)
        except BadBatch as bad:
            first = min(bad.first, start) if bad.first >= 0 else start
            raise self._damaged(part.partition, BadBatch(first, bad.after, bad.why)) from None
        return whole

    def _damaged(self, partition: int, bad: BadBatch) -> DamagedLog:
        self.close()
        return errors.damaged(self._topic, partition, bad)

    def _unexpected(self, at: Mapping[int, int], error: UnexpectedResponse) -> Unavailable:
        self.close()
        offsets = ", ".join(f"partition {p} at offset {offset}" for p, offset in sorted(at.items()))
        got = f"{error} ({offsets})"
        return errors.unavailable(self._topic, self._cluster.address, got)

    def following(
        self, starts: Mapping[int, int], columns: Sequence[str], *, least: int, most: int
    ) -> tuple[Ranges, pa.Table] | None:
        """The records after these offsets and their ranges, once they are `least` bytes; None if
        there are fewer after a moment. Partition by partition, in order.

        Each partition returns its share of `most` bytes at most, and one share is enough.

        Raises:
            OSError: no answer, or an error; a retry may succeed.
            UnknownFormat: librdkafka has to read this log.
        """
        try:
            least = min(least, _share(starts, most))
            parts = self._receive(self._prefetch_of(starts) or self._send_for(starts, least, most))
        except UnexpectedResponse as error:
            raise self._unexpected(starts, error) from error
        except OSError:
            self.close()
            raise
        if code := next((part.error for part in parts if part.error), 0):
            self.close()
            raise ProtocolError(f"error {code}")
        if sum(len(part.records) for part in parts) < least:
            return None
        ranges, found = dict[int, tuple[int, int]](), dict[int, list[Records]]()
        size = 0
        for part in sorted(parts, key=lambda part: part.partition):
            first, whole = starts[part.partition], self._whole(part, starts, {})
            if not whole or size >= _MAX_UNPACKED:
                continue
            some, end = self._up_to(part, whole, first, size, keys="key" in columns)
            size += sum(piece.values.nbytes for piece in some)
            ranges[part.partition], found[part.partition] = (first, end), some
        if not ranges:
            return None
        return ranges, joined(found, columns)

    def _up_to(
        self, part: FetchedPartition, whole: Sequence[Batch], first: int, size: int, *, keys: bool
    ) -> tuple[list[Records], int]:
        """The records up to the offset where `size` reaches its limit or a batch is damaged."""
        end = whole[-1].last + 1
        while True:
            some: list[Records] = []
            try:
                for piece in pieces(part.records, whole, part.aborted, first, end, keys=keys):
                    some.append(piece)
                    if size + sum(one.values.nbytes for one in some) >= _MAX_UNPACKED:
                        return some, piece.next
            except BadBatch as bad:
                if bad.first <= first or bad.first >= end:
                    raise self._damaged(part.partition, bad) from None
                end = bad.first
                whole = [batch for batch in whole if batch.base < end]
            else:
                return some, end

    def prefetch(self, starts: Mapping[int, int], *, least: int, most: int) -> None:
        """Send the fetch for the next call of `following` with these arguments."""
        try:
            self._prefetched = _Prefetch(dict(starts), self._send_for(starts, least, most))
        except OSError:
            self.close()  # a response to part of it must not be taken for another one

    def _send_for(
        self, starts: Mapping[int, int], least: int, most: int
    ) -> dict[Address, list[int]]:
        share = _share(starts, most)
        return self._send(dict(starts), time.monotonic(), least=min(least, share), most=share)

    def _prefetch_of(self, starts: Mapping[int, int]) -> dict[Address, list[int]]:
        """The partitions per leader, if these offsets were prefetched; others are discarded."""
        prefetched, self._prefetched = self._prefetched, _Prefetch()
        if prefetched.starts == starts:
            return prefetched.sent
        if prefetched.sent:
            self.close()
        return {}

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            connection.close()
        self._connections, self._leaders = {}, {}
        self._prefetched = _Prefetch()

    def _send(
        self, at: dict[int, int], began: float, *, least: int = 1, most: int | None = None,
        wait_ms: int = _MAX_WAIT_MS,
    ) -> dict[Address, list[int]]:  # fmt: skip
        """Send a fetch to each leader; returns the partitions per leader."""
        if not set(at) <= set(self._leaders):
            self._leaders = self._find_leaders()
        if not self._leaders and time.monotonic() - began > _NEW_TOPIC_SECONDS:
            raise errors.unknown(self._topic, self._cluster.address)
        sent: dict[Address, list[int]] = {}
        for partition in at:
            if partition not in self._leaders:
                raise ProtocolError(f"partition {partition} has no leader")
            sent.setdefault(self._leaders[partition], []).append(partition)
        default = _MAX_BYTES if self._only is None else _MAX_BYTES_OF_FEW
        for leader, partitions in sent.items():
            offsets = [(partition, at[partition]) for partition in partitions]
            request = fetch_request(self._topic, offsets, max_bytes=most or default,
                                    max_wait_ms=wait_ms, min_bytes=least)  # fmt: skip
            self._connection(leader).send(request)
        return sent

    def _receive(self, sent: Mapping[Address, Collection[int]]) -> list[FetchedPartition]:
        return [
            part
            for leader, partitions in sent.items()
            for part in parse_fetch_response(
                self._connections[leader].receive(), self._topic, partitions
            )
        ]

    def _advance(
        self, parts: list[FetchedPartition], whole: Mapping[int, list[Batch]], at: dict[int, int],
        ends: dict[int, int], began: float,
    ) -> bool:  # fmt: skip
        """Advance the offsets of the next fetch; returns whether any did."""
        moved = False
        for part in parts:
            if part.error:
                self._raise_error(part, at[part.partition], began)
            if whole[part.partition]:
                at[part.partition], moved = whole[part.partition][-1].last + 1, True
            if at[part.partition] >= ends[part.partition]:
                del at[part.partition]
        if not moved and time.monotonic() - began > _TIMEOUT:
            raise errors.unavailable(self._topic, self._cluster.address, "no new records")
        return moved

    def _raise_error(self, part: FetchedPartition, offset: int, began: float) -> NoReturn:
        waited = time.monotonic() - began
        if part.error == _OUT_OF_RANGE:
            raise errors.gone(self._topic, part.partition, offset)
        if part.error == _CORRUPT:
            why = "a batch that the broker reports as corrupt"
            raise self._damaged(part.partition, BadBatch(offset, offset + 1, why))
        if part.error == _UNKNOWN_TOPIC and waited > _NEW_TOPIC_SECONDS:
            raise errors.unknown(self._topic, self._cluster.address)
        if part.error not in _LEADER_CHANGES | {_UNKNOWN_TOPIC}:
            raise errors.unavailable(self._topic, self._cluster.address, f"error {part.error}")
        raise ProtocolError(f"error {part.error}")

    def _reconnect(self, began: float, got: str) -> None:
        """Close all connections and wait before a retry, unless the outage is too long."""
        self.close()
        if time.monotonic() - began > _TIMEOUT:
            raise errors.unavailable(self._topic, self._cluster.address, got)
        if time.monotonic() - began > _REPORT_AFTER:
            self._reported = True
            self._waiting(errors.waiting(self._cluster.address, got))
        time.sleep(_RETRY_SECONDS)

    def _answered(self) -> None:
        if self._reported:
            self._reported = False
            self._on_answer(system_of(self._cluster))

    def _find_leaders(self) -> dict[int, Address]:
        """The leaders, from the first broker that answers; a broker that fails is tried last."""
        failure: OSError = ProtocolError("no broker is named")
        for server in tuple(self._servers):
            try:
                return available_leaders(self._connection(server), self._topic)
            except OSError as error:
                failure = error
                self._servers.rotate(-1)
                self.close()
        raise failure

    def _connection(self, address: Address) -> Connection:
        if address not in self._connections:
            self._connections[address] = Connection(*address)
        return self._connections[address]

    def _by_librdkafka(self, left: Ranges, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Record formats before version 2 are read by librdkafka."""
        from millstream.sources.kafka.librdkafka_fetch import ClientFetcher

        fetcher = ClientFetcher(self._cluster, self._topic)
        try:
            yield from fetcher.read(left, columns)
        finally:
            fetcher.close()


def _share(starts: Mapping[int, int], most: int) -> int:
    """The part of `most` bytes that each partition may return."""
    return max(1, most // len(starts))


def _check_offsets(part: FetchedPartition, whole: Sequence[Batch], start: int) -> None:
    """A response begins with the batch that contains the requested offset, or the next one."""
    why = None
    if not whole and part.records:
        why = f"{len(part.records)} bytes of a longer batch"
    elif whole and whole[0].last < start:
        why = f"a batch of offsets {whole[0].base} to {whole[0].last}"
    elif whole and whole[-1].last > part.high_watermark + _BEYOND:
        why = f"a batch that ends at {whole[-1].last}, where the log ends at {part.high_watermark}"
    if why is not None:
        raise BadBatch(start, start + 1, why)
