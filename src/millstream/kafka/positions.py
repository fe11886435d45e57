"""Positions in a topic (the start, the end, a time), and their offsets in each partition."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal

from confluent_kafka import IsolationLevel, KafkaError, TopicPartition
from confluent_kafka.admin import OffsetSpec

from millstream.errors import DataGone, InvalidInput
from millstream.kafka.librdkafka import ANSWER_TIME, NOT_YET_EVERYWHERE, Link
from millstream.kafka.records import milliseconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Slot = tuple[str, int]
"""A topic and one of its partitions."""

Position = Literal["start", "end"] | datetime | timedelta
"""Where to read from; a `timedelta` is that long before now."""

_LEADERLESS = frozenset({KafkaError._NOENT})  # no leader yet: a broker is starting
_EARLIEST = OffsetSpec.earliest()
_LATEST = OffsetSpec.latest()


def check_position(position: object, *, what: str) -> Position:
    if position in ("start", "end") or isinstance(position, datetime | timedelta):
        return position
    raise InvalidInput(
        f'{what} needs "start", "end", a datetime or a timedelta',
        got=repr(position),
        do='write for instance timedelta(hours=1) for "one hour ago"',
    )


def offsets_at(
    link: Link, slots: Iterable[Slot], position: Position, *, committed: bool = False
) -> dict[Slot, int]:
    """The offset of a position in each partition; a time after the last record is the end.

    With `committed` the end is the last stable offset, before the first open transaction.
    """
    wanted = list(slots)
    if isinstance(position, str):
        spec = _EARLIEST if position == "start" else _LATEST
    else:
        time = position if isinstance(position, datetime) else datetime.now(UTC) - abs(position)
        spec = OffsetSpec.for_timestamp(milliseconds(time, what="the position to read from"))
    found = _ask(link, wanted, spec, committed=committed)
    later = [slot for slot, offset in found.items() if offset < 0]
    return {**found, **(_ask(link, later, _LATEST, committed=committed) if later else {})}


def bounds(link: Link, slots: Iterable[Slot]) -> dict[Slot, tuple[int, int]]:
    """The earliest offset and the end offset of each partition."""
    wanted = list(slots)
    first, last = offsets_at(link, wanted, "start"), offsets_at(link, wanted, "end")
    return {slot: (first[slot], last[slot]) for slot in wanted}


def check_offset(slot: Slot, offset: object, held: tuple[int, int]) -> int:
    """The offset, if the partition holds it or it is the end.

    Raises:
        DataGone: it is before the earliest offset.
        InvalidInput: it is after the end, or not a valid offset.
    """
    topic, partition = slot
    if not isinstance(offset, int) or isinstance(offset, bool) or offset < 0:
        raise InvalidInput(
            f"partition {partition} of {topic} needs a whole offset from 0 on", got=repr(offset)
        )
    if offset < held[0]:
        raise gone(slot, offset, held[0])
    if offset > held[1]:
        raise InvalidInput(
            f"partition {partition} of {topic} needs an offset up to its end, {held[1]}",
            got=str(offset),
            do='use "end" for what comes next',
        )
    return offset


def gone(slot: Slot, wanted: int, earliest: int) -> DataGone:
    """The error for records that retention removed before they were read."""
    topic, partition = slot
    return DataGone(
        f"partition {partition} of {topic} needs to hold offset {wanted}",
        got=f"a log that begins at {earliest}: the records between were removed by retention",
        do='continue from the start with seek_to("start"), and keep records longer',
    )


def per_partition(topic: str, offsets: Mapping[int, int], partitions: Iterable[int]) -> None:
    """Refuse offsets for partitions that the topic does not have."""
    existing = set(partitions)
    for partition in offsets:
        if partition not in existing:
            raise InvalidInput(
                f"{topic} has partitions 0 to {max(existing)}",
                got=f"an offset for partition {partition!r}",
                do="use existing partitions",
            )


def _ask(link: Link, slots: list[Slot], spec: OffsetSpec, *, committed: bool) -> dict[Slot, int]:
    if not slots:
        return {}
    level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    answers = link.call_all(
        "asking for offsets",
        lambda admin: admin.list_offsets(
            {TopicPartition(*slot): spec for slot in slots},
            isolation_level=level,
            request_timeout=ANSWER_TIME,
        ),
        retry=NOT_YET_EVERYWHERE | _LEADERLESS,
    )
    return {(at.topic, at.partition): found.offset for at, found in answers.items()}
