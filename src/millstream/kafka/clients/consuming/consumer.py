"""Reading records: alone or as a member of a group, singly or as Arrow, from any place."""

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
    checked_isolation,
    checked_start,
    checked_topics,
    chosen,
    client_config,
)
from millstream.kafka.clients.consuming.membership import Assignor, member
from millstream.kafka.clients.consuming.offset_commits import Delivery, Keeping, mode_of
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

_SINGLY = 1_000
_WAIT = 0.1
_SETTLED = 2.0


class Consumer:
    """Reads topics.

        for record in Consumer("bids", until_end=True):          # everything there is
            print(record.key, record.value)

        with Consumer("bids", group="reports") as consumer:      # a share of the work
            for record in consumer:
                ...

    Without `group` it reads all partitions (or those in `partitions`) from `start`: "start",
    "end", a time, so long ago, or offsets by partition (the others from their start). With
    `group` the members share the partitions, each group gets every record, and reading goes
    on where the group has committed; `start` says where partitions begin that it has not.

    `commit="auto"` (the default in a group) commits what has been worked on: a record counts
    when the next one is asked for, or when the consumer is closed without an exception. A
    member that dies leaves the rest to the others: nothing is lost, the last records may come
    again. `commit="manual"` leaves it to `commit()`.

    `delivery` says the same by what it promises: "at_least_once" is the above; "at_most_once"
    commits before records are handed out, so that none comes again and those in hand at a crash
    are lost; "exactly_once" keeps positions in `offsets` (`SqlOffsets`), beside your own result
    and in its transaction, inside which `commit()` is called.

    `assignor` says how members share partitions: "cooperative-sticky" (the default) moves few;
    "range" or "roundrobin" is for a group with other Kafka clients, whose default it is.

    `until_end=True` stops at the end as it was when reading began, otherwise reading goes on
    until `stop()`. `isolation="read_committed"` hides records of open and aborted
    transactions. A record gone from the log raises `DataGone`: positions never jump.
    Outages are waited out; after `patience` they raise `Unavailable`.
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
        self._keeping = Keeping(
            mode_of(delivery, commit, offsets, grouped=group is not None), offsets
        )
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
        self._in_hand: dict[Slot, int] = {}
        begin = self._begin_alone(slots) if self.group is None else {}
        self._reader = Reader(self._link, self._link.consumer(config), patience=wait, member=me)
        self._let_go = close_at_exit(self, self._reader.client.close)
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
                if self._over():
                    return
                fetched = reader.fetch(_SINGLY, _WAIT)  # which may give partitions away
                reader.buffer.extend(fetched)
                self._finished()
                self._keeping.ahead(reader, reader.buffered)
                continue
            record = from_message(reader.buffer.popleft())
            slot = (record.topic, record.partition)
            self._in_hand = {slot: record.offset}
            reader.next[slot] = record.offset + 1
            yield record
            self._finished()

    def batches(self, rows: int = 50_000, wait: Duration = "100 ms") -> Iterator[pa.RecordBatch]:
        """Records as Arrow, up to `rows` at a time, at most `wait` after the first of them.

        The columns are `key` and `value` (binary), `topic`, `partition`, `offset`,
        `timestamp` (microseconds, UTC) and `headers` (a list of name and value). No batch is
        empty.
        """
        if not isinstance(rows, int) or isinstance(rows, bool) or rows < 1:
            raise InvalidInput("rows needs a whole number from 1 on", got=repr(rows))
        self._check_open()
        return self._batches(rows, positive_micros(wait, what="wait") / 1e6)

    def stop(self) -> None:
        """End the loop over records or batches; may be called from another thread."""
        self._stopped.set()

    def assignment(self) -> list[Slot]:
        """The partitions this consumer reads now; a new member of a group has none yet."""
        return sorted(self._reader.next)

    @property
    def idle(self) -> bool:
        """Whether it is in its group and has nothing to read: more members than partitions."""
        return self._reader.joined_at is not None and not self._reader.next

    def position(self) -> dict[Slot, int]:
        """The offset that comes next, per topic and partition."""
        return dict(sorted(self._reader.next.items()))

    def committed(self) -> dict[Slot, int | None]:
        """What the group has committed in the partitions this consumer reads."""
        self._need_group("committed()")
        return self._reader.committed(self.assignment())

    def commit(self) -> None:
        """Commit the position after every record handed out, and return when it is done.

        With `delivery="exactly_once"` it is written in the transaction that is open.

        Raises:
            MillstreamError: the group has given the partitions to another member meanwhile.
            Fenced: another reader has gone on from the position kept beside the result.
        """
        if self._keeping.offsets is None:
            self._need_group("commit()")
        self._check_open()
        self._keeping.asked(self._reader)

    def lag(self) -> dict[Slot, int]:
        """How many offsets are left up to the end, per topic and partition."""
        ends = offsets_at(self._link, self.assignment(), "end")
        return {slot: max(0, end - self._reader.next[slot]) for slot, end in ends.items()}

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Go on from an offset in one partition.

        Raises:
            DataGone: the log no longer holds it.
            InvalidInput: it is beyond the end, or the partition is not read here.
        """
        slot = self._owned(topic, partition)
        self._move({slot: check_offset(slot, offset, bounds(self._link, [slot])[slot])})

    def seek_to(self, place: Position) -> None:
        """Go on from "start", "end", a time or so long ago, in every partition read here."""
        where = check_position(place, what="seek_to")
        self._move(offsets_at(self._link, self.assignment(), where))

    def pause(self, topic: str | None = None, partition: int | None = None) -> None:
        """Hand out nothing more of these partitions (of all, if none is named)."""
        self._reader.pause(self._named(topic, partition))

    def resume(self, topic: str | None = None, partition: int | None = None) -> None:
        """Go on with paused partitions, where they were."""
        self._reader.resume(self._named(topic, partition))

    def group_metadata(self) -> Any:
        """What a transaction needs to commit offsets for this member of its group."""
        self._need_group("a transaction with its offsets")
        return self._reader.client.consumer_group_metadata()

    def close(self) -> None:
        """Commit what is finished (`commit="auto"`), and leave the group."""
        if self._closed:
            return
        self._closed = True
        self._stopped.set()
        try:
            self._keeping.closing(self._reader)
        except BaseException:
            self._let_go()
            raise
        self._let_go.detach()
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
        if self._keeping.mode != "before":
            owned.update({slot: at for slot, at in self._in_hand.items() if slot in owned})
        try:
            self.close()
        except MillstreamError as second:
            problem.add_note(f"while closing the consumer: {second}")

    def _join(self) -> None:
        """Subscribe with callbacks that do not keep this consumer alive."""
        me = weakref.proxy(self)

        def begin(slots: Sequence[Slot]) -> Mapping[Slot, int]:
            places: Mapping[Slot, int] = me._begin_in_group(slots)
            return places

        def leaving(slots: Sequence[Slot]) -> None:
            me._keeping.leaving(me._reader, slots)

        def losing(slots: Sequence[Slot]) -> None:
            me._keeping.losing(me._reader, slots)

        self._reader.subscribe(self.topics, begin, leaving, losing)

    def _batches(self, rows: int, wait: float) -> Iterator[pa.RecordBatch]:
        while not self._over():
            batch = self._gather(rows, wait)
            if batch is not None:
                yield batch
            self._finished()

    def _gather(self, rows: int, wait: float) -> pa.RecordBatch | None:
        """Up to `rows` rows; None when nothing came. Interrupted, it goes back to its start."""
        from millstream.kafka.clients.consuming.row_batches import gather

        self._reader.check()
        owned = self._reader.next
        try:
            batch, reached = gather(
                self._reader, self.topics, rows=rows, wait=wait, over=self._over
            )
        except BaseException:
            self._move(self.position())
            raise
        self._in_hand = self.position()
        owned.update(reached)
        self._keeping.ahead(self._reader, lambda: reached)
        return batch

    def _over(self, reached: Mapping[Slot, int] = MappingProxyType({})) -> bool:
        """Whether there is nothing left to read, besides what is `reached` and not handed out."""
        reader = self._reader
        if self._stopped.is_set():
            return True
        if not self._until_end or reader.joined_at is None or reader.buffer:
            return False
        if not reader.next:
            return time.monotonic() - reader.joined_at > _SETTLED
        for slot in reader.next.keys() - self._ends.keys():
            self._ends |= offsets_at(self._link, [slot], "end", committed=self._isolation)
        return all(
            max(at, reached.get(slot, 0), reader.eof.get(slot, 0)) >= self._ends[slot]
            for slot, at in reader.next.items()
        )

    def _finished(self) -> None:
        """What was handed out is worked on."""
        self._in_hand = {}
        self._keeping.finished(self._reader)

    def _begin_alone(self, slots: Sequence[Slot]) -> dict[Slot, int]:
        """Where partitions begin outside of a group: where they were kept, else at `start`."""
        kept = self._kept_beside(slots)
        places = {**self._begin([slot for slot in slots if slot not in kept]), **kept}
        self._keeping.begun(places)
        return places

    def _kept_beside(self, slots: Sequence[Slot]) -> dict[Slot, int]:
        """Positions kept beside the user's result, if the log still holds them."""
        if self._keeping.offsets is None or not slots:
            return {}
        self._keeping.forget(slots)
        kept = dict(self._keeping.offsets.positions(slots))
        held = bounds(self._link, kept)
        self._keeping.known(kept)
        return {slot: check_offset(slot, at, held[slot]) for slot, at in kept.items()}

    def _begin(self, slots: Sequence[Slot]) -> dict[Slot, int]:
        """Where partitions begin that have no committed offset."""
        if not isinstance(self._start, Mapping):
            return offsets_at(self._link, slots, self._start)
        per_partition(self.topics[0], self._start, [partition for _, partition in slots])
        held = bounds(self._link, slots)
        return {
            slot: check_offset(slot, self._start.get(slot[1], held[slot][0]), held[slot])
            for slot in slots
        }

    def _begin_in_group(self, slots: Sequence[Slot]) -> dict[Slot, int]:
        """Where the group has committed; else at `start`, which is then the group's from now on."""
        if self._keeping.offsets is not None:
            return self._begin_alone(slots)
        committed = self._reader.committed(slots)
        places = {slot: at for slot, at in committed.items() if at is not None}
        fresh = self._begin([slot for slot in slots if slot not in places]) if slots else {}
        if fresh and self._start != "start":
            with suppress(MillstreamError):
                self._reader.commit(fresh)
        places |= fresh
        self._keeping.known(places)
        return places

    def _move(self, places: Mapping[Slot, int]) -> None:
        self._check_open()
        self._in_hand = {}
        for slot in places:
            self._ends.pop(slot, None)
        self._reader.move(places)

    def _named(self, topic: str | None, partition: int | None) -> list[Slot]:
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
                f"{what} needs a consumer in a group", got="one without", do="say group=..."
            )

    def _check_open(self) -> None:
        if self._closed:
            raise InvalidInput("reading needs an open consumer", got="a closed one")
