"""Creates, lists, describes, alters, truncates and deletes topics, and manages consumer groups."""

from __future__ import annotations

import time
import warnings
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, TopicPartition
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
    TopicDescription,
)

from millstream.errors import InvalidInput, Unavailable
from millstream.kafka import topic_settings
from millstream.kafka.admin import groups
from millstream.kafka.admin.groups import GroupInfo, GroupListing, Target
from millstream.kafka.admin.topic_info import (
    TopicInfo,
    described,
    find_topic,
    slots_of,
    topic_infos,
)
from millstream.kafka.librdkafka import ANSWER_TIME, Link
from millstream.kafka.names import check_topic
from millstream.kafka.positions import (
    Position,
    Slot,
    bounds,
    check_offset,
    check_position,
    offsets_at,
    per_partition,
)
from millstream.kafka.settings import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from millstream.duration import Duration
    from millstream.kafka.topic_settings import Setting

_VISIBLE_SECONDS = 10.0
_CLUSTER_DEFAULT = -1

TopicList = list[TopicInfo]
GroupList = list[GroupListing]


class Topics:
    """The topics and consumer groups of a cluster.

        topics = Topics()
        topics.create("bids", partitions=3, retention="7 days")
        topics.describe("bids").partitions[0].latest

    Every call raises `Unavailable` within five seconds when the cluster does not answer.
    """

    def __init__(self, kafka: str | Cluster | None = None) -> None:
        self._link = Link(Cluster.resolve(kafka))

    @property
    def address(self) -> str:
        return self._link.cluster.address

    def list(self, *, internal: bool = False) -> TopicList:
        """All topics by name; Kafka's own only with `internal=True`."""
        names = [name for name in self._link.topic_names() if internal or name[:2] != "__"]
        found = topic_infos(self._link, names) if names else []
        return [info for info in found if internal or not info.internal]

    def describe(self, name: str) -> TopicInfo:
        """One topic: its id, partitions, offsets and own settings.

        Raises:
            NotFound: it does not exist; the message has similar names.
        """
        return topic_infos(self._link, [check_topic(name)])[0]

    def create(
        self,
        name: str,
        *,
        partitions: int = 1,
        replicas: int | None = None,
        settings: Mapping[str, Setting] | None = None,
        retention: Duration | None = None,
        retention_bytes: int | None = None,
        compact: bool = False,
        exists_ok: bool = False,
    ) -> TopicInfo:
        """Create a topic and return it once it can be used.

        `replicas` is the number of brokers that each partition is kept on, by default the
        cluster's. With one replica, `min.insync.replicas` is 1; otherwise Kafka would elect no
        leader after a crash of its broker, even when the broker is back. `retention` and
        `retention_bytes` limit each partition; `compact` keeps the last value of each key
        instead. With `exists_ok` an existing topic is returned as it is.

        Raises:
            InvalidInput: the name, a count or a setting is invalid, or the topic exists.
        """
        check_topic(name)
        _count(partitions, "partitions")
        if replicas is not None:
            _count(replicas, "replicas")
        config = topic_settings.texts(
            settings, retention=retention, retention_bytes=retention_bytes, compact=compact
        )
        if replicas == 1:
            config = {topic_settings.IN_SYNC: "1", **config}
        if find_topic(self._link, name) is not None:
            if exists_ok:
                return self.describe(name)
            raise InvalidInput(
                "a new topic needs a new name",
                got=f"{name}, which exists",
                do="choose another, or pass exists_ok=True",
            )
        copies = _CLUSTER_DEFAULT if replicas is None else replicas
        new = NewTopic(name, num_partitions=partitions, replication_factor=copies, config=config)
        self._link.call_all(
            f"creating the topic {name}",
            lambda admin: admin.create_topics([new], request_timeout=ANSWER_TIME),
            already_done=frozenset({KafkaError.TOPIC_ALREADY_EXISTS}),
        )
        self._await_partitions(name, partitions)
        return self.describe(name)

    def alter(
        self,
        name: str,
        *,
        settings: Mapping[str, Setting | None] | None = None,
        partitions: int | None = None,
    ) -> TopicInfo:
        """Change settings (None resets one to the cluster's default) or add partitions.

        The broker checks everything before anything is changed. Adding partitions to a topic
        with records warns (`UserWarning`), because keys then go to other partitions.
        """
        before = self.describe(name)
        changes = [_change(key, value) for key, value in (settings or {}).items()]
        wanted = partitions if partitions is not None else len(before.partitions)
        grow = _grows(before, wanted)
        for only_check in (True, False):
            if grow and not only_check:
                _warn_of_new_partitions(before, wanted)
            if changes:
                self._set(name, changes, only_check=only_check)
            if grow:
                self._grow(name, wanted, only_check=only_check)
        if grow:
            self._await_partitions(name, wanted)
        return self.describe(name)

    def delete(self, name: str) -> None:
        """Delete a topic and all it holds."""
        described(self._link, [check_topic(name)])
        self._link.call_all(
            f"deleting the topic {name}",
            lambda admin: admin.delete_topics([name], request_timeout=ANSWER_TIME),
            already_done=frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART}),
        )
        self._await(name, lambda topic: topic is None)

    def truncate(self, name: str, before: Mapping[int, int]) -> dict[int, int]:
        """Delete the records before an offset, per partition; returns the new earliest offsets."""
        slots = self._slots(name)
        per_partition(name, before, [partition for _, partition in slots])
        held = bounds(self._link, [(name, partition) for partition in before])
        cuts = []
        for partition, offset in before.items():
            earliest, end = held[name, partition]
            check_offset((name, partition), offset, (0, end))
            cuts.append(TopicPartition(name, partition, max(offset, earliest)))
        if not cuts:
            return {}
        done = self._link.call_all(
            f"removing records of {name}",
            lambda admin: admin.delete_records(cuts, request_timeout=ANSWER_TIME),
        )
        return {at.partition: result.low_watermark for at, result in done.items()}

    def offsets(self, name: str, at: Position = "end") -> dict[int, int]:
        """The offset of a position in each partition: "start", "end", a time, or a time ago."""
        found = offsets_at(self._link, self._slots(name), check_position(at, what="`at`"))
        return {partition: offset for (_, partition), offset in found.items()}

    def groups(self) -> GroupList:
        """All consumer groups by name."""
        return groups.list_groups(self._link)

    def group(self, name: str) -> GroupInfo:
        """One group: its state, members, and position in each partition."""
        return groups.describe_group(self._link, name)

    def lag(self, group: str) -> dict[Slot, int]:
        """How many offsets a group is behind the end, per topic and partition."""
        return {(part.topic, part.partition): part.lag for part in self.group(group).partitions}

    def reset_group(
        self, name: str, topic: str, to: Target, *, dry_run: bool = False
    ) -> dict[int, tuple[int | None, int]]:
        """Change a group's committed offsets in a topic; returns (old, new) for each partition.

        `to` is "start", "end", a datetime, a timedelta (before now), one offset for every
        partition, or a mapping of partitions to offsets (the others stay).

        Raises:
            AlreadyRunning: the group has members, which would overwrite the change.
            NotFound: there is no such group or topic.
            DataGone, InvalidInput: the topic does not hold the offset.
        """
        return groups.reset_group(self._link, name, self._slots(topic), to, dry_run=dry_run)

    def _set(self, name: str, changes: Sequence[ConfigEntry], *, only_check: bool) -> None:
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[*changes])
        self._link.call_all(
            f"changing the topic {name}",
            lambda admin: admin.incremental_alter_configs(
                [resource], validate_only=only_check, request_timeout=ANSWER_TIME
            ),
        )

    def _grow(self, name: str, partitions: int, *, only_check: bool) -> None:
        self._link.call_all(
            f"adding partitions to {name}",
            lambda admin: admin.create_partitions(
                [NewPartitions(name, partitions)],
                validate_only=only_check,
                request_timeout=ANSWER_TIME,
            ),
            already_done=frozenset() if only_check else frozenset({KafkaError.INVALID_PARTITIONS}),
        )

    def _slots(self, name: str) -> Sequence[Slot]:
        return slots_of(self._link, [check_topic(name)])

    def _await_partitions(self, name: str, count: int) -> None:
        self._await(name, lambda topic: topic is not None and len(topic.partitions) == count)

    def _await(self, name: str, visible: Callable[[TopicDescription | None], bool]) -> None:
        until = time.monotonic() + _VISIBLE_SECONDS
        while True:
            found = find_topic(self._link, name)
            led = found is None or all(part.leader is not None for part in found.partitions)
            if led and visible(found):
                return
            if time.monotonic() > until:
                raise Unavailable(
                    f"the change of {name} needs to become visible",
                    got=f"no change after {_VISIBLE_SECONDS:.0f} seconds",
                    do="check it with `millstream topics describe`",
                )
            time.sleep(0.02)


def _grows(before: TopicInfo, partitions: int) -> bool:
    _count(partitions, "partitions")
    now = len(before.partitions)
    if partitions < now:
        raise InvalidInput(
            f"{before.name} needs at least the {now} partitions it has",
            got=str(partitions),
            do="create a new topic and copy the records",
        )
    return partitions > now


def _warn_of_new_partitions(before: TopicInfo, partitions: int) -> None:
    if before.offsets_held:
        warnings.warn(
            f"{before.name} holds records: with {partitions} instead of "
            f"{len(before.partitions)} partitions, keys go to other partitions than before, "
            "and their order holds only among the records sent from now on",
            UserWarning,
            stacklevel=3,
        )


def _change(name: str, value: Setting | None) -> ConfigEntry:
    if value is None:
        return ConfigEntry(name, None, incremental_operation=AlterConfigOpType.DELETE)
    return ConfigEntry(
        name, topic_settings.text(name, value), incremental_operation=AlterConfigOpType.SET
    )


def _count(value: object, what: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InvalidInput(f"{what} needs a whole number from 1 on", got=repr(value))
