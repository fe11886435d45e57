"""Reads partitions: which ones this client is assigned, and its position in each.

A `Reader` fetches messages of all partitions, or, as a member of a group, of those assigned to
it. A position is the offset after the last record delivered, not after the last one fetched.
"""

from __future__ import annotations

import logging
import time
import weakref
from collections import deque
from typing import TYPE_CHECKING

from confluent_kafka import Consumer as Client
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from millstream.errors import DataGone, MillstreamError
from millstream.kafka.clients.consuming import damaged
from millstream.kafka.clients.consuming.damaged import DamagedBatch
from millstream.kafka.librdkafka import ANSWER_TIME
from millstream.kafka.positions import Slot, bounds, gone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from millstream.kafka.clients.consuming.membership import Member
    from millstream.kafka.librdkafka import Link

    _OnPartitions = Callable[[Sequence[Slot]], None]

LOG = logging.getLogger("millstream.kafka")

_PING_SECONDS = 1.0  # after a ping, in which a commit needs no other one
_REBALANCED = {
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError._ASSIGNMENT_LOST,
    KafkaError._STATE,
}
_NO_COMMON_ASSIGNOR = {KafkaError.INCONSISTENT_GROUP_PROTOCOL}
_OUT_OF_RANGE = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}


class Reader:
    """Fetches with one librdkafka consumer; `next` has the next offset of each partition."""

    def __init__(
        self, link: Link, client: Client, *, patience: float, member: Member | None = None
    ) -> None:
        self.client = client
        self._member = member
        self.next: dict[Slot, int] = {}
        self.eof: dict[Slot, int] = {}
        self.buffer: deque[Message] = deque()
        self.joined_at: float | None = None
        self.revoked: set[Slot] = set()
        self._paused: dict[Slot, list[Message]] = {}
        self._link = link
        self._patience = patience
        self._out_of_range: set[Slot] = set()
        self._damaged: dict[Slot, DamagedBatch] = {}
        self._ever_damaged: set[Slot] = set()
        self._failure: MillstreamError | None = None
        self._down_since: float | None = None
        self._answered_at = 0.0

    def assign(self, offsets: Mapping[Slot, int]) -> None:
        """Read these partitions from these offsets; the others continue where they are."""
        self.next.update(offsets)
        self.client.assign(_partitions({**self._fetched(), **offsets}))
        if self._paused:
            self.client.pause([TopicPartition(*slot) for slot in self._paused])
        self.joined_at = self.joined_at or time.monotonic()

    def reassign(self, offsets: Mapping[Slot, int]) -> None:
        """Read these partitions from these offsets, and no others."""
        self.next.clear()
        self._out_of_range.clear()
        self._damaged.clear()
        self.assign(offsets)

    def subscribe(
        self,
        topics: Sequence[str],
        start_offsets: Callable[[Sequence[Slot]], Mapping[Slot, int]],
        on_revoke: _OnPartitions,
        on_lost: _OnPartitions,
    ) -> None:
        """Join the group; `start_offsets` returns where newly assigned partitions begin.

        `on_revoke` is called before partitions go to another member, `on_lost` when they already
        have. The client refers to the callbacks, so these must not refer to its owner.
        """

        me, eager = weakref.ref(self), self._member is not None and self._member.eager

        def assigned(client: Client, partitions: list[TopicPartition]) -> None:
            if (reader := me()) is not None:
                begin = start_offsets([(part.topic, part.partition) for part in partitions])
                reader.next.update(begin)
                if eager:
                    client.assign(_partitions(begin))
                else:
                    client.incremental_assign(_partitions(begin))
                reader.joined_at = time.monotonic()
                if not reader.next:
                    LOG.warning("a group member is idle: there are more members than partitions")

        def removed(
            client: Client, partitions: list[TopicPartition], callback: _OnPartitions
        ) -> None:
            slots = [(part.topic, part.partition) for part in partitions]
            if (reader := me()) is not None:
                callback(slots)
                reader._forget(slots)
            if eager:
                client.unassign()
            else:
                client.incremental_unassign(partitions)

        def revoked(client: Client, partitions: list[TopicPartition]) -> None:
            removed(client, partitions, on_revoke)

        def lost(client: Client, partitions: list[TopicPartition]) -> None:
            removed(client, partitions, on_lost)

        self.client.subscribe(list(topics), on_assign=assigned, on_revoke=revoked, on_lost=lost)

    @property
    def has_failed(self) -> bool:
        """Whether the next `fetch` will raise."""
        return self._failure is not None or bool(self._out_of_range or self._damaged)

    def check(self) -> None:
        """Raise the error of an earlier fetch, if there was one."""
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        for damaged_batch in self._damaged.values():
            raise damaged_batch
        for slot in self._out_of_range:
            raise self._out_of_range_error(slot)

    def take(self, most: int, wait: float) -> list[Message]:
        """Up to `most` messages from the buffer; if it is empty, from a fetch."""
        if self.buffer:
            self.revoked.clear()
            return [self.buffer.popleft() for _ in range(min(most, len(self.buffer)))]
        return self.fetch(most, wait)

    def fetch(self, most: int, wait: float) -> list[Message]:
        """Messages in order per partition; an empty list if none arrives within `wait` seconds.

        Partitions that were revoked meanwhile are in `revoked`; the list has none of their
        messages.

        Raises:
            DataGone: a partition no longer holds the next offset; raised again by every call
                until `seek`.
            DamagedBatch: a batch cannot be read; raised again until `seek`.
        """
        self.check()
        self.revoked.clear()
        messages = self.client.consume(most, 0)
        if not messages:
            messages = self.client.consume(1, wait)
            if messages and most > 1:
                messages += self.client.consume(most - 1, 0)
        if self._damaged or any(map(Message.error, messages)):
            messages = [message for message in messages if self._is_record(message)]
        self._check_outage(received=bool(messages))
        if self.revoked:
            messages = [message for message in messages if _slot(message) in self.next]
        return messages

    def seek(self, offsets: Mapping[Slot, int]) -> None:
        """Continue from other offsets; messages fetched from these partitions are dropped."""
        kept = [message for message in self.buffer if _slot(message) not in offsets]
        self.buffer = deque(kept)
        for slot in offsets:
            if slot in self._paused:
                self._paused[slot] = []
            self._out_of_range.discard(slot)
            self._damaged.pop(slot, None)
            self.eof.pop(slot, None)
        if not offsets:
            return
        if self._member is None or self._member.eager:
            self.assign(offsets)
            return
        self.next.update(offsets)
        self.client.incremental_unassign([TopicPartition(*slot) for slot in offsets])
        self.client.incremental_assign(_partitions(offsets))
        if self._paused:
            self.client.pause([TopicPartition(*slot) for slot in self._paused])

    def buffered(self) -> dict[Slot, int]:
        """The offset after the last buffered message of each partition."""
        return _ends(self.buffer)

    def _fetched(self) -> dict[Slot, int]:
        """The offset to fetch next from each partition."""
        paused = (message for messages in self._paused.values() for message in messages)
        return {**self.next, **self.buffered(), **_ends(paused)}

    def pause(self, slots: Iterable[Slot]) -> None:
        """Fetch no more from these partitions; messages already fetched are kept."""
        for slot in slots:
            self._paused.setdefault(slot, [])
        self.client.pause([TopicPartition(*slot) for slot in self._paused])
        kept: list[Message] = []
        for message in self.buffer:
            self._paused.get(_slot(message), kept).append(message)
        self.buffer = deque(kept)

    def resume(self, slots: Iterable[Slot]) -> None:
        """Deliver the messages kept by `pause`, then fetch again."""
        for slot in slots:
            if slot in self._paused:
                self.buffer.extend(self._paused.pop(slot))
                self.client.resume([TopicPartition(*slot)])

    def commit(self, offsets: Mapping[Slot, int], *, wait: bool = True) -> None:
        """Commit these offsets for the group; with `wait`, return when it is done."""
        if not offsets:
            return
        if not wait:
            self.client.commit(offsets=_partitions(offsets), asynchronous=True)
            return
        self._check_available()
        try:
            done = self.client.commit(offsets=_partitions(offsets), asynchronous=False)
            problems = [part.error for part in done or () if part.error is not None]
        except KafkaException as failed:
            problems = [failed.args[0]]
        for problem in problems:
            if problem.code() in _REBALANCED:
                raise MillstreamError(
                    "committing needs these partitions to be this member's",
                    got="a rebalance that assigned them to another",
                    do="continue reading: the records are redelivered to their new member",
                )
            raise self._link.failure(problem, "committing")

    def committed(self, slots: Sequence[Slot]) -> dict[Slot, int | None]:
        """The group's committed offset of each partition."""
        wanted = [TopicPartition(*slot) for slot in slots]
        try:
            found = self.client.committed(wanted, timeout=ANSWER_TIME) if wanted else []
        except KafkaException as failed:
            doing = f"reading the offsets committed {self._subject()}"
            raise self._link.failure(failed, doing) from None
        return {(at.topic, at.partition): at.offset if at.offset >= 0 else None for at in found}

    def _check_available(self) -> None:
        """Without this, a commit to a cluster that is down would block for a session timeout."""
        now = time.monotonic()
        if now - self._answered_at > _PING_SECONDS:
            self._link.ping()
            self._answered_at = now

    def _is_record(self, message: Message) -> bool:
        error, slot = message.error(), _slot(message)
        if slot in self._damaged:
            return False  # after a damaged batch the client may return anything
        if error is None:
            return True
        if error.code() == KafkaError._PARTITION_EOF:
            self.eof[slot] = message.offset() or 0
        elif error.code() in _OUT_OF_RANGE:
            if not self._is_bogus(slot):
                self._out_of_range.add(slot)
        elif error.code() == KafkaError._MAX_POLL_EXCEEDED:
            LOG.warning("a group member exceeded max.poll.interval.ms and lost its partitions")
        elif error.code() in _NO_COMMON_ASSIGNOR and self._member is not None:
            self._failure = self._member.no_common_assignor()
        elif error.code() in damaged.CODES:
            first = message.offset()
            begins = self.next.get(slot, 0) if first is None or first < 0 else first
            self._damaged[slot] = DamagedBatch(slot, begins, damaged.why(error))
            self._ever_damaged.add(slot)
        else:
            self._failure = self._link.failure(error, f"reading {slot[0] or self._subject()}")
        return False

    def _subject(self) -> str:
        """What is read, for errors that name no topic."""
        if self._member is not None:
            return f"in the group {self._member.group}"
        return ", ".join(sorted({topic for topic, _ in self.next}))

    def _is_bogus(self, slot: Slot) -> bool:
        """Whether the offset out of range is not the one requested: in a damaged batch the client
        may take other bytes for offsets, fetch from there, and report that error later."""
        if slot not in self._ever_damaged:
            return False
        earliest, end = bounds(self._link, [slot])[slot]
        return earliest <= self.next.get(slot, 0) <= end

    def _out_of_range_error(self, slot: Slot) -> DataGone:
        wanted = self.next.get(slot, 0)
        earliest, end = bounds(self._link, [slot])[slot]
        if wanted < earliest:
            return gone(slot, wanted, earliest)
        return DataGone(
            f"partition {slot[1]} of {slot[0]} needs to hold offset {wanted}",
            got=f"offsets {earliest} to {end}: the topic was recreated or truncated",
            do='continue with seek_to("start") or seek_to("end")',
        )

    def _check_outage(self, *, received: bool) -> None:
        if received or not self._link.errors.all_down:
            self._down_since = None
            return
        now = time.monotonic()
        self._down_since = self._down_since or now
        if now - self._down_since > self._patience:
            self._down_since = None
            self._link.ping()

    def _forget(self, slots: Iterable[Slot]) -> None:
        """Drop what is stored of partitions that went to another member."""
        removed = set(slots)
        kept = [message for message in self.buffer if _slot(message) not in removed]
        self.buffer.clear()
        self.buffer.extend(kept)
        self.revoked |= removed
        for slot in removed:
            self.next.pop(slot, None)
            self.eof.pop(slot, None)
            self._paused.pop(slot, None)
            self._out_of_range.discard(slot)
            self._damaged.pop(slot, None)


def _slot(message: Message) -> Slot:
    return message.topic(), message.partition()  # type: ignore[return-value]


def _ends(messages: Iterable[Message]) -> dict[Slot, int]:
    """The offset after the last message of each partition."""
    return {_slot(message): (message.offset() or 0) + 1 for message in messages}


def _partitions(offsets: Mapping[Slot, int]) -> list[TopicPartition]:
    return [TopicPartition(*slot, offset) for slot, offset in sorted(offsets.items())]
