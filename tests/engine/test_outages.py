"""A system that is down is noticed within five seconds wherever a batch runs, and so is its return.

Real brokers, databases and a real Java process are killed or suspended while a job has nothing to
do, and then while it has.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import psycopg
import pytest

import millstream as ms
from millstream.engine.health.pings import SILENCE
from millstream.kafka.clients.consuming.consumer import Consumer
from millstream.testing import broker as a_broker
from millstream.testing import postgres as a_postgres

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from millstream.engine.job import Job
    from millstream.outages import Outage
    from millstream.testing.local_broker import ThrowAwayBroker

SECONDS = 5.0
PATIENCE = 120.0
SCHEMA = "n long"


@pytest.fixture(scope="module")
def mortal() -> Iterator[ThrowAwayBroker]:
    """A broker for this module, which kills it."""
    with a_broker() as running:
        yield running


def until(true: Callable[[], Any], what: str, patience: float = PATIENCE) -> float:
    """Wait for a condition; return how many seconds that took."""
    began = time.monotonic()
    while not true():
        assert time.monotonic() - began < patience, f"{what}: not within {patience:.0f} s"
        time.sleep(0.02)
    return time.monotonic() - began


def send(kafka: str, topic: str, *numbers: int) -> None:
    with ms.Producer(kafka) as producer:
        for number in numbers:
            producer.send(topic, b'{"n": %d}' % number)


def arrived(kafka: str, topic: str, count: int) -> bool:
    with Consumer(topic, kafka=kafka, until_end=True) as reader:
        return len(list(reader)) >= count


def rows_of(url: str, table: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url) as connection:
        return connection.execute(f"select n from {table} order by n").fetchall()


def copying(topic: str, *more: Any, **options: Any) -> ms.Pipeline:
    rows = ms.read(ms.Topic(topic, schema=SCHEMA))
    return ms.Pipeline(topic, rows.to(ms.Topic(f"{topic}.out")), *(rows.to(one) for one in more),
                       **options)  # fmt: skip


@contextmanager
def running(pipeline: ms.Pipeline, kafka: str, folder: Path, **options: Any) -> Iterator[Job]:
    """A job that has read its first rows, stopped afterwards."""
    batches: list[str] = []
    job = pipeline.start(kafka=kafka, checkpoint=folder,
                         on_batch=lambda facts, lag: batches.append(facts.where),
                         **options)  # fmt: skip
    try:
        until(lambda: job.ended() or batches, "a first batch")
        yield job
    finally:
        job.stop()
        job.wait(PATIENCE)


def systems(job: Job) -> list[str]:
    if job.ended():
        job.wait()
    return [outage.system for outage in job.outages]


def only(job: Job) -> Outage:
    [outage] = job.outages
    return outage


Place = Literal["driver", "narrow", "wide", "continuous", "real-time"]


@pytest.mark.spark
@pytest.mark.parametrize("place", ["driver", "narrow", "wide", "continuous", "real-time"])
def test_kafka_away_under_an_idle_job_is_noticed_in_five_seconds_and_so_is_its_return(
    place: Place, mortal: ThrowAwayBroker, topic: str, tmp_path: Path, request: Any
) -> None:
    kafka = mortal.address
    ms.Topics(kafka).create(topic)
    send(kafka, topic, 1)
    mode = "continuous" if place in ("continuous", "real-time") else "micro_batch"
    by = "driver" if place in ("driver", "continuous") else "spark"
    delivery = "at_least_once" if mode == "continuous" else "exactly_once"
    pipeline = copying(topic, engine=by, mode=mode, delivery=delivery)
    options: dict[str, Any] = {}
    if place in ("narrow", "wide"):
        options = {"lane": place, "spark": request.getfixturevalue("spark")}
    with running(pipeline, kafka, tmp_path / "job", **options) as job:
        assert systems(job) == []
        away, back = (
            (mortal.kill, mortal.start) if place == "driver" else (mortal.pause, mortal.resume)
        )
        away()
        try:
            noticed = until(lambda: systems(job), "the outage")
            outage = only(job)
        finally:
            back()
        healed = until(lambda: not systems(job), "the end of the outage")
        send(kafka, topic, 2)
        until(lambda: arrived(kafka, f"{topic}.out", 2), "the next row")
    print(f"\n  {place}: noticed after {noticed:.1f} s, over after {healed:.1f} s")
    assert noticed < SECONDS
    assert healed < 3 * SECONDS  # a machine may be busy; the page of a quiet one has it in three
    assert (outage.system, outage.kind) == (f"Kafka at {kafka}", "waiting")
    assert outage.why
    assert outage.next_try is not None


def test_a_database_killed_under_an_idle_job_is_noticed_and_its_rows_arrive_once(
    broker: ThrowAwayBroker, topic: str, tmp_path: Path
) -> None:
    kafka = broker.address
    ms.Topics(kafka).create(topic)
    send(kafka, topic, 1)
    phases: list[str] = []
    with a_postgres() as server:
        sink = ms.Postgres("copied", key="n", url=server.url)
        pipeline = copying(topic, sink, engine="driver")
        with running(pipeline, kafka, tmp_path / "job", on_phase=phases.append) as job:
            server.kill()
            noticed = until(lambda: systems(job), "the outage")
            assert only(job).system.startswith("the database postgresql://millstream:***@")
            send(kafka, topic, 2)
            time.sleep(1.0)
            server.start()
            healed = until(lambda: not systems(job), "the end of the outage")
            until(lambda: rows_of(server.url, "copied") == [(1,), (2,)], "both rows")
    assert noticed < SECONDS
    assert healed < SECONDS
    waited = [phase for phase in phases if phase.startswith("waiting for the database")]
    assert len(waited) == 1, phases
    assert phases[-1] == "running"


@pytest.mark.spark
def test_a_suspended_java_process_is_noticed_under_an_idle_job(
    broker: ThrowAwayBroker, topic: str, tmp_path: Path, spark: SparkSession
) -> None:
    kafka = broker.address
    ms.Topics(kafka).create(topic)
    send(kafka, topic, 1)
    gateway: Any = spark.sparkContext._gateway
    java = gateway.proc.pid
    with running(copying(topic), kafka, tmp_path / "job", spark=spark) as job:
        os.kill(java, signal.SIGSTOP)
        try:
            noticed = until(lambda: systems(job), "the outage")
            outage = only(job)
        finally:
            os.kill(java, signal.SIGCONT)
        healed = until(lambda: not systems(job), "the end of the outage")
        send(kafka, topic, 2)
        until(lambda: arrived(kafka, f"{topic}.out", 2), "the next row")
    assert (outage.system, outage.why) == ("Spark", f"no answer for {SILENCE:.0f} s")
    assert noticed < SECONDS
    assert healed < SECONDS
