"""Lag: what is in the log and not yet read, for every job, whether it runs or not.

One thread of the supervisor asks Kafka for the ends and beginnings of all topics that jobs read
and compares them with the positions in the diaries. What comes out stands in `lag.db`.

A warning is given while there is still time: when unread records have used up three quarters of
the topic's retention time, or lie in the oldest quarter of a log that is being cut meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from millstream.errors import MillstreamError
from millstream.jobs.database import looked_at, opened, rows_of, transaction
from millstream.jobs.registry import Book
from millstream.jobs.reports.run_log import DiaryReader

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path

    from millstream.jobs.folders import StackPlace
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
    """One partition of one source of one job: unread are the records from `position` to `end`.

    `seconds` is for how long, at least, the oldest of them has been waiting.
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


def lag_file(place: StackPlace) -> Path:
    """Where the lag of all jobs stands."""
    return place.path / "lag.db"


def lags(place: StackPlace, job: str | None = None) -> list[Lag]:
    """The lag of one job, or of all, as last seen."""
    connection = looked_at(lag_file(place))
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
    """How long a topic keeps records: `None` without end."""

    seconds: float | None


def danger(
    *, position: int, first: int, end: int, aged: int | None, retention: Retention, cut: bool
) -> str | None:
    """Why unread records may soon be gone, or None.

    `aged` is the first offset younger than three quarters of the retention time, `cut` says
    that the log's beginning has moved while it was watched.
    """
    unread = end - position
    if unread <= 0:
        return None
    if position < first:
        return f"{first - position} unread records are gone already"
    if retention.seconds is not None and aged is not None and position < aged:
        return (
            f"{min(aged, end) - position} unread records have used up {USED_UP:.0%} of the "
            f"retention of {retention.seconds:,.0f} s"
        )
    if cut and position - first < (1 - USED_UP) * (end - first):
        return f"{unread} unread records begin {position - first} records before the log's edge"
    return None


class LagWatch:
    """Looks at the lag of all jobs every two seconds, in a thread of its own."""

    def __init__(self, place: StackPlace, log: Log) -> None:
        self._place, self._log = place, log
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="lag", daemon=True)
        self._totals: dict[str, int] = {}
        self._firsts: dict[tuple[str, str, int], int] = {}
        self._ends: dict[tuple[str, str, int], deque[tuple[float, int]]] = {}
        self._cut: set[tuple[str, str, int]] = set()
        self._clusters: dict[str, _Asked] = {}
        self._warned: dict[tuple[str, str, int], str | None] = {}

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def close(self) -> None:
        """Stop looking."""
        self._end.set()
        self._thread.join(_ANSWER)

    def of(self, job: str) -> int | None:
        """How many records wait for a job; None while that is not known."""
        return self._totals.get(job)

    def _watch(self) -> None:
        connection = opened(lag_file(self._place), SCHEMA, version=VERSION, durable=False)
        with Book(self._place.book, read_only=True) as book:
            while not self._end.wait(_EVERY if self._totals else 0.5):
                try:
                    self._look(book, connection)
                except Exception as error:
                    self._log("lag unknown", "warning", kind=type(error).__name__, error=str(error))
        connection.close()

    def _look(self, book: Book, connection: sqlite3.Connection) -> None:
        found: list[Lag] = []
        for job in book.all():
            diary = DiaryReader(self._place.job(job.name).facts)
            try:
                about, positions = diary.about(), diary.positions()
            finally:
                diary.close()
            if about is not None:
                found += self._of_job(job.name, about, positions or {})
        totals: dict[str, int] = {}
        for row in found:
            totals[row.job] = totals.get(row.job, 0) + row.lag
            self._warn(row)
        with transaction(connection):
            connection.execute("DELETE FROM lag")
            connection.executemany(
                "INSERT INTO lag VALUES (:job, :source, :topic, :partition, :position, :first, "
                ":end, :lag, :seconds, :warning, :at)", [asdict(row) for row in found],
            )  # fmt: skip
        self._totals = totals

    def _of_job(
        self, job: str, about: dict[str, Any], positions: dict[str, dict[int, int]]
    ) -> list[Lag]:
        asked = self._asked(about["kafka"])
        rows = []
        for source, topic in about["topics"].items():
            try:
                seen = asked.topic(topic)
            except MillstreamError as error:
                self._log("lag unknown", "warning", pipeline=job, topic=topic, error=str(error))
                continue
            for partition, (first, end, aged) in seen.items():
                at = positions.get(source, {}).get(partition, first)
                place = (job, source, partition)
                if self._firsts.get(place, first) < first:
                    self._cut.add(place)
                self._firsts[place] = first
                warning = danger(position=at, first=first, end=end, aged=aged,
                                 retention=asked.retention(topic),
                                 cut=place in self._cut)  # fmt: skip
                rows.append(Lag(job, source, topic, partition, at, first, end,
                                max(0, end - max(at, first)), self._waiting(place, at, end),
                                warning, time.time()))  # fmt: skip
        return rows

    def _waiting(self, place: tuple[str, str, int], position: int, end: int) -> float:
        """For how long the oldest unread record has been there, by what the ends were before."""
        now = time.time()
        ends = self._ends.setdefault(place, deque(maxlen=_REMEMBERED))
        ends.append((now, end))
        while len(ends) > 1 and ends[1][1] <= position:
            ends.popleft()
        return 0.0 if position >= end else now - ends[0][0]

    def _warn(self, row: Lag) -> None:
        place = (row.job, row.source, row.partition)
        if row.warning is not None and self._warned.get(place) is None:
            self._log("retention", "warning", pipeline=row.job, source=row.source, topic=row.topic,
                      partition=row.partition, lag=row.lag, warning=row.warning)  # fmt: skip
        self._warned[place] = row.warning

    def _asked(self, kafka: str) -> _Asked:
        if kafka not in self._clusters:
            from millstream.kafka.settings import Cluster

            self._clusters[kafka] = _Asked(Cluster.resolve(kafka))
        return self._clusters[kafka]


class _Asked:
    """A cluster that is asked for offsets and retention."""

    def __init__(self, cluster: Cluster) -> None:
        from millstream.kafka.librdkafka import Link

        self._link = Link(cluster)
        self._known: dict[str, tuple[float, list[tuple[str, int]], Retention]] = {}

    def retention(self, topic: str) -> Retention:
        """How long the topic keeps records."""
        return self._look(topic)[1]

    def _look(self, topic: str) -> tuple[list[tuple[str, int]], Retention]:
        """Partitions and retention; asked once a minute."""
        from millstream.kafka.admin.topic_info import slots_of

        at, slots, kept = self._known.get(topic, (float("-inf"), [], Retention(None)))
        if time.monotonic() - at > _SETTINGS_EVERY:
            slots, kept = slots_of(self._link, [topic]), self._kept(topic)
            self._known[topic] = (time.monotonic(), slots, kept)
        return slots, kept

    def _kept(self, topic: str) -> Retention:
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
        """Per partition the first offset, the stable end, and the first that is not yet old."""
        from datetime import timedelta

        from millstream.kafka.positions import offsets_at

        slots, kept = self._look(topic)
        firsts = offsets_at(self._link, slots, "start")
        ends = offsets_at(self._link, slots, "end", committed=True)
        aged: dict[tuple[str, int], int] = {}
        if kept.seconds is not None:
            aged = offsets_at(self._link, slots, timedelta(seconds=USED_UP * kept.seconds))
        return {slot[1]: (firsts[slot], ends[slot], aged.get(slot)) for slot in slots}
