"""Reading partitions: who owns which, how far each is, and what is gone.

A `Reader` fetches messages for the partitions it has, by itself (all of them) or as a member
of a group (its share). Positions are those of records handed on, not of records fetched.
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

    _Told = Callable[[Sequence[Slot]], None]

LOG = logging.getLogger("millstream.kafka")

_TRUST = 1.0
"""Seconds for which a cluster that has answered is taken to be there."""

_MOVED_ON = {
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError._ASSIGNMENT_LOST,
    KafkaError._STATE,
}
_UNLIKE = {KafkaError.INCONSISTENT_GROUP_PROTOCOL}
_UNHELD = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}


class Reader:
    """One client of the log: fetches, and knows the next offset of every partition it has."""

    def __init__(
        self, link: Link, client: Client, *, patience: float, member: Member | None = None
    ) -> None:
        self.client = client
        self._member = member
        self.next: dict[Slot, int] = {}
        self.eof: dict[Slot, int] = {}
        self.buffer: deque[Message] = deque()
        self.joined_at: float | None = None
        self.left: set[Slot] = set()
        self._held: dict[Slot, list[Message]] = {}
        self._link = link
        self._patience = patience
        self._unheld: set[Slot] = set()
        self._damaged: dict[Slot, DamagedBatch] = {}
        self._strayed: set[Slot] = set()
        self._trouble: MillstreamError | None = None
        self._down_since: float | None = None
        self._answered_at = 0.0

    def assign(self, places: Mapping[Slot, int]) -> None:
        """Read these partitions from these offsets; the others go on after what was fetched."""
        self.next.update(places)
        self.client.assign(_partitions({**self._fetched(), **places}))
        if self._held:
            self.client.pause([TopicPartition(*slot) for slot in self._held])
        self.joined_at = self.joined_at or time.monotonic()

    def reassign(self, places: Mapping[Slot, int]) -> None:
        """Read these partitions from these offsets, alone, and no others any more."""
        self.next.clear()
        self._unheld.clear()
        self._damaged.clear()
        self.assign(places)

    def subscribe(
        self,
        topics: Sequence[str],
        places: Callable[[Sequence[Slot]], Mapping[Slot, int]],
        leaving: _Told,
        losing: _Told,
    ) -> None:
        """Read a share of the topics; `places` says where newly given partitions begin.

        `leaving` is told of those that are about to go to another member, `losing` of those
        that are another's already. The client holds the callbacks, so they hold no one who
        holds the client.
        """

        me, eager = weakref.ref(self), self._member is not None and self._member.eager

        def given(client: Client, partitions: list[TopicPartition]) -> None:
            if (reader := me()) is not None:
                begin = places([(part.topic, part.partition) for part in partitions])
                reader.next.update(begin)
                if eager:
                    client.assign(_partitions(begin))
                else:
                    client.incremental_assign(_partitions(begin))
                reader.joined_at = time.monotonic()
                if not reader.next:
                    LOG.warning("a member of a group is idle: there are more than partitions")

        def away(client: Client, partitions: list[TopicPartition], told: _Told) -> None:
            slots = [(part.topic, part.partition) for part in partitions]
            if (reader := me()) is not None:
                told(slots)
                reader._forget(slots)
            if eager:
                client.unassign()
            else:
                client.incremental_unassign(partitions)

        def taken(client: Client, partitions: list[TopicPartition]) -> None:
            away(client, partitions, leaving)

        def lost(client: Client, partitions: list[TopicPartition]) -> None:
            away(client, partitions, losing)

        self.client.subscribe(list(topics), on_assign=given, on_revoke=taken, on_lost=lost)

    @property
    def troubled(self) -> bool:
        """Whether the next `fetch` will raise."""
        return self._trouble is not None or bool(self._unheld or self._damaged)

    def check(self) -> None:
        """Raise what is wrong, if something is."""
        if self._trouble is not None:
            trouble, self._trouble = self._trouble, None
            raise trouble
        for damage in self._damaged.values():
            raise damage
        for slot in self._unheld:
            raise self._not_held(slot)

    def take(self, most: int, wait: float) -> list[Message]:
        """What was fetched before and not handed on, else what a fetch brings."""
        if self.buffer:
            self.left.clear()
            return [self.buffer.popleft() for _ in range(min(most, len(self.buffer)))]
        return self.fetch(most, wait)

    def fetch(self, most: int, wait: float) -> list[Message]:
        """Messages in order per partition; none when `wait` seconds bring none.

        Partitions that went to another member meanwhile are in `left`, and nothing of them is
        among the messages.

        Raises:
            DataGone: a partition no longer holds the offset that comes next; said again at
                every call until that partition is moved.
            DamagedBatch: a batch cannot be read; said again until that partition is moved.
        """
        self.check()
        self.left.clear()
        messages = self.client.consume(most, 0)
        if not messages:
            messages = self.client.consume(1, wait)
            if messages and most > 1:
                messages += self.client.consume(most - 1, 0)
        if self._damaged or any(map(Message.error, messages)):
            messages = [message for message in messages if self._is_record(message)]
        self._watch_outage(heard=bool(messages))
        if self.left:
            messages = [message for message in messages if _slot(message) in self.next]
        return messages

    def move(self, places: Mapping[Slot, int]) -> None:
        """Go on from other offsets; what was fetched of these partitions is dropped."""
        kept = [message for message in self.buffer if _slot(message) not in places]
        self.buffer = deque(kept)
        for slot in places:
            if slot in self._held:
                self._held[slot] = []
            self._unheld.discard(slot)
            self._damaged.pop(slot, None)
            self.eof.pop(slot, None)
        if not places:
            return
        if self._member is None or self._member.eager:
            self.assign(places)
            return
        self.next.update(places)
        self.client.incremental_unassign([TopicPartition(*slot) for slot in places])
        self.client.incremental_assign(_partitions(places))
        if self._held:
            self.client.pause([TopicPartition(*slot) for slot in self._held])

    def buffered(self) -> dict[Slot, int]:
        """Where the records end that were fetched and not handed on."""
        return _ends(self.buffer)

    def _fetched(self) -> dict[Slot, int]:
        """Where each partition is to be fetched from next."""
        held = (message for messages in self._held.values() for message in messages)
        return {**self.next, **self.buffered(), **_ends(held)}

    def pause(self, slots: Iterable[Slot]) -> None:
        """Keep what was fetched of these partitions aside, and fetch no more."""
        for slot in slots:
            self._held.setdefault(slot, [])
        self.client.pause([TopicPartition(*slot) for slot in self._held])
        kept: list[Message] = []
        for message in self.buffer:
            self._held.get(_slot(message), kept).append(message)
        self.buffer = deque(kept)

    def resume(self, slots: Iterable[Slot]) -> None:
        """Hand on what was kept aside, then fetch again."""
        for slot in slots:
            if slot in self._held:
                self.buffer.extend(self._held.pop(slot))
                self.client.resume([TopicPartition(*slot)])

    def commit(self, places: Mapping[Slot, int], *, wait: bool = True) -> None:
        """Commit these offsets for the group; with `wait`, return when it is done."""
        if not places:
            return
        if not wait:
            self.client.commit(offsets=_partitions(places), asynchronous=True)
            return
        self._check_there()
        try:
            done = self.client.commit(offsets=_partitions(places), asynchronous=False)
            problems = [place.error for place in done or () if place.error is not None]
        except KafkaException as failed:
            problems = [failed.args[0]]
        for problem in problems:
            if problem.code() in _MOVED_ON:
                raise MillstreamError(
                    "committing needs these partitions to be this member's",
                    got="a group that has given them to another",
                    do="go on reading: the records come again, to whoever has them now",
                )
            raise self._link.failure(problem, "committing")

    def committed(self, slots: Sequence[Slot]) -> dict[Slot, int | None]:
        """What the group has committed in these partitions."""
        wanted = [TopicPartition(*slot) for slot in slots]
        try:
            found = self.client.committed(wanted, timeout=ANSWER_TIME) if wanted else []
        except KafkaException as failed:
            doing = f"asking for the offsets committed {self._what()}"
            raise self._link.failure(failed, doing) from None
        return {(at.topic, at.partition): at.offset if at.offset >= 0 else None for at in found}

    def _check_there(self) -> None:
        """The client's own commit would wait for an absent cluster as long as a session lasts."""
        now = time.monotonic()
        if now - self._answered_at > _TRUST:
            self._link.ping()
            self._answered_at = now

    def _is_record(self, message: Message) -> bool:
        error, slot = message.error(), _slot(message)
        if slot in self._damaged:
            return False  # behind a damaged batch the client may read anything
        if error is None:
            return True
        if error.code() == KafkaError._PARTITION_EOF:
            self.eof[slot] = message.offset() or 0
        elif error.code() in _UNHELD:
            if not self._has_strayed(slot):
                self._unheld.add(slot)
        elif error.code() == KafkaError._MAX_POLL_EXCEEDED:
            LOG.warning("a member of the group was too slow and lost its partitions for now")
        elif error.code() in _UNLIKE and self._member is not None:
            self._trouble = self._member.unlike()
        elif error.code() in damaged.CODES:
            first = message.offset()
            begins = self.next.get(slot, 0) if first is None or first < 0 else first
            self._damaged[slot] = DamagedBatch(slot, begins, damaged.why(error))
            self._strayed.add(slot)
        else:
            self._trouble = self._link.failure(error, f"reading {slot[0] or self._what()}")
        return False

    def _what(self) -> str:
        """What is read, where an error is of no single topic."""
        if self._member is not None:
            return f"in the group {self._member.group}"
        return ", ".join(sorted({topic for topic, _ in self.next}))

    def _has_strayed(self, slot: Slot) -> bool:
        """Whether an offset that is not there is none of ours: in a damaged batch the client takes
        other bytes for offsets, and says later that the log does not hold them."""
        if slot not in self._strayed:
            return False
        earliest, end = bounds(self._link, [slot])[slot]
        return earliest <= self.next.get(slot, 0) <= end

    def _not_held(self, slot: Slot) -> DataGone:
        wanted = self.next.get(slot, 0)
        earliest, end = bounds(self._link, [slot])[slot]
        if wanted < earliest:
            return gone(slot, wanted, earliest)
        return DataGone(
            f"partition {slot[1]} of {slot[0]} needs to hold offset {wanted}",
            got=f"a log of {earliest} to {end}: the topic was made anew or lost its end",
            do='choose where to go on with seek_to("start") or seek_to("end")',
        )

    def _watch_outage(self, *, heard: bool) -> None:
        if heard or not self._link.errors.all_down:
            self._down_since = None
            return
        now = time.monotonic()
        self._down_since = self._down_since or now
        if now - self._down_since > self._patience:
            self._down_since = None
            self._link.ping()

    def _forget(self, slots: Iterable[Slot]) -> None:
        """They are another member's now, and so is what was fetched of them."""
        gone = set(slots)
        kept = [message for message in self.buffer if _slot(message) not in gone]
        self.buffer.clear()
        self.buffer.extend(kept)
        self.left |= gone
        for slot in gone:
            self.next.pop(slot, None)
            self.eof.pop(slot, None)
            self._held.pop(slot, None)
            self._unheld.discard(slot)
            self._damaged.pop(slot, None)


def _slot(message: Message) -> Slot:
    return message.topic(), message.partition()  # type: ignore[return-value]


def _ends(messages: Iterable[Message]) -> dict[Slot, int]:
    """Where the messages of each partition end."""
    return {_slot(message): (message.offset() or 0) + 1 for message in messages}


def _partitions(places: Mapping[Slot, int]) -> list[TopicPartition]:
    return [TopicPartition(*slot, offset) for slot, offset in sorted(places.items())]
