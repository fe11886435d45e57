"""Records of a topic as Arrow, fetched as bytes and parsed all at once.

While a fetch is parsed, the broker is already busy with the next one.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from millstream.kafka.protocol import wire
from millstream.kafka.protocol.batch_headers import BadBatch, Batch, UnknownFormat, batches
from millstream.kafka.protocol.record_batches import Headers, Records, pieces
from millstream.kafka.protocol.wire import Place
from millstream.sources.kafka import errors as troubles
from millstream.sources.spec import raw_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from millstream.errors import DamagedLog, Unavailable
    from millstream.kafka.protocol.wire import Connection, Part
    from millstream.kafka.settings import Cluster
    from millstream.sources.spec import Ranges

_MOST = 4 << 20
_MOST_OF_FEW = 256 << 10
_WAIT = 100
_PATIENCE = 120.0
_FEW = 256  # records of several partitions that are put together
_AGAIN = 0.1
_TOLD_AFTER = 2.0
_NO_SUCH_TOPIC_SECONDS = 5.0
_OUT_OF_RANGE, _CORRUPT, _UNKNOWN_TOPIC, _FORBIDDEN = 1, 2, 3, 29
_BEYOND = 1 << 31  # offsets behind the high watermark, which no broker writes while it answers
_MOST_UNPACKED = 64 << 20  # bytes of values that are put together as what follows
_LONGEST_STAMP = (1 << 63) // 1000 - 1  # milliseconds
_MOVED = {5, 6, 9, 56, 74, 75, 78, 100}  # another leads, or will soon: ask again


@dataclass(frozen=True, slots=True)
class _Early:
    """A question that was asked before somebody wanted to know: offsets, and of whom."""

    starts: Mapping[int, int] = field(default_factory=dict)
    asked: dict[Place, list[int]] = field(default_factory=dict)


class WireFetcher:
    """One topic of a cluster with an open listener.

    With `only` nothing but the records at these offsets is read, and less is fetched at once.
    """

    def __init__(
        self, cluster: Cluster, topic: str, *, waiting: Callable[[str], None] = lambda why: None,
        only: Mapping[int, Collection[int]] | None = None,
    ) -> None:  # fmt: skip
        self._only = only
        self._cluster, self._topic, self._waiting = cluster, topic, waiting
        self._early = _Early()
        self._leaders: dict[int, Place] = {}
        self._connections: dict[Place, Connection] = {}
        self._servers = deque(wire.place(server) for server in cluster.address.split(","))

    def read(
        self, ranges: Ranges, columns: Sequence[str], *, live: bool = False
    ) -> Iterator[pa.Table]:
        """As `Fetcher.read`; live or not is all the same here."""
        given = {p: a for p, (a, b) in ranges.items() if b > a}
        ends = {p: b for p, (_, b) in ranges.items()}
        try:
            yield from self._fetched(given, ends, columns)
        except UnknownFormat:
            self.close()
            left = {p: (a, ends[p]) for p, a in given.items()}
            yield from self._otherwise(left, columns)

    def _fetched(
        self, given: dict[int, int], ends: dict[int, int], columns: Sequence[str]
    ) -> Iterator[pa.Table]:
        """The records from where each partition was `given` up to; which follows them."""
        at, asked, began = dict(given), dict[Place, list[int]](), time.monotonic()
        while at:
            try:
                asked = asked or self._ask(at, began)
                parts = self._answers(asked)
                whole = {part.partition: self._whole(part, at, ends) for part in parts}
                if self._advance(parts, whole, at, ends, began):
                    began = time.monotonic()
                asked = self._ask(at, began) if at else {}
            except wire.WrongAnswer as error:
                raise self._wrong(at, str(error)) from error
            except OSError as error:
                at, asked = {p: a for p, a in given.items() if a < ends[p]}, {}
                self._again(began, str(error))
                continue
            for part in parts:
                yield from self._records(part, whole[part.partition], given, ends, columns)

    def _records(
        self, part: Part, whole: Sequence[Batch], given: dict[int, int], ends: Mapping[int, int],
        columns: Sequence[str],
    ) -> Iterator[pa.Table]:  # fmt: skip
        partition = part.partition
        first, end = given[partition], ends[partition]
        try:
            only = None if self._only is None else self._only[partition]
            for found in pieces(
                part.records, whole, part.aborted, first, end,
                keys="key" in columns, headers="headers" in columns, only=only,
            ):  # fmt: skip
                if len(found.offsets):
                    yield _raw(found, partition, columns)
                given[partition] = max(found.next, first)
        except BadBatch as bad:
            raise self._damaged(partition, bad) from None
        given[partition] = max([given[partition], *(batch.last + 1 for batch in whole)])

    def batch_at(self, partition: int, offset: int) -> Batch | None:
        """The header of the batch that holds an offset, or of the next one; None at the end.

        Raises:
            DamagedLog: that batch is damaged.
            OSError: no answer, or one that cannot be used now.
        """
        at = {partition: offset}
        for part in self._answers(self._ask(at, time.monotonic())):
            if part.error:
                self._complain(part, offset, time.monotonic())
            return next(iter(self._whole(part, at, {partition: offset + 1})), None)
        return None

    def _whole(self, part: Part, at: Mapping[int, int], ends: Mapping[int, int]) -> list[Batch]:
        """The whole batches of an answer, which have to lie where it was asked."""
        asked = at[part.partition]
        try:
            whole = batches(part.records, end=ends.get(part.partition))
            _check_place(part, whole, asked)
        except BadBatch as bad:
            first = min(bad.first, asked) if bad.first >= 0 else asked
            raise self._damaged(part.partition, BadBatch(first, bad.after, bad.why)) from None
        return whole

    def _damaged(self, partition: int, bad: BadBatch) -> DamagedLog:
        self.close()
        return troubles.damaged(self._topic, partition, bad)

    def _wrong(self, at: Mapping[int, int], why: str) -> Unavailable:
        self.close()
        return troubles.unavailable(self._topic, self._cluster.address, f"{why} ({_spelled(at)})")

    def following(
        self, starts: Mapping[int, int], columns: Sequence[str], *, least: int, most: int
    ) -> tuple[Ranges, pa.Table] | None:
        """What lies behind these offsets, once it is `least` bytes, and which ranges that fills;
        None if it is less after a moment. Partition by partition, in order. Not many more than
        `most` bytes, however much there is: each partition gives its share of them at most, and
        one share is enough.

        Raises:
            OSError: no answer, or one that cannot be used now; the next try may go well.
            UnknownFormat: another client has to read this log.
        """
        try:
            least = min(least, _share(starts, most))
            asked = self._asked_early(starts)
            if asked is None:
                asked = self._ask_for(starts, least, most)
            parts = self._answers(asked)
        except wire.WrongAnswer as error:
            raise self._wrong(starts, str(error)) from error
        except OSError:
            self.close()
            raise
        if any(part.error for part in parts):
            self.close()
            raise wire.WireError(f"error {next(part.error for part in parts if part.error)}")
        if sum(len(part.records) for part in parts) < least:
            return None
        ranges, found = dict[int, tuple[int, int]](), dict[int, list[Records]]()
        held = 0
        for part in sorted(parts, key=lambda part: part.partition):
            first, whole = starts[part.partition], self._whole(part, starts, {})
            if not whole or held >= _MOST_UNPACKED:
                continue
            some, end = self._as_far(part, whole, first, held, keys="key" in columns)
            held += sum(piece.values.nbytes for piece in some)
            ranges[part.partition], found[part.partition] = (first, end), some
        if not ranges:
            return None
        return ranges, _raws(found, columns)

    def _as_far(
        self, part: Part, whole: Sequence[Batch], first: int, held: int, *, keys: bool
    ) -> tuple[list[Records], int]:
        """The records of an answer, up to the offset at which they are enough, or damaged."""
        end = whole[-1].last + 1
        while True:
            some: list[Records] = []
            try:
                for piece in pieces(part.records, whole, part.aborted, first, end, keys=keys):
                    some.append(piece)
                    if held + sum(one.values.nbytes for one in some) >= _MOST_UNPACKED:
                        return some, piece.next
            except BadBatch as bad:
                if bad.first <= first or bad.first >= end:
                    raise self._damaged(part.partition, bad) from None
                end = bad.first
                whole = [batch for batch in whole if batch.base < end]
            else:
                return some, end

    def ask_early(self, starts: Mapping[int, int], *, least: int, most: int) -> None:
        """Ask for what `following` will be asked next. Where that fails, no answer of it may be
        left."""
        try:
            self._early = _Early(dict(starts), self._ask_for(starts, least, most))
        except OSError:
            self.close()

    def _ask_for(self, starts: Mapping[int, int], least: int, most: int) -> dict[Place, list[int]]:
        share = _share(starts, most)
        return self._ask(dict(starts), time.monotonic(), least=min(least, share), most=share)

    def _asked_early(self, starts: Mapping[int, int]) -> dict[Place, list[int]] | None:
        """Whom these offsets were asked of when the ones before them came; an answer to another
        question is not waited for."""
        early, self._early = self._early, _Early()
        if early.asked and early.starts != starts:
            self.close()
        return early.asked if early.starts == starts else None

    def close(self) -> None:
        """Let go of connections."""
        for connection in self._connections.values():
            connection.close()
        self._connections, self._leaders = {}, {}
        self._early = _Early()

    def _ask(
        self, at: dict[int, int], began: float, *, least: int = 1, most: int | None = None
    ) -> dict[Place, list[int]]:
        """Ask every broker for what is missing of the partitions it leads."""
        if not set(at) <= set(self._leaders):
            self._leaders = self._look()
        if not self._leaders and time.monotonic() - began > _NO_SUCH_TOPIC_SECONDS:
            raise troubles.unknown(self._topic, self._cluster.address)
        most = most or (_MOST if self._only is None else _MOST_OF_FEW)
        asked: dict[Place, list[int]] = {}
        for partition in at:
            if partition not in self._leaders:
                raise wire.WireError(f"partition {partition} has no leader")
            asked.setdefault(self._leaders[partition], []).append(partition)
        for place, partitions in asked.items():
            places = [(p, at[p]) for p in partitions]
            wire.ask_for(self._connection(place), self._topic, places,
                         most=most, wait=_WAIT, least=least)  # fmt: skip
        return asked

    def _answers(self, asked: Mapping[Place, Collection[int]]) -> list[Part]:
        return [
            part
            for place, partitions in asked.items()
            for part in wire.answered(self._connections[place], self._topic, partitions)
        ]

    def _advance(
        self, parts: list[Part], whole: Mapping[int, list[Batch]], at: dict[int, int],
        ends: dict[int, int], began: float,
    ) -> bool:  # fmt: skip
        """Where to go on in each partition; whether anything has come."""
        moved = False
        for part in parts:
            if part.error:
                self._complain(part, at[part.partition], began)
                continue
            if whole[part.partition]:
                at[part.partition], moved = whole[part.partition][-1].last + 1, True
            if at[part.partition] >= ends[part.partition]:
                del at[part.partition]
        if not moved and time.monotonic() - began > _PATIENCE:
            raise troubles.unavailable(self._topic, self._cluster.address, "no new records")
        return moved

    def _complain(self, part: Part, offset: int, began: float) -> None:
        waited = time.monotonic() - began
        if part.error == _OUT_OF_RANGE:
            raise troubles.gone(self._topic, part.partition, offset)
        if part.error == _CORRUPT:
            why = "a broker that finds it damaged"
            raise self._damaged(part.partition, BadBatch(offset, offset + 1, why))
        if part.error == _UNKNOWN_TOPIC and waited > _NO_SUCH_TOPIC_SECONDS:
            raise troubles.unknown(self._topic, self._cluster.address)
        if part.error not in _MOVED | {_UNKNOWN_TOPIC}:
            raise troubles.unavailable(self._topic, self._cluster.address, f"error {part.error}")
        raise wire.WireError(f"error {part.error}")

    def _again(self, began: float, got: str) -> None:
        """Begin anew with other connections, unless it has gone on for too long."""
        self.close()
        if time.monotonic() - began > _PATIENCE:
            raise troubles.unavailable(self._topic, self._cluster.address, got)
        if time.monotonic() - began > _TOLD_AFTER:
            self._waiting(troubles.waiting(self._cluster.address, got))
        time.sleep(_AGAIN)

    def _look(self) -> dict[int, Place]:
        """Who leads, as the first broker says that answers; one that does not is asked last."""
        trouble: OSError = wire.WireError("no broker is named")
        for place in tuple(self._servers):
            try:
                return wire.leaders(self._connection(place), self._topic)
            except OSError as error:
                trouble = error
                self._servers.rotate(-1)
                self.close()
        raise trouble

    def _connection(self, place: Place) -> Connection:
        if place not in self._connections:
            self._connections[place] = wire.Connection(*place)
        return self._connections[place]

    def _otherwise(self, left: Ranges, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Logs of old brokers are read by librdkafka."""
        from millstream.sources.kafka.librdkafka_fetch import ClientFetcher

        other = ClientFetcher(self._cluster, self._topic)
        try:
            yield from other.read(left, columns)
        finally:
            other.close()


def _share(starts: Mapping[int, int], most: int) -> int:
    """What each partition gives at most, of `most` bytes."""
    return max(1, most // len(starts))


def _spelled(at: Mapping[int, int]) -> str:
    return ", ".join(f"partition {p} at offset {offset}" for p, offset in sorted(at.items()))


def _check_place(part: Part, whole: Sequence[Batch], asked: int) -> None:
    """What is read from an offset begins with the batch that holds it, or the next one, whole."""
    why = None
    if not whole and part.records:
        why = f"{len(part.records)} bytes of a longer one"
    elif whole and whole[0].last < asked:
        why = f"one of offsets {whole[0].base} to {whole[0].last}"
    elif whole and whole[-1].last > part.high + _BEYOND:
        why = f"one that ends at {whole[-1].last}, where the log ends at {part.high}"
    if why is not None:
        raise BadBatch(asked, asked + 1, why)


def _raws(found: Mapping[int, Sequence[Records]], columns: Sequence[str]) -> pa.Table:
    """The records of several partitions; a few of them in one piece, which is sooner decoded."""
    parts = [piece for some in found.values() for piece in some]
    owners = [partition for partition, some in found.items() for _ in some]
    counts = [len(part.offsets) for part in parts]
    if len(parts) > 1 and sum(counts) <= _FEW:
        whole = Records(
            np.concatenate([part.offsets for part in parts]),
            np.concatenate([part.stamps for part in parts]),
            pa.concat_arrays([part.values for part in parts]),
            pa.concat_arrays([part.keys for part in parts]) if "key" in columns else None,
            next=0,
        )
        return _raw(whole, np.repeat(owners, counts), columns)
    tables = [_raw(part, partition, columns)
              for part, partition in zip(parts, owners, strict=True)]  # fmt: skip
    return pa.concat_tables([raw_schema(columns).empty_table(), *tables])


def _raw(found: Records, partition: int | np.ndarray, columns: Sequence[str]) -> pa.Table:
    count = len(found.offsets)
    stamps = np.clip(found.stamps, -_LONGEST_STAMP, _LONGEST_STAMP)
    made = {
        "value": found.values,
        "key": found.keys,
        "partition": pa.array(np.full(count, partition, np.int32)),
        "offset": pa.array(found.offsets),
        "timestamp": pa.array(stamps * 1000).view(pa.timestamp("us", "UTC")),
    }
    if found.headers is not None:
        made["headers"] = pa.array(
            [*map(_with_names, found.headers)], raw_schema().field("headers").type
        )
    return pa.table([made[name] for name in columns], schema=raw_schema(columns))


def _with_names(headers: Headers) -> list[dict[str, Any]] | None:
    """Headers as rows have them: none at all are null, and names are text."""
    return [
        {"key": name.decode(errors="replace"), "value": value} for name, value in headers
    ] or None
