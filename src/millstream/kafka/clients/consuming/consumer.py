"""`Consumer`: reads topics, alone or in a group, record by record or as Arrow batches."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Self

from millstream.duration import Duration, positive_micros
from millstream.errors import InvalidInput, MillstreamError
from millstream.kafka.admin.topic_info import slots_of
from millstream.kafka.clients.client_settings import ClientSetting, client_settings
from millstream.kafka.clients.consuming.assignment import Reader
from millstream.kafka.clients.consuming.consumer_options import (
    Start,
    checked_count,
    checked_isolation,
    checked_start,
    checked_topics,
    chosen,
    client_config,
)
from millstream.kafka.clients.consuming.membership import Assignor, member
from millstream.kafka.clients.consuming.offset_commits import Delivery, OffsetCommits, mode_of
from millstream.kafka.librdkafka import Link, close_at_exit
from millstream.kafka.names import check_group
from millstream.kafka.positions import (
    Position,
    Slot,
    bounds,
    check_offset,
    check_position,
    offsets_at,
    per_partition,
)
from millstream.kafka.records import Record, from_message
from millstream.kafka.settings import Cluster

if TYPE_CHECKING:
    from types import TracebackType

    import pyarrow as pa

    from millstream.kafka.clients.consuming.stored_offsets import Offsets

_FETCH_RECORDS = 1_000
_WAIT = 0.1
_JOIN_SECONDS = 2.0  # without a partition, after which a group member has nothing to read


class Consumer:
    """Reads topics.

        for record in Consumer("bids", until_end=True):          # all records
            print(record.key, record.value)

        with Consumer("bids", group="reports") as consumer:      # its share of the partitions
            for record in consumer:
                ...

    Without `group` it reads all partitions (or those in `partitions`) from `start`: "start",
    "end", a time, a `timedelta` before now, or offsets by partition (the others from their
    start). With `group` the members share the partitions, each group gets every record, and
    reading continues at the group's committed offsets; `start` is for partitions without one.

    `commit="auto"` (the default in a group) commits records once they are processed: when the
    next one is requested, or when the consumer is closed without an exception. If a member dies,
    the others take over its partitions: nothing is lost, the last records may be redelivered.
    `commit="manual"` commits only in `commit()`.

    `delivery` chooses by guarantee: "at_least_once" is the above; "at_most_once" commits before
    records are delivered, so that none is redelivered and a crash loses those being processed;
    "exactly_once" stores positions in `offsets` (`SqlOffsets`), next to your own result: call
    `commit()` inside the transaction that writes it.

    `assignor` decides how members share partitions: "cooperative-sticky" (the default) moves
    as few as possible; "range" and "roundrobin" are for groups with other Kafka clients.

    `until_end=True` stops at the offsets that were the end when reading began; otherwise reading
    continues until `stop()`. `isolation="read_committed"` hides records of open and aborted
    transactions. A record that the log no longer holds raises `DataGone`: positions never jump.
    An outage longer than `patience` raises `Unavailable`.
    """

    def __init__(
        self,
        *topics: str,
        kafka: str | Cluster | None = None,
        group: str | None = None,
        start: Start | None = None,
        partitions: Sequence[int] | None = None,
        assignor: Assignor | None = None,
        until_end: bool = False,
        isolation: Literal["read_committed", "read_uncommitted"] = "read_committed",
        commit: Literal["auto", "manual"] | None = None,
        delivery: Delivery | None = None,
        offsets: Offsets | None = None,
        patience: Duration = "30 seconds",
        settings: Mapping[str, ClientSetting] | None = None,
    ) -> None:
        self.topics = checked_topics(topics)
        self.group = None if group is None else check_group(group)
        self._start = checked_start(start, self.topics, grouped=group is not None)
        mode = mode_of(delivery, commit, offsets, grouped=group is not None)
        self._commits = OffsetCommits(mode, offsets)
        self._until_end = until_end
        self._isolation = checked_isolation(isolation)
        me = member(self.group, assignor)
        config = {
            **client_config(me, isolation, until_end=until_end),
            **client_settings(settings),
        }
        wait = positive_micros(patience, what="patience") / 1e6
        self._link = Link(Cluster.resolve(kafka))
        slots = chosen(slots_of(self._link, self.topics), partitions, grouped=group is not None)
        self._stopped = threading.Event()
        self._closed = False
        self._ends: dict[Slot, int] = {}
        self._in_progress: dict[Slot, int] = {}
        begin = self._start_without_group(slots) if self.group is None else {}
        self._reader = Reader(self._link, self._link.consumer(config), patience=wait, member=me)
        self._close_client = close_at_exit(self, self._reader.client.close)
        if self.group is None:
            self._reader.assign(begin)
        else:
            self._join()

    def __iter__(self) -> Iterator[Record]:
        """Records one at a time, in the order of each partition."""
        self._check_open()
        reader = self._reader
        while not self._stopped.is_set():
            if not reader.buffer:
                if self._at_end():
                    return
                fetched = reader.fetch(_FETCH_RECORDS, _WAIT)  # may revoke partitions
                reader.buffer.extend(fetched)
                self._after_processing()
                self._commits.before_delivery(reader, reader.buffered)
                continue
            record = from_message(reader.buffer.popleft())
            slot = (record.topic, record.partition)
            self._in_progress = {slot: record.offset}
            reader.next[slot] = record.offset + 1
            yield record
            self._after_processing()

    def batches(self, rows: int = 50_000, wait: Duration = "100 ms") -> Iterator[pa.RecordBatch]:
        """Records as Arrow, up to `rows` per batch, which waits at most `wait` for more rows.

        The columns are `key` and `value` (binary), `topic`, `partition`, `offset`,
        `timestamp` (microseconds, UTC) and `headers` (a list of name and value). No batch is
        empty.
        """
        checked_count(rows, "rows")
        self._check_open()
        return self._batches(rows, positive_micros(wait, what="wait") / 1e6)

    def stop(self) -> None:
        """End the loop over records or batches; may be called from another thread."""
        self._stopped.set()

    def assignment(self) -> list[Slot]:
        """The partitions this consumer reads; a new member of a group has none yet."""
        return sorted(self._reader.next)

    @property
    def idle(self) -> bool:
        """Whether it has joined its group and has no partition: there are too few for all."""
        return self._reader.joined_at is not None and not self._reader.next

    def position(self) -> dict[Slot, int]:
        """The next offset, per topic and partition."""
        return dict(sorted(self._reader.next.items()))

    def committed(self) -> dict[Slot, int | None]:
        """The group's committed offsets in the partitions this consumer reads."""
        self._need_group("committed()")
        return self._reader.committed(self.assignment())

    def commit(self) -> None:
        """Commit the offsets after all records delivered so far, and return when it is done.

        With `delivery="exactly_once"` they are written in the open transaction.

        Raises:
            MillstreamError: the partitions have been assigned to another member.
            Fenced: another reader has continued from the stored offsets.
        """
        if self._commits.offsets is None:
            self._need_group("commit()")
        self._check_open()
        self._commits.commit(self._reader)

    def lag(self) -> dict[Slot, int]:
        """How many offsets it is behind the end, per topic and partition."""
        ends = offsets_at(self._link, self.assignment(), "end")
        return {slot: max(0, end - self._reader.next[slot]) for slot, end in ends.items()}

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Continue from an offset in one partition.

        Raises:
            DataGone: the log no longer holds it.
            InvalidInput: it is after the end, or this consumer does not read the partition.
        """
        slot = self._owned(topic, partition)
        self._seek({slot: check_offset(slot, offset, bounds(self._link, [slot])[slot])})

    def seek_to(self, place: Position) -> None:
        """Continue from "start", "end", a time or a `timedelta` before now, in all partitions."""
        position = check_position(place, what="seek_to")
        self._seek(offsets_at(self._link, self.assignment(), position))

    def pause(self, topic: str | None = None, partition: int | None = None) -> None:
        """Deliver no more records of these partitions (by default of all)."""
        self._reader.pause(self._selected(topic, partition))

    def resume(self, topic: str | None = None, partition: int | None = None) -> None:
        """Continue with paused partitions where they were."""
        self._reader.resume(self._selected(topic, partition))

    def group_metadata(self) -> Any:
        """The group metadata with which a transaction commits offsets for this member."""
        self._need_group("a transaction with its offsets")
        return self._reader.client.consumer_group_metadata()

    def close(self) -> None:
        """Commit processed records (`commit="auto"`), and leave the group."""
        if self._closed:
            return
        self._closed = True
        self._stopped.set()
        try:
            self._commits.on_close(self._reader)
        except BaseException:
            self._close_client()
            raise
        self._close_client.detach()
        self._reader.client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if problem is None:
            self.close()
            return
        owned = self._reader.next
        if self._commits.mode != "before":
            owned.update({slot: at for slot, at in self._in_progress.items() if slot in owned})
        try:
            self.close()
        except MillstreamError as second:
            problem.add_note(f"while closing the consumer: {second}")

    def _join(self) -> None:
        """Subscribe with callbacks that do not keep this consumer alive."""
        me = weakref.proxy(self)

        def start_offsets(slots: Sequence[Slot]) -> Mapping[Slot, int]:
            offsets: Mapping[Slot, int] = me._start_in_group(slots)
            return offsets

        def on_revoke(slots: Sequence[Slot]) -> None:
            me._commits.on_revoke(me._reader, slots)

        def on_lost(slots: Sequence[Slot]) -> None:
            me._commits.on_lost(me._reader, slots)

        self._reader.subscribe(self.topics, start_offsets, on_revoke, on_lost)

    def _batches(self, rows: int, wait: float) -> Iterator[pa.RecordBatch]:
        while not self._at_end():
            batch = self._read_batch(rows, wait)
            if batch is not None:
                yield batch
            self._after_processing()

    def _read_batch(self, rows: int, wait: float) -> pa.RecordBatch | None:
        """Up to `rows` rows; None if there are none. An exception leaves the position unchanged."""
        from millstream.kafka.clients.consuming.row_batches import read_batch

        self._reader.check()
        owned = self._reader.next
        try:
            batch, reached = read_batch(
                self._reader, self.topics, rows=rows, wait=wait, at_end=self._at_end
            )
        except BaseException:
            self._seek(self.position())
            raise
        self._in_progress = self.position()
        owned.update(reached)
        self._commits.before_delivery(self._reader, lambda: reached)
        return batch

    def _at_end(self, reached: Mapping[Slot, int] = MappingProxyType({})) -> bool:
        """Whether nothing is left to read after the positions, or after `reached` offsets."""
        reader = self._reader
        if self._stopped.is_set():
            return True
        if not self._until_end or reader.joined_at is None or reader.buffer:
            return False
        if not reader.next:
            return time.monotonic() - reader.joined_at > _JOIN_SECONDS
        for slot in reader.next.keys() - self._ends.keys():
            self._ends |= offsets_at(self._link, [slot], "end", committed=self._isolation)
        return all(
            max(at, reached.get(slot, 0), reader.eof.get(slot, 0)) >= self._ends[slot]
            for slot, at in reader.next.items()
        )

    def _after_processing(self) -> None:
        self._in_progress = {}
        self._commits.after_processing(self._reader)

    def _start_without_group(self, slots: Sequence[Slot]) -> dict[Slot, int]:
        """Where to start: at the stored offsets of `offsets=`, else at `start`."""
        stored = self._stored_offsets(slots)
        offsets = {**self._start_offsets([slot for slot in slots if slot not in stored]), **stored}
        self._commits.start_at(offsets)
        return offsets

    def _stored_offsets(self, slots: Sequence[Slot]) -> dict[Slot, int]:
        """Offsets stored next to the user's result, checked against the log."""
        if self._commits.offsets is None or not slots:
            return {}
        self._commits.forget(slots)
        stored = dict(self._commits.offsets.positions(slots))
        held = bounds(self._link, stored)
        self._commits.mark_committed(stored)
        return {slot: check_offset(slot, at, held[slot]) for slot, at in stored.items()}

    def _start_offsets(self, slots: Sequence[Slot]) -> dict[Slot, int]:
        """The offsets of `start`, for partitions without a committed offset."""
        if not isinstance(self._start, Mapping):
            return offsets_at(self._link, slots, self._start)
        per_partition(self.topics[0], self._start, [partition for _, partition in slots])
        held = bounds(self._link, slots)
        return {
            slot: check_offset(slot, self._start.get(slot[1], held[slot][0]), held[slot])
            for slot in slots
        }

    def _start_in_group(self, slots: Sequence[Slot]) -> dict[Slot, int]:
        """The group's committed offsets; where there are none, `start`, which is then committed."""
        if self._commits.offsets is not None:
            return self._start_without_group(slots)
        committed = self._reader.committed(slots)
        offsets = {slot: at for slot, at in committed.items() if at is not None}
        new = self._start_offsets([slot for slot in slots if slot not in offsets]) if slots else {}
        if new and self._start != "start":
            with suppress(MillstreamError):
                self._reader.commit(new)
        offsets |= new
        self._commits.mark_committed(offsets)
        return offsets

    def _seek(self, offsets: Mapping[Slot, int]) -> None:
        self._check_open()
        self._in_progress = {}
        for slot in offsets:
            self._ends.pop(slot, None)
        self._reader.seek(offsets)

    def _selected(self, topic: str | None, partition: int | None) -> list[Slot]:
        if topic is not None and partition is not None:
            return [self._owned(topic, partition)]
        return [slot for slot in self.assignment() if topic in (None, slot[0])]

    def _owned(self, topic: str, partition: int) -> Slot:
        if (topic, partition) in self._reader.next:
            return topic, partition
        raise InvalidInput(
            "this needs a partition that the consumer reads",
            got=f"partition {partition!r} of {topic!r}",
            do=f"choose one of {self.assignment()}",
        )

    def _need_group(self, what: str) -> None:
        if self.group is None:
            raise InvalidInput(
                f"{what} needs a consumer in a group", got="one without", do="pass group=..."
            )

    def _check_open(self) -> None:
        if self._closed:
            raise InvalidInput("reading needs an open consumer", got="a closed one")
