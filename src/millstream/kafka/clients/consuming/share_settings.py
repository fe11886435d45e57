"""The settings of a share group: where it starts, and the lock and deliveries of a record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from millstream.duration import Duration, positive_micros
from millstream.errors import InvalidInput
from millstream.kafka.clients.consuming.consumer_options import checked_count, checked_isolation
from millstream.kafka.librdkafka import ANSWER_TIME, Link

if TYPE_CHECKING:
    from collections.abc import Mapping

_START = "share.auto.offset.reset"
_LOCK = "share.record.lock.duration.ms"
_ATTEMPTS = "share.delivery.count.limit"
_ISOLATION = "share.isolation.level"


@dataclass(frozen=True, slots=True)
class ShareGroup:
    """The group's current settings: seconds a record is locked, and its deliveries at most."""

    lock: float
    attempts: int


def share_settings(
    *, start: str, lock: Duration | None, attempts: int | None, isolation: str
) -> dict[str, str]:
    """The settings by their names in Kafka.

    Raises:
        InvalidInput: one of them is invalid.
    """
    if start not in ("start", "end"):
        raise InvalidInput('start needs "start" or "end"', got=repr(start))
    checked_isolation(isolation)
    found = {_START: "earliest" if start == "start" else "latest", _ISOLATION: isolation}
    if lock is not None:
        found[_LOCK] = str(max(1, positive_micros(lock, what="lock") // 1000))
    if attempts is not None:
        found[_ATTEMPTS] = str(checked_count(attempts, "attempts"))
    return found


def apply_settings(link: Link, group: str, settings: Mapping[str, str]) -> ShareGroup:
    """Change the settings that differ, and return the group's settings after that.

    Raises:
        InvalidInput: the cluster refuses a value; the message has its reason.
    """
    now = _read(link, group)
    changes = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in settings.items()
        if now.get(name) != value
    ]
    if changes:
        resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=changes)
        link.call_all(
            f"changing the share group {group}",
            lambda admin: admin.incremental_alter_configs([resource], request_timeout=ANSWER_TIME),
        )
    now = {**now, **settings}
    return ShareGroup(int(now.get(_LOCK) or 30_000) / 1000, int(now.get(_ATTEMPTS) or 5))


def _read(link: Link, group: str) -> dict[str, str | None]:
    answers = link.call_all(
        f"reading the settings of the share group {group}",
        lambda admin: admin.describe_configs(
            [ConfigResource(ResourceType.GROUP, group)], request_timeout=ANSWER_TIME
        ),
    )
    [entries] = answers.values()
    return {name: entry.value for name, entry in entries.items()}
