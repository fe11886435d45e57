"""The log itself is hurt under a job: full disks, topics made anew, retention, offsets, clocks."""

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
from millstream.engine import engine
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


def make_anew(stage: Stage, rows: int) -> None:
    """The topic is deleted and made again, and holds more than before at once."""
    topics = Topics(stage.kafka)
    topics.delete(stage.topic)
    until(lambda: stage.topic not in [t.name for t in topics.list()], "the topic gone", 30)
    time.sleep(0.5)
    stage.make_topic(copies=1)
    with Producer(stage.kafka) as producer:
        for number in range(rows):
            row = {"id": 10**9 + number, "key": 1, "amount": 1, "ts": "2026-01-01T00:00:00Z"}
            producer.send(stage.topic, row, partition=number % 4)


def test_a_topic_made_anew_under_a_running_job_stops_it_and_none_of_its_rows_come_out(
    stage: Stage,
) -> None:
    with stage.writing(), stage.working():
        stage.more()
    with stage.working():
        make_anew(stage, 20_000)
        until(lambda: stage.error is not None, "the end of the job", 60)

    assert isinstance(stage.error, Exception)
    assert "no such topic" in str(stage.error) or "another one of that name" in str(stage.error)


def test_without_the_check_of_ids_rows_of_another_topic_are_taken_for_the_old_ones(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "check_extent", lambda *_: None)
    with stage.writing(), stage.working():
        stage.more()
    make_anew(stage, 20_000)

    assert stage.verdict()["phantom"]


def test_retention_that_overtakes_a_stopped_job_stops_it_with_the_offsets(
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
    monkeypatch.setattr(engine, "check_extent", lambda *_: None)  # then the fetch says so
    with pytest.raises(DataGone, match="a log that no longer holds it"):
        stage.job(until="caught_up").run()


def test_the_group_for_lag_tools_may_expire_and_the_ledger_may_not(stage: Stage) -> None:
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


def test_offsets_that_truly_expire_do_so_only_without_the_daily_refresh(
    topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka forgets offsets of a silent group after a minute here, and after a week elsewhere."""
    forgetful = {"offsets.retention.minutes": 1, "offsets.retention.check.interval.ms": 1000}
    with started(settings=forgetful) as broker:
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
    """A job that counts rows in seconds of the batch clock, which is where the clock matters."""

    def pipeline(self) -> ms.Pipeline:
        rows = ms.read(ms.Topic(self.topic, schema=SCHEMA), time="ts", watermark="5 seconds",
                       idle=None)  # fmt: skip
        second = ms.tumbling("1 second", clock="processing")
        out = rows.by("key").window(second).agg(n=ms.count()).to(ms.Topic(self.output))
        return ms.Pipeline(self.name, out, batch="200 ms")

    def taken(self) -> int:
        return self.notes.read_text().count("taken ")

    def counted(self) -> int:
        """The rows in all windows that have left, of which no two are one."""
        found = [json.loads(value or b"") for value in Log(self.kafka).values(self.output)]
        assert len({(row["key"], row["window_start"]) for row in found}) == len(found)
        return sum(row["n"] for row in found)


def jump(stage: ByTheClock, monkeypatch: pytest.MonkeyPatch, hours: tuple[int, ...]) -> None:
    """The clock jumps under a running job; in the end all windows have the time to leave."""
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
def test_a_clock_that_jumps_loses_and_doubles_no_row(
    hours: tuple[int, ...], broker: ThrowAwayBroker, topic: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    stage = ByTheClock(broker.address, topic, tmp_path)
    jump(stage, monkeypatch, hours)

    assert stage.counted() == stage.taken() > 300


def test_without_a_clock_that_never_goes_back_rows_are_lost(
    broker: ThrowAwayBroker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guard of the test above, switched off: `max` of the clock and the last one."""

    def first_of_clocks(one: int, other: int) -> int:
        return one if one > 10**15 else max(one, other)

    monkeypatch.setattr(engine, "max", first_of_clocks, raising=False)
    stage = ByTheClock(broker.address, topic, tmp_path)
    jump(stage, monkeypatch, (-1, 0))

    assert stage.counted() < stage.taken()
