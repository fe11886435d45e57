"""Consumer groups: their members and lag, and resetting their offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal

from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, TopicPartition

from millstream.errors import AlreadyRunning
from millstream.kafka.librdkafka import ANSWER_TIME, Link
from millstream.kafka.names import check_group, no_such
from millstream.kafka.positions import (
    Slot,
    bounds,
    check_offset,
    check_position,
    offsets_at,
    per_partition,
)

if TYPE_CHECKING:
    from enum import Enum

    from confluent_kafka.admin import ConsumerGroupDescription, MemberDescription

Target = Literal["start", "end"] | datetime | timedelta | Mapping[int, int] | int

_REBALANCING = {"PREPARING_REBALANCING", "COMPLETING_REBALANCING", "ASSIGNING", "RECONCILING"}


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group's name and state: stable, rebalancing, empty, dead."""

    name: str
    state: str


@dataclass(frozen=True, slots=True)
class MemberInfo:
    """One member and the partitions it reads; without any it is idle."""

    id: str
    client: str
    host: str
    partitions: tuple[Slot, ...]

    @property
    def idle(self) -> bool:
        return not self.partitions


@dataclass(frozen=True, slots=True)
class GroupPartition:
    """A group's position in one partition.

    `committed` is None where the group has committed nothing; it then starts at the
    earliest record, and `lag` counts from there. `gone` counts the offsets that retention
    removed before the group read them.
    """

    topic: str
    partition: int
    committed: int | None
    earliest: int
    end: int
    member: str | None

    @property
    def lag(self) -> int:
        return max(0, self.end - (self.earliest if self.committed is None else self.committed))

    @property
    def gone(self) -> int:
        return 0 if self.committed is None else max(0, self.earliest - self.committed)


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """One group; its `idle` members have no partition."""

    name: str
    state: str
    members: tuple[MemberInfo, ...]
    partitions: tuple[GroupPartition, ...]

    @property
    def idle(self) -> tuple[MemberInfo, ...]:
        return tuple(member for member in self.members if member.idle)

    @property
    def lag(self) -> int:
        return sum(part.lag for part in self.partitions)


def list_groups(link: Link) -> list[GroupListing]:
    """All groups by name."""
    answer = link.call(
        "listing the groups",
        lambda admin: admin.list_consumer_groups(request_timeout=ANSWER_TIME),
    )
    if answer.errors:
        raise link.failure(answer.errors[0], "listing the groups")
    found = [GroupListing(group.group_id, _state(group.state)) for group in answer.valid]
    return sorted(found, key=lambda group: group.name)


def describe_group(link: Link, name: str) -> GroupInfo:
    """One group.

    Raises:
        NotFound: there is no such group; the message has similar names.
    """
    group = _describe(link, name)
    members = tuple(
        MemberInfo(member.member_id, member.client_id, member.host, _slots(member))
        for member in sorted(group.members, key=lambda member: member.member_id)
    )
    readers = {slot: member.id for member in members for slot in member.partitions}
    committed = _committed(link, name)
    slots = _all_partitions(link, {*committed, *readers})
    held = bounds(link, slots)
    return GroupInfo(
        name=name,
        state=_state(group.state),
        members=members,
        partitions=tuple(
            GroupPartition(*slot, committed.get(slot), *held[slot], readers.get(slot))
            for slot in slots
        ),
    )


def reset_group(
    link: Link, name: str, slots: Sequence[Slot], to: Target, *, dry_run: bool
) -> dict[int, tuple[int | None, int]]:
    """Change a group's committed offsets in the topic of these partitions."""
    group = _describe(link, name)
    wanted = _target_offsets(link, slots, to)
    if group.members:
        raise AlreadyRunning(
            f"resetting the group {name} needs it to have no active members",
            got=f"{len(group.members)}: {', '.join(map(_member_text, group.members))}",
            do="stop them first, or wait for the session timeout of those that died",
        )
    old = _committed(link, name)
    moves = {slot[1]: (old.get(slot), offset) for slot, offset in sorted(wanted.items())}
    if moves and not dry_run:
        offsets = [TopicPartition(*slot, offset) for slot, offset in wanted.items()]
        answers = link.call_all(
            f"resetting the group {name}",
            lambda admin: admin.alter_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(name, offsets)], request_timeout=ANSWER_TIME
            ),
        )
        for part in answers[name].topic_partitions:
            if part.error is not None:
                raise link.failure(part.error, f"resetting the group {name}")
    return moves


def _target_offsets(link: Link, slots: Sequence[Slot], to: Target) -> dict[Slot, int]:
    if isinstance(to, int) and not isinstance(to, bool):
        to = {partition: to for _, partition in slots}
    if not isinstance(to, Mapping):
        return offsets_at(link, slots, check_position(to, what="`to`"))
    topic = slots[0][0]
    per_partition(topic, to, [partition for _, partition in slots])
    held = bounds(link, [(topic, partition) for partition in to])
    return {
        (topic, partition): check_offset((topic, partition), offset, held[topic, partition])
        for partition, offset in to.items()
    }


def _describe(link: Link, name: str) -> ConsumerGroupDescription:
    check_group(name)
    answers = link.call_all(
        f"describing the group {name}",
        lambda admin: admin.describe_consumer_groups([name], request_timeout=ANSWER_TIME),
    )
    found: ConsumerGroupDescription = answers[name]
    if found.state == ConsumerGroupState.DEAD and not found.members:
        raise no_such("group", name, [group.name for group in list_groups(link)])
    return found


def _committed(link: Link, name: str) -> dict[Slot, int]:
    answers = link.call_all(
        f"reading the offsets of the group {name}",
        lambda admin: admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(name)], request_timeout=ANSWER_TIME
        ),
    )
    return {
        (part.topic, part.partition): part.offset
        for part in answers[name].topic_partitions
        if part.offset >= 0
    }


def _all_partitions(link: Link, slots: Iterable[Slot]) -> list[Slot]:
    """All partitions of these topics, as far as they exist: those without a commit count too."""
    topics = {topic for topic, _ in slots}
    if not topics:
        return []
    existing = link.metadata()
    return [(topic, part) for topic in sorted(topics & existing.keys()) for part in existing[topic]]


def _slots(member: MemberDescription) -> tuple[Slot, ...]:
    assigned = member.assignment.topic_partitions
    return tuple(sorted((part.topic, part.partition) for part in assigned))


def _member_text(member: MemberDescription) -> str:
    return f"{member.client_id} at {member.host.lstrip('/')}"


def _state(state: Enum | None) -> str:
    if state is None:
        return "unknown"
    return "rebalancing" if state.name in _REBALANCING else state.name.lower()
