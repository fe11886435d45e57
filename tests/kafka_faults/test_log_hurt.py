"""Faults of the log while a job runs: recreated topics, retention, expired offsets, clock jumps."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient
from tests.faults.driver import SCHEMA
from tests.faults.running import until
from tests.kafka.shortly import Log
from tests.kafka_faults.stage import Stage

import millstream as ms
from millstream.engine import engine, open_sources
from millstream.engine.kafka_environment import KafkaEnvironment
from millstream.errors import DataGone
from millstream.kafka.admin.topics import Topics
from millstream.kafka.clients.producing.producer import Producer
from millstream.sinks.kafka import writer as topic_writer
from millstream.testing import broker as started

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.testing.local_broker import ThrowAwayBroker

pytestmark = [pytest.mark.usefixtures("spark"), pytest.mark.soak]


@pytest.fixture
def stage(broker: ThrowAwayBroker, topic: str, tmp_path: Path) -> Stage:
    found = Stage(broker.address, topic, tmp_path)
    found.make_topic(copies=1)
    return found


def recreate(stage: Stage, rows: int) -> None:
    """Delete the topic, create it again, and write more rows than it had."""
    topics = Topics(stage.kafka)
    topics.delete(stage.topic)
    until(
        lambda: stage.topic not in [t.name for t in topics.list()], "the deletion of the topic", 30
    )
    time.sleep(0.5)
    stage.make_topic(copies=1)
    with Producer(stage.kafka) as producer:
        for number in range(rows):
            row = {"id": 10**9 + number, "key": 1, "amount": 1, "ts": "2026-01-01T00:00:00Z"}
            producer.send(stage.topic, row, partition=number % 4)


def test_recreating_a_topic_stops_the_job_before_it_processes_new_rows(
    stage: Stage,
) -> None:
    with stage.writing(), stage.working():
        stage.more()
    with stage.working():
        recreate(stage, 20_000)
        until(lambda: stage.error is not None, "the end of the job", 60)

    assert isinstance(stage.error, Exception)
    assert "no such topic" in str(stage.error) or "another one of that name" in str(stage.error)


def test_without_the_check_of_topic_ids_the_job_processes_rows_of_the_new_topic(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_sources, "check_extent", lambda *_: None)
    with stage.writing(), stage.working():
        stage.more()
    recreate(stage, 20_000)

    assert stage.verdict()["phantom"]


def test_a_job_that_lost_records_to_retention_stops_with_the_offsets(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    with stage.writing():
        with stage.working():
            stage.more()
        time.sleep(1)
    Topics(stage.kafka).alter(
        stage.topic, settings={"retention.ms": 1, "segment.ms": 100, "segment.bytes": 1 << 20}
    )
    until(lambda: (Topics(stage.kafka).describe(stage.topic).partitions[0].earliest or 0) > 0,
          "retention", 120)  # fmt: skip

    with pytest.raises(DataGone, match=r"a log that begins at \d+: \d+ records are gone"):
        stage.job(until="caught_up").run()
    monkeypatch.setattr(open_sources, "check_extent", lambda *_: None)  # then the fetch raises
    with pytest.raises(DataGone, match="a log that no longer holds it"):
        stage.job(until="caught_up").run()


def test_the_group_for_lag_tools_may_be_deleted_and_the_ledger_may_not(stage: Stage) -> None:
    with stage.writing(), stage.working():
        stage.more()
    name = stage.name
    admin = AdminClient({"bootstrap.servers": stage.kafka, "log_level": 0})

    admin.delete_consumer_groups([f"millstream.{name}"])[f"millstream.{name}"].result(30)
    stage.assert_right()
    ledger = f"millstream.ledger.{name}"
    admin.delete_consumer_groups([ledger])[ledger].result(30)
    with pytest.raises(DataGone, match="none, though an earlier batch wrote one"):
        stage.job(until="caught_up").run()


def test_offsets_expire_only_without_the_refresh(
    topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Offsets of an idle group expire after a minute here; Kafka's default is a week."""
    short_retention = {"offsets.retention.minutes": 1, "offsets.retention.check.interval.ms": 1000}
    with started(settings=short_retention) as broker:
        stage = Stage(broker.address, topic, tmp_path)
        stage.make_topic(copies=1)
        with stage.writing(), stage.working():
            stage.more()
        monkeypatch.setattr(topic_writer, "_REFRESH_SECONDS", 10.0)
        with stage.working():
            time.sleep(80)
        assert stage.error is None
        stage.job(until="caught_up").run()
        time.sleep(80)
        with pytest.raises(DataGone, match="none, though an earlier batch wrote one"):
            stage.job(until="caught_up").run()


class ByTheClock(Stage):
    """A job that counts rows per second of the batch clock."""

    def pipeline(self) -> ms.Pipeline:
        rows = ms.read(ms.Topic(self.topic, schema=SCHEMA), time="ts", watermark="5 seconds",
                       idle=None)  # fmt: skip
        second = ms.tumbling("1 second", clock="processing")
        out = rows.by("key").window(second).agg(n=ms.count()).to(ms.Topic(self.output))
        return ms.Pipeline(self.name, out, batch="200 ms")

    def acknowledged(self) -> int:
        return self.notes.read_text().count("acknowledged ")

    def counted(self) -> int:
        """The number of rows in all emitted windows, none of which is emitted twice."""
        found = [json.loads(value or b"") for value in Log(self.kafka).values(self.output)]
        assert len({(row["key"], row["window_start"]) for row in found}) == len(found)
        return sum(row["n"] for row in found)


def jump(stage: ByTheClock, monkeypatch: pytest.MonkeyPatch, hours: tuple[int, ...]) -> None:
    """Let the clock jump while a job runs; then give all windows time to be emitted."""
    jumped = [0]
    monkeypatch.setattr(KafkaEnvironment, "clock", lambda _: time.time_ns() // 1000 + jumped[0])
    stage.make_topic(copies=1)
    with stage.writing(), stage.working():
        stage.more()
        for hour in hours:
            jumped[0] = hour * 3_600_000_000
            stage.more()
    with stage.working():
        time.sleep(5)


@pytest.mark.parametrize("hours", [(1,), (-1, 0), (24,), (-24, 0, 1)])
def test_a_clock_jump_loses_and_duplicates_no_row(
    hours: tuple[int, ...], broker: ThrowAwayBroker, topic: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    stage = ByTheClock(broker.address, topic, tmp_path)
    jump(stage, monkeypatch, hours)

    assert stage.counted() == stage.acknowledged() > 300


def test_rows_are_lost_if_the_batch_clock_goes_back(
    broker: ThrowAwayBroker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shows that the test above depends on `max` of the clock and its last value."""

    def first_of_clocks(one: int, other: int) -> int:
        return one if one > 10**15 else max(one, other)

    monkeypatch.setattr(engine, "max", first_of_clocks, raising=False)
    stage = ByTheClock(broker.address, topic, tmp_path)
    jump(stage, monkeypatch, (-1, 0))

    assert stage.counted() < stage.acknowledged()
