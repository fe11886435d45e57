"""Checks the arguments of `Consumer`, and makes the settings of its librdkafka client."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal

from millstream.errors import InvalidInput
from millstream.kafka.names import check_topic
from millstream.kafka.positions import Position, Slot, check_position
from millstream.kafka.record_limits import READ_ANY_SIZE

if TYPE_CHECKING:
    from millstream.kafka.clients.consuming.membership import Member

Start = Literal["committed", "start", "end"] | datetime | timedelta | Mapping[int, int]


def client_config(member: Member | None, isolation: str, *, until_end: bool) -> dict[str, str]:
    group = {"group.id": f"millstream-reader-{uuid.uuid4().hex}"}
    if member is not None:
        group = {"group.id": member.group, "partition.assignment.strategy": member.assignors}
    return {
        **group,
        "isolation.level": isolation,
        "enable.auto.commit": "false",
        "enable.auto.offset.store": "false",
        "auto.offset.reset": "error",
        "check.crcs": "true",
        "enable.partition.eof": "true" if until_end else "false",
        "allow.auto.create.topics": "false",
        "fetch.wait.max.ms": "100" if until_end else "500",
        "fetch.queue.backoff.ms": "10",
        "fetch.error.backoff.ms": "100",
        "topic.metadata.refresh.interval.ms": "30000",
        **READ_ANY_SIZE,
    }


def checked_topics(topics: tuple[str, ...]) -> tuple[str, ...]:
    if not topics:
        raise InvalidInput("a consumer needs a topic", got="none", do='write Consumer("bids")')
    return tuple(dict.fromkeys(check_topic(topic) for topic in topics))


def checked_start(
    start: Start | None, topics: tuple[str, ...], *, grouped: bool
) -> Position | Mapping[int, int]:
    if start is None or (start == "committed" and grouped):
        return "start"
    if start == "committed":
        raise InvalidInput('start="committed" needs a group', got="none", do="pass group=...")
    if isinstance(start, Mapping):
        if len(topics) > 1:
            raise InvalidInput(
                "start by offsets needs one topic",
                got=f"{len(topics)}",
                do="use seek for each topic",
            )
        return start
    return check_position(start, what="start")


def checked_isolation(isolation: str) -> bool:
    if isolation not in ("read_committed", "read_uncommitted"):
        raise InvalidInput(
            'isolation needs "read_committed" or "read_uncommitted"', got=repr(isolation)
        )
    return isolation == "read_committed"


def checked_count(count: int, what: str) -> int:
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise InvalidInput(f"{what} needs a whole number from 1 on", got=repr(count))
    return count


def chosen(
    slots: Sequence[Slot], partitions: Sequence[int] | None, *, grouped: bool
) -> Sequence[Slot]:
    if partitions is None:
        return slots
    if grouped:
        raise InvalidInput(
            "partitions= needs a consumer without a group", got="both", do="omit one"
        )
    there = {partition for _, partition in slots}
    if not partitions or not set(partitions) <= there:
        raise InvalidInput(f"partitions needs some of {sorted(there)}", got=repr(list(partitions)))
    return [slot for slot in slots if slot[1] in partitions]
