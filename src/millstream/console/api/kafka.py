"""Topics, their settings, groups and their lag on the stack's Kafka, as JSON for the console."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from millstream.errors import NotFound
from millstream.jobs.kafka import cluster_of
from millstream.jobs.registry import JobRegistry
from millstream.jobs.reports.run_log import RunLogReader
from millstream.kafka.admin import groups
from millstream.kafka.admin.topic_info import TopicInfo, topic_infos
from millstream.kafka.librdkafka import Link
from millstream.kafka.names import check_topic
from millstream.kafka.positions import offsets_at
from millstream.kafka.protocol.cluster import partition_sizes
from millstream.kafka.secrets import masked
from millstream.viewing.binary_values import ValueDecoder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.jobs.folders import StackFolder
    from millstream.kafka.admin.groups import GroupInfo, GroupListing
    from millstream.kafka.settings import Cluster

_GROUPS_TIME = 2.0
Facts = dict[str, Any]


class Kafka:
    """One connection to the stack's Kafka, replaced when the stack's cluster changes."""

    def __init__(self, stack: StackFolder) -> None:
        self._stack = stack
        self._known: tuple[Cluster, Link] | None = None

    def cluster(self) -> Cluster:
        """The cluster of the stack.

        Raises:
            Unavailable: none is configured and none runs locally.
        """
        return cluster_of(self._stack)

    def topics(self, *, internal: bool) -> list[Facts]:
        """Every topic in short; internal ones only if requested."""
        link = self._link()
        names = [name for name in link.topic_names() if internal or name[:2] != "__"]
        found = topic_infos(link, names) if names else []
        users = self._users()
        return [_facts(info, users) for info in found if internal or not info.internal]

    def topic(self, name: str) -> Facts:
        """One topic: partitions, offsets, settings.

        Raises:
            NotFound: there is none of that name.
        """
        link = self._link()
        [info] = topic_infos(link, [check_topic(name)])
        slots = [(name, part.partition) for part in info.partitions if part.leader is not None]
        stable = offsets_at(link, slots, "end", committed=True)
        held = partition_sizes(link.cluster, name)
        parts = [
            {**asdict(part), "replicas": list(part.replicas), "isr": list(part.isr),
             "stable": stable.get((name, part.partition)), "bytes": held.get(part.partition)}
            for part in info.partitions
        ]  # fmt: skip
        settings = {setting: masked(setting, value) for setting, value in info.settings.items()}
        return {**_facts(info, self._users()), "id": info.id, "settings": settings, "parts": parts}

    def groups(self) -> list[Facts]:
        """Every group; members and lag for as many as can be described within two seconds."""
        link, until = self._link(), time.monotonic() + _GROUPS_TIME
        rows: list[Facts] = []
        for listed in groups.list_groups(link):
            info = None
            if time.monotonic() < until:
                with suppress(NotFound):
                    info = groups.describe_group(link, listed.name)
            rows.append(_group_facts(listed, info))
        return rows

    def group(self, name: str) -> Facts:
        """One group: its members, offsets and lag.

        Raises:
            NotFound: there is none of that name.
        """
        info = groups.describe_group(self._link(), name)
        members = [
            {"member": member.id, "client": member.client, "host": member.host.lstrip("/"),
             "partitions": [f"{topic}/{number}" for topic, number in member.partitions],
             "idle": member.idle}
            for member in info.members
        ]  # fmt: skip
        partitions = [
            {**asdict(part), "lag": part.lag, "gone": part.gone} for part in info.partitions
        ]
        return {"group": info.name, "state": info.state, "lag": info.lag, "members": members,
                "partitions": partitions}  # fmt: skip

    def _link(self) -> Link:
        cluster = self.cluster()
        if self._known is None or self._known[0] != cluster:
            self._known = (cluster, Link(cluster))
        return self._known[1]

    def decoder(self, topic: str) -> ValueDecoder | None:
        """The decoder of a topic's values, if a job has stored its format."""
        for _, about in self._abouts():
            stored = about.get("formats", {}).get(topic)
            if stored is not None:
                return ValueDecoder.from_json(stored)
        return None

    def _abouts(self) -> Iterator[tuple[str, Facts]]:
        """The description that each job has stored in its run log."""
        with JobRegistry(self._stack.registry, read_only=True) as registry:
            jobs = [job.name for job in registry.all()]
        for job in jobs:
            with RunLogReader(self._stack.job(job).run_log).at_once() as run_log:
                yield job, run_log.about() or {}

    def _users(self) -> dict[str, tuple[list[str], list[str]]]:
        """For each topic, the jobs that read it and the jobs that write to it."""
        users: dict[str, tuple[list[str], list[str]]] = {}
        for job, about in self._abouts():
            for side, topics in enumerate((about.get("topics", {}).values(),
                                            about.get("writes", ()))):  # fmt: skip
                for topic in sorted(set(topics)):
                    users.setdefault(topic, ([], []))[side].append(job)
        return users


def _facts(info: TopicInfo, users: dict[str, tuple[list[str], list[str]]]) -> Facts:
    read_by, written_by = users.get(info.name, ([], []))
    return {
        "topic": info.name,
        "partitions": len(info.partitions),
        "replicas": info.replicas,
        "offsets_held": info.offsets_held,
        "internal": info.internal,
        "compacted": "compact" in info.settings.get("cleanup.policy", ""),
        "read_by": read_by,
        "written_by": written_by,
    }


def _group_facts(listed: GroupListing, info: GroupInfo | None) -> Facts:
    return {
        "group": listed.name,
        "state": listed.state,
        "members": None if info is None else len(info.members),
        "topics": None if info is None else sorted({part.topic for part in info.partitions}),
        "lag": None if info is None else info.lag,
    }
