"""Faults of the log under a running job: crash, retention, recreated topic, open transaction.

The jobs run in this process, over a real broker.
"""

from __future__ import annotations

import shutil
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.faults.driver import pipeline_of
from tests.faults.feed import PARTITIONS, Feed
from tests.faults.running import until
from tests.faults.verdicts import differences, verdict_on

from millstream.engine import kafka_environment
from millstream.engine.job import Job
from millstream.errors import AlreadyRunning, DataGone, Fenced
from millstream.kafka.protocol import fetch
from millstream.testing import broker as started

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.faults.driver import Config

    from millstream.testing.local_broker import ThrowAwayBroker

pytestmark = pytest.mark.usefixtures("spark")


def job_of(config: Config, **options: Any) -> Job:
    return Job(pipeline_of(config), kafka=config.kafka, checkpoint=config.checkpoint,
               lane=config.lane, **options)  # fmt: skip


def run(config: Config, **options: Any) -> None:
    job_of(config, **options).run()


def assert_green(config: Config, *, finished: bool = True) -> None:
    verdict = verdict_on(config, finished=finished)
    assert verdict["green"], verdict
    assert verdict["once"]["rows"]


@contextmanager
def running(config: Config) -> Iterator[list[int]]:
    """A running job; yields the row counts of its batches so far."""
    rows: list[int] = []
    job = job_of(config, on_batch=lambda facts, lag: rows.append(facts.rows))
    job.start()
    try:
        yield rows
    finally:
        job.stop()
        job.wait(120)


@pytest.fixture
def own_broker(own_home: None) -> Iterator[ThrowAwayBroker]:
    with started() as broker:
        yield broker


def restart_later(broker: ThrowAwayBroker) -> None:
    broker.kill()
    threading.Timer(1.0, broker.start).start()


@pytest.mark.parametrize("moment", ["in a transaction", "between batches"])
def test_a_job_waits_for_a_broker_that_is_killed_and_restarted(
    moment: str, own_broker: ThrowAwayBroker, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(config, kafka=own_broker.address, lane="narrow")
    feed = Feed(config.kafka, config.topic, seed=7)
    feed.make_topic()
    feed.send()
    planned = [lambda: restart_later(own_broker)] if moment == "in a transaction" else []

    def reached(point: str, batch: int) -> None:
        if point == "before a sink's commit" and planned:
            planned.pop()()

    monkeypatch.setattr(kafka_environment, "reached", reached)
    with running(config) as rows:
        until(lambda: rows or not _alive(config), "a first batch")
        assert _alive(config)
        if moment == "between batches":
            restart_later(own_broker)
            until(lambda: own_broker.pid is not None, "a broker", 60)
        seen = sum(rows)
        feed.send()
        until(lambda: sum(rows) > seen or not _alive(config), "rows after the broker's death")
        assert _alive(config)
    run(config, until="finished")

    assert_green(config)


def test_a_stopped_job_ends_after_its_current_batch(config: Config, feed: Feed) -> None:
    feed.send()
    with running(config) as rows:
        until(lambda: rows, "a first batch")
        feed.send()
    run(config, until="finished")

    assert_green(config)


def test_unread_rows_deleted_by_retention_stop_the_job(config: Config, feed: Feed) -> None:
    feed.send()
    run(config, until="caught_up")
    feed.send()
    feed.send()
    admin = AdminClient({"bootstrap.servers": config.kafka})
    gone = [TopicPartition(config.topic, p, 60) for p in range(PARTITIONS)]
    for future in admin.delete_records(gone).values():
        future.result()

    with pytest.raises(DataGone, match=r"records are gone"):
        run(config, until="caught_up")


def test_a_topic_deleted_and_recreated_stops_the_job(config: Config, feed: Feed) -> None:
    feed.send()
    run(config, until="caught_up")
    admin = AdminClient({"bootstrap.servers": config.kafka})
    for future in admin.delete_topics([config.topic]).values():
        future.result()
    until(lambda: config.topic not in admin.list_topics(timeout=10).topics, "the topic gone")
    time.sleep(0.5)
    feed.make_topic()
    feed.send(200)

    with pytest.raises(DataGone, match="another one of that name"):
        run(config, until="caught_up")


@contextmanager
def open_transaction(config: Config) -> Iterator[Producer]:
    """Uncommitted rows of another producer at the end of the input."""
    producer = Producer({"bootstrap.servers": config.kafka, "transactional.id": "somebody else"})
    producer.init_transactions(30)
    producer.begin_transaction()
    value = b'{"id": 777777777, "key": 1, "amount": 1, "ts": "2026-01-01T00:00:06Z"}'
    for partition in range(PARTITIONS):
        producer.produce(config.topic, value, partition=partition)
    producer.flush(30)
    yield producer


def test_rows_of_an_open_transaction_wait_until_it_is_committed(config: Config, feed: Feed) -> None:
    feed.send()
    with open_transaction(config) as somebody:
        run(config, until="caught_up")
        verdict = verdict_on(config, finished=False)
        assert not differences(verdict, "lost", "doubled", "phantom", "wrong")
        assert verdict["open transactions"] == [config.topic]
        somebody.commit_transaction(30)
    run(config, until="finished")

    verdict = verdict_on(config)
    assert verdict["green"], verdict


def test_rows_of_an_aborted_transaction_are_not_read(config: Config, feed: Feed) -> None:
    feed.send()
    with open_transaction(config) as somebody:
        somebody.abort_transaction(30)
    feed.send()
    run(config, until="finished")

    assert_green(config)


def test_without_read_committed_aborted_rows_are_counted(
    config: Config, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Careless:
        READ_COMMITTED = IsolationLevel.READ_UNCOMMITTED

    monkeypatch.setattr("confluent_kafka.IsolationLevel", Careless)
    monkeypatch.setattr(fetch, "_READ_COMMITTED", 0)
    feed.send()
    with open_transaction(config) as somebody:
        run(config, until="caught_up")
        somebody.abort_transaction(30)
    monkeypatch.undo()

    verdict = verdict_on(config, finished=False)
    assert verdict["once"]["phantom"], verdict


def test_a_job_whose_checkpoint_was_deleted_does_not_silently_start_again(
    config: Config, feed: Feed
) -> None:
    feed.send()
    run(config, until="caught_up")
    shutil.rmtree(config.checkpoint)

    with pytest.raises(AlreadyRunning, match="with another checkpoint"):
        run(config, until="caught_up")
    assert_green(config, finished=False)


def test_a_second_checkpoint_for_the_same_output_is_refused_and_can_take_over(
    config: Config, feed: Feed, tmp_path: Path
) -> None:
    other = replace(config, checkpoint=str(tmp_path / "other"))
    feed.send()
    with pytest.raises(Fenced), running(config) as rows:  # noqa: PT012
        until(lambda: rows, "a first batch")
        with pytest.raises(AlreadyRunning, match="rename this pipeline"):
            run(other, until="caught_up")
        feed.send()
        until(lambda: sum(rows) > rows[0], "rows after the second was refused")
        until(lambda: verdict_on(config, finished=False)["green"], "all that was fed, once")
        run(other, until="caught_up", take_over=True)
        feed.send()
        until(lambda: not _alive(config), "the end of the first")


def _alive(config: Config) -> bool:
    return any(thread.name == config.name for thread in threading.enumerate())
