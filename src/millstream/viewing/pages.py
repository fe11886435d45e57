"""Topics a page at a time, forward or backward, by a bounded scan.

A page never scans more than `Bounds` allows: with a selective filter it holds the matches so far
and where to continue. Records of several partitions are merged by time as far as they were scanned;
within a partition they are in offset order, and paging shows each exactly once. Only committed
records are read.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Protocol

from confluent_kafka import Message, TopicPartition

from millstream.errors import InvalidInput, Unavailable
from millstream.kafka.admin.topic_info import slots_of
from millstream.kafka.clients.consuming.assignment import Reader
from millstream.kafka.clients.consuming.consumer_options import client_config
from millstream.kafka.clients.consuming.damaged import DamagedBatch, LostOffsets, lost_offsets
from millstream.kafka.librdkafka import Link
from millstream.kafka.names import check_topic
from millstream.kafka.positions import offsets_at
from millstream.kafka.records import Record, from_message

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from millstream.kafka.positions import Position
    from millstream.kafka.settings import Cluster

Offsets = dict[int, int]
_FURTHER = 4
_TOGETHER = 500
_WAIT = 0.05
_PATIENCE = 3.0
_GRACE = 2.0
_FIRST = 30.0
_SETTINGS = {"queued.max.messages.kbytes": "16384", "fetch.wait.max.ms": "20"}


class RecordFilter(Protocol):
    """Selects records."""

    def matches(self, record: Record) -> bool:
        """Whether the record is selected; called once for each record that is scanned."""


@dataclass(frozen=True)
class Bounds:
    """How much one page scans; `seconds` count from the first response of Kafka."""

    records: int = 20_000
    bytes: int = 64_000_000
    seconds: float = 3.0


@dataclass(frozen=True)
class Page:
    """Records, oldest first. `earlier` and `later` continue from here, None where nothing follows.

    `complete` is false where the scan reached its bounds before it had enough records; `gone`
    counts requested offsets that are no longer in the log; `lost` are batches that cannot be read.
    """

    records: list[Record]
    complete: bool
    earlier: Offsets | None
    later: Offsets | None
    gone: int = 0
    lost: tuple[LostOffsets, ...] = ()


@dataclass
class _Budget:
    """The rest of the bounds. Time counts only from `begin` to `rest`, so connecting is free."""

    records: int
    bytes: int
    seconds: float
    until: float = math.inf

    @classmethod
    def of(cls, bounds: Bounds) -> _Budget:
        return cls(bounds.records, bounds.bytes, bounds.seconds)

    def begin(self) -> None:
        if self.until == math.inf:
            self.until = time.monotonic() + self.seconds

    def rest(self) -> None:
        if self.until != math.inf:
            self.seconds, self.until = self.until - time.monotonic(), math.inf

    def spend(self, record: Record) -> None:
        self.records -= 1
        self.bytes -= len(record.value or b"") + len(record.key or b"")

    @property
    def out(self) -> bool:
        late = self.seconds <= 0 or time.monotonic() > self.until
        return late or self.records <= 0 or self.bytes <= 0


@dataclass
class _Range:
    """Offsets of one partition to read: from `at` up to `end`."""

    at: int
    end: int
    enough: bool = False

    @property
    def done(self) -> bool:
        return self.enough or self.at >= self.end


@dataclass
class Pages:
    """Pages of some partitions of a topic, by default of all.

    Raises:
        NotFound: there is no such topic.
        InvalidInput: it has no such partition.
    """

    cluster: Cluster
    topic: str
    partitions: Sequence[int] = ()
    bounds: Bounds = field(default_factory=Bounds)

    def __post_init__(self) -> None:
        self._link = Link(self.cluster)
        there = [part for _, part in slots_of(self._link, [check_topic(self.topic)])]
        for wanted in self.partitions:
            if wanted not in there:
                raise InvalidInput(f"partition needs one that {self.topic} has, 0 to {max(there)}",
                                   got=str(wanted))  # fmt: skip
        self._lost: dict[tuple[int, int], LostOffsets] = {}
        slots = [(self.topic, part) for part in self.partitions or there]
        self.first = _by_partition(offsets_at(self._link, slots, "start"))
        self.end = _by_partition(offsets_at(self._link, slots, "end", committed=True))

    def offsets(self, place: Position | int) -> Offsets:
        """The offset of a point in time (or one offset for all) in each partition's log."""
        if isinstance(place, int):
            return {part: min(max(place, self.first[part]), self.end[part]) for part in self.end}
        slots = [(self.topic, part) for part in self.end]
        found = _by_partition(offsets_at(self._link, slots, place, committed=True))
        return {part: min(offset, self.end[part]) for part, offset in found.items()}

    def after(self, offsets: Mapping[int, int], selection: RecordFilter, limit: int) -> Page:
        """The first records at or after these offsets."""
        begin, gone = self._within(offsets, otherwise=self.first)
        found: dict[int, list[Record]] = {part: [] for part in begin}

        def take(record: Record) -> bool:
            kept = found[record.partition]
            if selection.matches(record):
                kept.append(record)
            return len(kept) < limit

        budget = _Budget.of(self.bounds)
        ranges = {part: _Range(begin[part], self.end[part]) for part in begin}
        self._read(ranges, budget, take)
        taken = _merged(found, limit, newest=False)
        later = {
            part: kept[0].offset if (kept := found[part]) else ranges[part].at for part in begin
        }
        return Page(
            records=taken,
            complete=len(taken) == limit or all(one.done for one in ranges.values()),
            earlier=begin if begin != self.first else None,
            later=later if any(later[part] < self.end[part] for part in later) else None,
            gone=gone,
            lost=self._lost_between(begin, later),
        )

    def before(self, offsets: Mapping[int, int], selection: RecordFilter, limit: int) -> Page:
        """The last records before these offsets."""
        top, gone = self._within(offsets, otherwise=self.end)
        found: dict[int, list[Record]] = {part: [] for part in top}
        looked = self._look_back(dict(top), found, selection, limit)
        bottom = {part: kept[0].offset for part, kept in found.items() if len(kept) == limit}
        taken = _merged(found, limit, newest=True)
        earlier = {
            part: kept[-1].offset + 1 if (kept := found[part]) else bottom.get(part, looked[part])
            for part in top
        }
        return Page(
            records=taken,
            complete=len(taken) == limit or looked == self.first,
            earlier=earlier if any(earlier[p] > self.first[p] for p in earlier) else None,
            later=top if any(top[part] < self.end[part] for part in top) else None,
            gone=gone,
            lost=self._lost_between(earlier, top),
        )

    def one(self, partition: int, offset: int) -> Record | None:
        """The record at an offset; None if there is none (any more, or yet).

        Raises:
            Unavailable: the offset could not be read in time.
            DamagedBatch: it is in a batch that cannot be read.
        """
        held = self.first[partition] <= offset < self.end[partition]
        found: list[Record] = []

        def take(record: Record) -> bool:
            found.append(record)
            return False

        if held:
            span = {partition: _Range(offset, offset + 1)}
            self._read(span, _Budget.of(self.bounds), take)
            for one in self._lost_between({partition: offset}, {partition: offset + 1}):
                raise DamagedBatch((self.topic, partition), one.first, one.why)
            if not span[partition].done:
                raise Unavailable(
                    f"offset {offset} of {self.topic}/{partition} could not be read in time",
                    got=f"no record within {self.bounds.seconds:g} s",
                    do="try again when the cluster is less busy",
                )
        return found[0] if found else None

    def _within(
        self, offsets: Mapping[int, int], otherwise: Mapping[int, int]
    ) -> tuple[Offsets, int]:
        """These offsets limited to what the log holds, and how many are gone from it."""
        wanted = {part: offsets.get(part, otherwise[part]) for part in self.end}
        inside = {p: min(max(at, self.first[p]), self.end[p]) for p, at in wanted.items()}
        return inside, sum(max(0, self.first[p] - at) for p, at in wanted.items())

    def _look_back(
        self, low: Offsets, found: dict[int, list[Record]], selection: RecordFilter, limit: int
    ) -> Offsets:
        """Find the last records below `low`, in growing steps; returns where the scan ended.

        A range that was not read to its end is discarded, because it would leave a gap. If even
        the first range is too large, a single offset is scanned.
        """
        budget, step, moved = _Budget.of(self.bounds), limit, False
        while True:
            pieces = {
                part: _Range(max(self.first[part], low[part] - step), low[part])
                for part, kept in found.items()
                if len(kept) < limit and low[part] > self.first[part]
            }
            if not pieces:
                return low
            begin = {part: piece.at for part, piece in pieces.items()}
            new: dict[int, list[Record]] = {part: [] for part in pieces}
            self._read(pieces, budget, partial(_keep, selection, new))
            for part in [part for part, piece in pieces.items() if piece.done]:
                found[part] = (new[part] + found[part])[-limit:]
                low[part], moved = begin[part], True
            if budget.out:
                if moved or step == 1:
                    return low
                step = 1
                budget = _Budget(len(pieces) + 1, self.bounds.bytes, _GRACE)
            else:
                step *= _FURTHER

    def _read(
        self, ranges: Mapping[int, _Range], budget: _Budget, take: Callable[[Record], bool]
    ) -> None:
        """Pass the records of these ranges to `take` until they are done or the budget is spent.

        A range has enough when `take` returns false. It is also done when an offset after its end
        is read: the gap holds only markers, or records that compaction has removed.

        Raises:
            Unavailable: Kafka did not respond at all.
        """
        open_ones = {part: one for part, one in ranges.items() if not one.done}
        if not open_ones:
            return
        settings = {**client_config(None, "read_committed", until_end=True), **_SETTINGS}
        reader = Reader(self._link, self._link.consumer(settings), patience=_PATIENCE)
        try:
            reader.assign({(self.topic, part): one.at for part, one in open_ones.items()})
            patience = time.monotonic() + _FIRST
            while open_ones and not budget.out:
                known = len(self._lost)
                messages = self._fetched(reader, open_ones)
                if len(self._lost) > known:
                    patience = time.monotonic() + _FIRST
                if messages or reader.eof:
                    budget.begin()
                elif budget.until == math.inf and time.monotonic() > patience:
                    raise self._no_response()
                for message in messages:
                    _consume(message, open_ones, budget, take)
                if not budget.out:
                    _reach_ends(reader, open_ones)
                for part in [part for part, one in open_ones.items() if one.done]:
                    del open_ones[part]
                    reader.client.pause([TopicPartition(self.topic, part)])
        finally:
            budget.rest()
            reader.client.close()

    def _fetched(self, reader: Reader, ranges: Mapping[int, _Range]) -> list[Message]:
        """Messages; a damaged batch is recorded, and reading continues after it."""
        try:
            return reader.fetch(_TOGETHER, _WAIT)
        except DamagedBatch as damaged:
            one = ranges.get(damaged.slot[1])
            if one is not None:
                ends = one.end if damaged.first >= one.end else self._known(damaged).next
                one.at = max(one.at, min(one.end, ends))
            left = {part: one.at for part, one in ranges.items() if not one.done}
            reader.reassign({(self.topic, part): at for part, at in left.items()})
            return []

    def _known(self, damaged: DamagedBatch) -> LostOffsets:
        """The offsets of a damaged batch, looked up once."""
        place = (damaged.slot[1], damaged.first)
        if place not in self._lost:
            self._lost[place] = lost_offsets(self._link, damaged)
        return self._lost[place]

    def _lost_between(
        self, begin: Mapping[int, int], end: Mapping[int, int]
    ) -> tuple[LostOffsets, ...]:
        """The damaged batches of these ranges, in order."""
        return tuple(
            one for (part, _), one in sorted(self._lost.items())
            if part in begin and one.next > begin[part] and one.first < end[part]
        )  # fmt: skip

    def _no_response(self) -> Unavailable:
        return Unavailable(
            f"{self.topic} could not be read",
            got=f"no response within {_FIRST:g} s",
            do="check that its brokers are running, and try again",
        )


def _consume(
    message: Message,
    ranges: Mapping[int, _Range],
    budget: _Budget,
    take: Callable[[Record], bool],
) -> None:
    one = ranges.get(message.partition())  # type: ignore[arg-type]
    if one is None or one.done or budget.out:
        return
    record = from_message(message)
    if record.offset >= one.end:
        one.at = one.end
    else:
        budget.spend(record)
        one.enough = not take(record)
        one.at = record.offset + 1


def _reach_ends(reader: Reader, ranges: Mapping[int, _Range]) -> None:
    """At the end of a partition, offsets without a record count as read, too."""
    for (_, part), eof in reader.eof.items():
        if part in ranges and not ranges[part].enough:
            ranges[part].at = max(ranges[part].at, min(ranges[part].end, eof))


def _keep(selection: RecordFilter, new: dict[int, list[Record]], record: Record) -> bool:
    if selection.matches(record):
        new[record.partition].append(record)
    return True


def _merged(found: dict[int, list[Record]], limit: int, *, newest: bool) -> list[Record]:
    """Take the newest (or oldest) records by time, each partition from its end (or beginning).

    They are removed from `found`, so the rest of each partition is contiguous.
    """
    place = -1 if newest else 0
    taken: list[Record] = []
    while len(taken) < limit:
        heads = [(kept[place].timestamp, part) for part, kept in found.items() if kept]
        if not heads:
            break
        part = (max if newest else min)(heads)[1]
        taken.append(found[part].pop(place))
    return taken[::-1] if newest else taken


def _by_partition(offsets: Mapping[tuple[str, int], int]) -> Offsets:
    return {part: offset for (_, part), offset in offsets.items()}
