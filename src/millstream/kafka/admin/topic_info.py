"""Describes topics: id, partitions, offsets and settings."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from confluent_kafka import TopicCollection
from confluent_kafka.admin import (
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
    TopicDescription,
)

from millstream.errors import NotFound, Unavailable
from millstream.kafka.librdkafka import ANSWER_TIME, NOT_YET_EVERYWHERE, Link
from millstream.kafka.names import no_such
from millstream.kafka.positions import Slot, bounds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


_NO_OFFSETS = (None, None)
_NEW_TOPIC_SECONDS = 2.0  # in which a new topic becomes known to every broker


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """One partition: its replicas and offsets (`latest` is the next one).

    A partition without a leader has no offsets.
    """

    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    earliest: int | None
    latest: int | None


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """One topic; `settings` has its own, not the cluster's defaults."""

    name: str
    id: str
    internal: bool
    partitions: tuple[PartitionInfo, ...]
    settings: Mapping[str, str]

    @property
    def replicas(self) -> int:
        return max((len(part.replicas) for part in self.partitions), default=0)

    @property
    def offsets_held(self) -> int:
        """Offsets in the partitions that have a leader; with gaps, there are fewer records."""
        return sum((part.latest or 0) - (part.earliest or 0) for part in self.partitions)


def find_topic(link: Link, name: str) -> TopicDescription | None:
    """The topic of that name, if there is one; it is never created."""
    try:
        return _describe(link, [name])[name]
    except NotFound:
        return None


def described(link: Link, names: Sequence[str]) -> dict[str, TopicDescription]:
    """The topics of these names.

    Raises:
        NotFound: one does not exist; the message has similar names.
    """
    until = time.monotonic() + _NEW_TOPIC_SECONDS
    while True:
        try:
            return _describe(link, names)
        except NotFound:
            if time.monotonic() > until or link.brokers() == 1:
                break
            time.sleep(0.05)
    existing = link.topic_names()
    missing = next((name for name in names if name not in existing), names[0])
    do = f"create it with `millstream topics create {missing}`"
    raise no_such("topic", missing, existing, do=do)


def slots_of(link: Link, names: Sequence[str]) -> list[Slot]:
    """All partitions of these topics."""
    topics = described(link, names)
    return [(name, part.id) for name in names for part in topics[name].partitions]


def topic_infos(link: Link, names: Sequence[str]) -> list[TopicInfo]:
    """These topics, by name."""
    topics, held = _with_bounds(link, names)
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in topics]
    answers = link.call_all(
        "reading the settings of topics",
        lambda admin: admin.describe_configs(resources, request_timeout=ANSWER_TIME),
        retry=NOT_YET_EVERYWHERE,
    )
    configs = {resource.name: entries for resource, entries in answers.items()}
    return [_info(topic, held, configs.get(name, {})) for name, topic in sorted(topics.items())]


def _with_bounds(
    link: Link, names: Sequence[str]
) -> tuple[dict[str, TopicDescription], dict[Slot, tuple[int, int]]]:
    """The topics, and the offsets of those of their partitions that have a leader."""
    topics = described(link, names)
    led = _led(topics)
    try:
        return topics, bounds(link, led)
    except Unavailable:
        topics = described(link, names)
        if _led(topics) == led:
            raise
        return topics, bounds(link, _led(topics))


def _led(topics: Mapping[str, TopicDescription]) -> list[Slot]:
    return [
        (name, part.id)
        for name, topic in topics.items()
        for part in topic.partitions
        if part.leader is not None
    ]


def _describe(link: Link, names: Sequence[str]) -> dict[str, TopicDescription]:
    answers: dict[str, TopicDescription] = link.call_all(
        f"describing {names[0] if len(names) == 1 else 'topics'}",
        lambda admin: admin.describe_topics(
            TopicCollection(list(names)), request_timeout=ANSWER_TIME
        ),
    )
    return answers


def _info(
    topic: TopicDescription,
    held: Mapping[Slot, tuple[int, int]],
    config: Mapping[str, ConfigEntry],
) -> TopicInfo:
    return TopicInfo(
        name=topic.name,
        id=str(topic.topic_id),
        internal=topic.is_internal,
        partitions=tuple(
            PartitionInfo(
                partition=part.id,
                leader=part.leader.id if part.leader is not None else None,
                replicas=tuple(node.id for node in part.replicas),
                isr=tuple(node.id for node in part.isr),
                earliest=held.get((topic.name, part.id), _NO_OFFSETS)[0],
                latest=held.get((topic.name, part.id), _NO_OFFSETS)[1],
            )
            for part in sorted(topic.partitions, key=lambda part: part.id)
        ),
        settings={name: value for name, entry in sorted(config.items()) if (value := _own(entry))},
    )


def _own(entry: ConfigEntry) -> str | None:
    own = ConfigSource(entry.source) is ConfigSource.DYNAMIC_TOPIC_CONFIG
    return entry.value if own else None
