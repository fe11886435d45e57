"""Consumer lag of every job, whether it runs or not.

One thread of the supervisor reads the first and last offsets of all topics that jobs read,
compares them with the positions in the run logs, and writes the result to `lag.db`.

It warns before data is lost: when unread records have used up three quarters of the topic's
retention time, or lie in the oldest quarter of a log whose beginning is being deleted.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from millstream.errors import MillstreamError
from millstream.jobs.database import open_database, open_read_only, rows_of, transaction
from millstream.jobs.registry import JobRegistry
from millstream.jobs.reports.run_log import RunLogReader

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path

    from millstream.jobs.folders import StackFolder
    from millstream.jobs.logs import Log
    from millstream.kafka.settings import Cluster

VERSION = 1
USED_UP = 0.75
_EVERY = 2.0
_SETTINGS_EVERY = 60.0
_ANSWER = 10.0
_REMEMBERED = 1800
SCHEMA = """
CREATE TABLE lag (
    job TEXT NOT NULL, source TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL,
    position INTEGER NOT NULL, first INTEGER NOT NULL, end INTEGER NOT NULL, lag INTEGER NOT NULL,
    seconds REAL NOT NULL, warning TEXT, at REAL NOT NULL, PRIMARY KEY (job, source, partition)
)
"""


@dataclass(frozen=True)
class Lag:
    """The lag of one partition: the records from `position` to `end` are unread.

    `seconds` is the least time that the oldest of them has been waiting.
    """

    job: str
    source: str
    topic: str
    partition: int
    position: int
    first: int
    end: int
    lag: int
    seconds: float
    warning: str | None
    at: float


def lag_file(stack: StackFolder) -> Path:
    """Return the database of the jobs' lag."""
    return stack.path / "lag.db"


def lags(stack: StackFolder, job: str | None = None) -> list[Lag]:
    """Return the lag of one job, or of all, as last observed."""
    connection = open_read_only(lag_file(stack))
    if connection is None:
        return []
    try:
        where = "" if job is None else "WHERE job = ?"
        rows = rows_of(
            connection,
            f"SELECT * FROM lag {where} ORDER BY job, source, partition",  # noqa: S608
            () if job is None else (job,),
        )
    finally:
        connection.close()
    return [Lag(**dict(row)) for row in rows]


@dataclass(frozen=True)
class Retention:
    """How long a topic keeps records; None means forever."""

    seconds: float | None


def danger(
    *, position: int, first: int, end: int, aged: int | None, retention: Retention, cut: bool
) -> str | None:
    """Return why unread records may soon be deleted, or None.

    `aged` is the first offset younger than three quarters of the retention time; `cut` says
    that the log's beginning has moved since it has been watched.
    """
    unread = end - position
    if unread <= 0:
        return None
    if position < first:
        return f"{first - position} unread records have been deleted already"
    if retention.seconds is not None and aged is not None and position < aged:
        return (
            f"{min(aged, end) - position} unread records have used up {USED_UP:.0%} of the "
            f"retention of {retention.seconds:,.0f} s"
        )
    if cut and position - first < (1 - USED_UP) * (end - first):
        return f"{unread} unread records begin {position - first} records after the log's beginning"
    return None


class LagWatch:
    """Updates the lag of all jobs every two seconds, in a background thread."""

    def __init__(self, stack: StackFolder, log: Log) -> None:
        self._stack, self._log = stack, log
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="lag", daemon=True)
        self._totals: dict[str, int] = {}
        self._warnings: dict[str, tuple[str, ...]] = {}
        self._firsts: dict[tuple[str, str, int], int] = {}
        self._ends: dict[tuple[str, str, int], deque[tuple[float, int]]] = {}
        self._cut: set[tuple[str, str, int]] = set()
        self._clusters: dict[str, _TopicOffsets] = {}
        self._warned: dict[tuple[str, str, int], str | None] = {}

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Stop the thread."""
        self._end.set()
        self._thread.join(_ANSWER)

    def of(self, job: str) -> int | None:
        """Return a job's total lag in records; None while it is unknown."""
        return self._totals.get(job)

    def warnings(self, job: str) -> tuple[str, ...]:
        """Return what endangers a job's unread records."""
        return self._warnings.get(job, ())

    def _watch(self) -> None:
        connection = open_database(lag_file(self._stack), SCHEMA, version=VERSION, durable=False)
        with JobRegistry(self._stack.registry, read_only=True) as registry:
            while not self._end.wait(_EVERY if self._totals else 0.5):
                try:
                    self._look(registry, connection)
                except Exception as error:
                    self._log.rarely(
                        "lag unknown", "warning", kind=type(error).__name__, error=str(error)
                    )
        connection.close()

    def _look(self, registry: JobRegistry, connection: sqlite3.Connection) -> None:
        found: list[Lag] = []
        for job in registry.all():
            run_log = RunLogReader(self._stack.job(job.name).run_log)
            try:
                about, positions = run_log.about(), run_log.positions()
            finally:
                run_log.close()
            if about is not None:
                found += self._of_job(job.name, about, positions or {})
        totals: dict[str, int] = {}
        warnings: dict[str, tuple[str, ...]] = {}
        for row in found:
            if row.warning is not None:
                warned = f"{row.topic}/{row.partition}: {row.warning}"
                warnings[row.job] = (*warnings.get(row.job, ()), warned)
            totals[row.job] = totals.get(row.job, 0) + row.lag
            self._warn(row)
        with transaction(connection):
            connection.execute("DELETE FROM lag")
            connection.executemany(
                "INSERT INTO lag VALUES (:job, :source, :topic, :partition, :position, :first, "
                ":end, :lag, :seconds, :warning, :at)", [asdict(row) for row in found],
            )  # fmt: skip
        self._totals, self._warnings = totals, warnings

    def _of_job(
        self, job: str, about: dict[str, Any], positions: dict[str, dict[int, int]]
    ) -> list[Lag]:
        offsets = self._offsets_of(about["kafka"])
        rows = []
        for source, topic in about["topics"].items():
            try:
                found_offsets = offsets.topic(topic)
            except MillstreamError as error:
                self._log.rarely(
                    "lag unknown", "warning", pipeline=job, topic=topic, error=str(error)
                )
                continue
            for partition, (first, end, aged) in found_offsets.items():
                at = positions.get(source, {}).get(partition, first)
                key = (job, source, partition)
                if self._firsts.get(key, first) < first:
                    self._cut.add(key)
                self._firsts[key] = first
                warning = danger(position=at, first=first, end=end, aged=aged,
                                 retention=offsets.retention(topic),
                                 cut=key in self._cut)  # fmt: skip
                rows.append(Lag(job, source, topic, partition, at, first, end,
                                max(0, end - max(at, first)), self._waiting(key, at, end),
                                warning, time.time()))  # fmt: skip
        return rows

    def _waiting(self, key: tuple[str, str, int], position: int, end: int) -> float:
        """Return how long the oldest unread record has waited, from the history of end offsets."""
        now = time.time()
        ends = self._ends.setdefault(key, deque(maxlen=_REMEMBERED))
        ends.append((now, end))
        while len(ends) > 1 and ends[1][1] <= position:
            ends.popleft()
        return 0.0 if position >= end else now - ends[0][0]

    def _warn(self, row: Lag) -> None:
        key = (row.job, row.source, row.partition)
        if row.warning is not None and self._warned.get(key) is None:
            self._log("retention", "warning", pipeline=row.job, source=row.source, topic=row.topic,
                      partition=row.partition, lag=row.lag, warning=row.warning)  # fmt: skip
        self._warned[key] = row.warning

    def _offsets_of(self, kafka: str) -> _TopicOffsets:
        if kafka not in self._clusters:
            from millstream.kafka.settings import Cluster

            self._clusters[kafka] = _TopicOffsets(Cluster.resolve(kafka))
        return self._clusters[kafka]


class _TopicOffsets:
    """Reads offsets and retention of a cluster's topics."""

    def __init__(self, cluster: Cluster) -> None:
        from millstream.kafka.librdkafka import Link

        self._link = Link(cluster)
        self._known: dict[str, tuple[float, list[tuple[str, int]], Retention]] = {}

    def retention(self, topic: str) -> Retention:
        """Return how long the topic keeps records."""
        return self._look(topic)[1]

    def _look(self, topic: str) -> tuple[list[tuple[str, int]], Retention]:
        """Return partitions and retention, cached for a minute."""
        from millstream.kafka.admin.topic_info import slots_of

        at, slots, retention = self._known.get(topic, (float("-inf"), [], Retention(None)))
        if time.monotonic() - at > _SETTINGS_EVERY:
            slots, retention = slots_of(self._link, [topic]), self._read_retention(topic)
            self._known[topic] = (time.monotonic(), slots, retention)
        return slots, retention

    def _read_retention(self, topic: str) -> Retention:
        from confluent_kafka.admin import ConfigResource, ResourceType

        resource = ConfigResource(ResourceType.TOPIC, topic)
        answers = self._link.call_all(
            "reading the settings of topics",
            lambda admin: admin.describe_configs([resource], request_timeout=_ANSWER),
        )
        settings = {
            name: entry.value for found in answers.values() for name, entry in found.items()
        }
        if "delete" not in str(settings.get("cleanup.policy", "delete")):
            return Retention(None)
        milliseconds = int(settings.get("retention.ms") or -1)
        return Retention(None if milliseconds < 0 else milliseconds / 1000)

    def topic(self, topic: str) -> dict[int, tuple[int, int, int | None]]:
        """Return per partition the first offset, the stable end, and the first recent offset."""
        from datetime import timedelta

        from millstream.kafka.positions import offsets_at

        slots, retention = self._look(topic)
        firsts = offsets_at(self._link, slots, "start")
        ends = offsets_at(self._link, slots, "end", committed=True)
        aged: dict[tuple[str, int], int] = {}
        if retention.seconds is not None:
            aged = offsets_at(self._link, slots, timedelta(seconds=USED_UP * retention.seconds))
        return {slot[1]: (firsts[slot], ends[slot], aged.get(slot)) for slot in slots}
