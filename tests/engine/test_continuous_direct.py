"""Continuous mode in the driver alone: the same rows as with Spark, none lost after any error."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewPartitions
from tests.engine.test_continuous import SCHEMA, assert_dead, continuous, ran, rows, size
from tests.kafka.shortly import Log, eventually

import millstream as ms
from millstream.engine.continuous import source_thread
from millstream.engine.continuous.choice import runner
from millstream.engine.continuous.direct import Direct
from millstream.engine.continuous.spark import RealTime
from millstream.errors import AlreadyRunning, DataGone, Fenced, Unavailable
from millstream.kafka.protocol.batch_headers import UnknownFormat
from millstream.sinks.kafka.wire_sender import WireSender
from millstream.sources.kafka.wire_fetch import WireFetcher
from millstream.testing import broker as started

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from millstream.testing.local_broker import ThrowAwayBroker

PATIENCE = 60.0


@pytest.fixture
def log(broker: ThrowAwayBroker) -> Log:
    return Log(broker.address)


def thirds_of(topic: str, **options: Any) -> ms.Pipeline:
    """Every third row, under its key."""
    stream = ms.read(ms.Topic(topic, schema=SCHEMA)).where("id % 3 = 0")
    made = stream.select("id", "price * 2 as twice", "tags")
    out = made.to(ms.Topic(f"{topic}.out", key="id"))
    return continuous(topic, out, **{"engine": "driver", **options})


def ids(log: Log, topic: str) -> list[int]:
    return [json.loads(value or b"")["id"] for value in log.values(topic)]


def has(log: Log, topic: str, records: int) -> bool:
    return size(log, topic) >= records


def thirds(first: int, last: int) -> list[int]:
    return [n for n in range(first, last) if n % 3 == 0]


class Running:
    """A job in the background, with the phases it was in."""

    def __init__(self, pipeline: ms.Pipeline, log: Log, folder: Path, **options: Any) -> None:
        self.phases: list[str] = []
        self.job = pipeline.start(kafka=log.address, checkpoint=folder,
                                  on_phase=self.phases.append, **options)  # fmt: skip

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        self.job.stop()
        self.job.wait(PATIENCE)


# -- the same rows -----------------------------------------------------------------------------


@pytest.mark.spark
@pytest.mark.parametrize("by", ["driver", "spark"])
def test_rows_equal_the_oracle_bad_ones_are_dead_and_a_restart_continues(
    by: str, log: Log, topic: str, tmp_path: Path, spark: object
) -> None:
    log.topics.create(topic)
    bad = {b"no JSON": "not JSON: expecting value at character 1",
           b'{"price":1}': "id: needs a long; it is missing",
           b'{"id":1,"at":null}': "at: event time is null",
           b'{"id":1,"at":"2199-01-01"}': "future: at lies too far ahead"}  # fmt: skip
    with ms.Producer(log.address) as producer:
        for number, value in enumerate([*rows(range(60)), *bad, b'{"id":60,"at":0,"x":1}']):
            producer.send(topic, value, key=b"k%d" % number, headers=[("h", b"1")])
    stream = ms.read(ms.Topic(topic, schema=SCHEMA), time="at")
    made = (
        stream.where("id % 3 = 0 and price > 4")
        .select("id", "tags", "price * 2 as twice", "at", "id > 30 as late")
    )  # fmt: skip
    out = made.to(ms.Topic(f"{topic}.out", key=["id", "late"]))
    tags = stream.where("id > 3").explode("tags").where("tags <> 'a'").select("tags as tag")
    more = (stream.drop("at").to(ms.Topic(f"{topic}.all")), tags.to(ms.Topic(f"{topic}.tags")))
    pipeline = continuous(topic, out, *(more if by == "driver" else ()), engine=by)

    reported = ran(pipeline, log, tmp_path / "job")

    def meant(first: int, last: int) -> list[dict[str, Any]]:
        return [
            {"id": n, "tags": ["a", f"b{n}"], "twice": 2 * n + 0.5,
             "at": f"2026-01-01T00:00:00.{n:03d}000Z", "late": n > 30}
            for n in thirds(first, last) if n + 0.25 > 4
        ]  # fmt: skip

    found = log.read(f"{topic}.out")
    assert [json.loads(record.value or b"") for record in found] == meant(0, 60)
    assert [json.loads(record.key or b"") for record in found] == [
        {"id": row["id"], "late": row["late"]} for row in meant(0, 60)
    ]
    if by == "driver":
        assert ids(log, f"{topic}.all") == [*range(61)]
        assert _values(log, f"{topic}.tags") == [{"tag": f"b{n}"} for n in range(4, 60)]
    assert_dead(log, topic, bad)
    assert sum(facts.rows for facts in reported) == 65
    assert sum(facts.dead for facts in reported) == 4
    assert sum(facts.extra for facts in reported) == 1
    assert sum(facts.outputs[f"{topic}.out"] for facts in reported) == len(found)
    assert {(facts.lane, facts.where) for facts in reported} == {("continuous", by)}

    log.fill(topic, rows(range(66, 70)))
    with Running(pipeline, log, tmp_path / "job") as again:
        eventually(lambda: size(log, f"{topic}.out") >= len(found) + 2, within=PATIENCE)
    assert {row["id"] for row in _values(log, f"{topic}.out")[len(found) :]} == {66, 69}
    assert len(log.read(f"{topic}.dead")) == len(bad)
    assert again.job.positions() == {topic: {0: 69}}


def _values(log: Log, topic: str) -> list[dict[str, Any]]:
    return [json.loads(value or b"") for value in log.values(topic)]


# -- with or without Spark -----------------------------------------------------------------------


def chosen(pipeline: ms.Pipeline, folder: Path) -> type:
    return runner(pipeline, SimpleNamespace(folder=folder))  # type: ignore[arg-type]


def test_the_driver_runs_simple_steps_if_it_is_named_and_spark_all_others(tmp_path: Path) -> None:
    stream = ms.read(ms.Topic("rows", schema=SCHEMA))
    other = ms.read(ms.Topic("others", schema=SCHEMA))

    def to(stream: ms.Stream, **options: Any) -> ms.Pipeline:
        return continuous("p", stream.to(ms.Topic("out")), **options)

    for simple in (stream, stream.drop("tags"), stream.where("id > 1").select("id"),
                   stream.explode("tags")):  # fmt: skip
        assert chosen(to(simple), tmp_path) is RealTime
        assert chosen(to(simple, engine="driver"), tmp_path) is Direct
    for more in (stream.select("upper(tags[0]) as up"), stream.select("id", "_key as k"),
                 stream.union(other)):  # fmt: skip
        assert chosen(to(more, engine="driver"), tmp_path) is RealTime


def test_a_job_that_spark_has_run_stays_with_spark(tmp_path: Path) -> None:
    assert chosen(thirds_of("rows"), tmp_path) is Direct
    (tmp_path / "continuous" / "outputs" / "out").mkdir(parents=True)
    assert chosen(thirds_of("rows"), tmp_path) is RealTime


# -- errors --------------------------------------------------------------------------------------


def test_rows_that_failed_to_send_are_sent_again(
    log: Log, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether or not the next piece has already arrived."""
    monkeypatch.setattr(source_thread, "_MOST", 400)
    log.topics.create(topic)
    send, failures = WireSender.send, iter([False, True, False, True, True, *[False, True] * 9])

    def send_or_not(self: WireSender, to: str, *some: Any) -> None:
        if next(failures, False):
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        send(self, to, *some)

    monkeypatch.setattr(WireSender, "send", send_or_not)
    out = f"{topic}.out"
    with Running(thirds_of(topic), log, tmp_path / "job"):
        for first in range(0, 90, 30):
            log.fill(topic, rows(range(first, first + 30)))
            eventually(partial(has, log, out, first // 3 + 10), within=PATIENCE)
    for first in range(90, 300, 5):
        log.fill(topic, rows(range(first, first + 5)))
    ran(thirds_of(topic), log, tmp_path / "job")
    assert set(ids(log, out)) == set(thirds(0, 300))
    assert not list(failures)


def test_a_topic_that_rejects_records_for_long_stops_the_job(
    log: Log, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.topics.create(topic)
    log.fill(topic, rows(range(9)))

    def refused(*_: object) -> None:
        raise KafkaException(KafkaError(KafkaError.NOT_ENOUGH_REPLICAS))

    monkeypatch.setattr(WireSender, "send", refused)
    new_writer = Direct._new_writer

    def with_short_timeout(self: Direct) -> Any:
        writer = new_writer(self)
        writer._opening = replace(writer._opening, patience=1.0)
        return writer

    monkeypatch.setattr(Direct, "_new_writer", with_short_timeout)
    with pytest.raises(Unavailable, match="got no success in 1 s: "):
        ran(thirds_of(topic), log, tmp_path / "job")


def test_new_partitions_are_read_from_their_beginning(
    log: Log, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.engine.continuous.direct.INTERVAL_SECONDS", 0.5)
    monkeypatch.setattr("millstream.sources.kafka.reader._REFRESH_SECONDS", 0.2)
    log.topics.create(topic)
    log.fill(topic, rows(range(30)))
    out = f"{topic}.out"
    with Running(thirds_of(topic), log, tmp_path / "job") as running:
        eventually(lambda: size(log, out) >= 10, within=PATIENCE)
        admin = AdminClient({"bootstrap.servers": log.address})
        admin.create_partitions([NewPartitions(topic, 3)])[topic].result(30)
        with ms.Producer(log.address) as producer:
            for number, value in enumerate(rows(range(30, 300))):
                producer.send(topic, value, partition=number // 3 % 3)
        eventually(lambda: size(log, out) >= 100, within=PATIENCE)
    assert sorted(ids(log, out)) == thirds(0, 300)
    positions = running.job.positions()
    assert positions is not None
    assert positions[topic].keys() == {0, 1, 2}
    assert sum(positions[topic].values()) == 300


def test_a_recreated_topic_stops_the_job(
    log: Log, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.sources.kafka.reader._REFRESH_SECONDS", 0.2)
    log.topics.create(topic)
    log.fill(topic, rows(range(30)))
    running = Running(thirds_of(topic), log, tmp_path / "job")
    eventually(lambda: size(log, f"{topic}.out") >= 10, within=PATIENCE)
    log.topics.delete(topic)
    eventually(lambda: topic not in [info.name for info in log.topics.list()])
    log.topics.create(topic)
    with pytest.raises(DataGone, match="another one of that name"):
        running.job.wait(PATIENCE)


def test_a_job_that_is_taken_over_ends_at_once(
    log: Log, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.engine.continuous.direct.INTERVAL_SECONDS", 600.0)
    log.topics.create(topic)
    log.fill(topic, rows(range(30)))
    out = f"{topic}.out"
    first = Running(thirds_of(topic), log, tmp_path / "job")
    eventually(lambda: size(log, out) >= 10, within=PATIENCE)
    with pytest.raises(AlreadyRunning):
        ran(thirds_of(topic), log, tmp_path / "job")
    with Running(thirds_of(topic), log, tmp_path / "job", take_over=True):
        with pytest.raises(Fenced):
            first.job.wait(PATIENCE)
        log.fill(topic, rows(range(30, 60)))
        eventually(lambda: set(ids(log, out)) == set(thirds(0, 60)), within=PATIENCE)


def test_a_log_in_an_old_format_is_read_by_librdkafka(
    log: Log, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise UnknownFormat

    monkeypatch.setattr(WireFetcher, "following", unknown)
    log.topics.create(topic, partitions=2)
    log.fill(topic, rows(range(90)))
    ran(thirds_of(topic), log, tmp_path / "job")
    assert sorted(ids(log, f"{topic}.out")) == thirds(0, 90)


@pytest.fixture
def own_broker(own_home: None) -> Iterator[ThrowAwayBroker]:
    with started() as broker:
        yield broker


def test_a_job_waits_for_a_broker_that_is_killed_and_restarted(
    own_broker: ThrowAwayBroker, topic: str, tmp_path: Path
) -> None:
    log, out = Log(own_broker.address), f"{topic}.out"
    log.topics.create(topic, partitions=2)
    with Running(thirds_of(topic), log, tmp_path / "job") as running:
        log.fill(topic, rows(range(300)))
        eventually(lambda: size(log, out) >= 1, within=PATIENCE)
        own_broker.kill()
        time.sleep(2.0)
        own_broker.start()
        log.fill(topic, rows(range(300, 600)))
        eventually(lambda: set(ids(log, out)) == set(thirds(0, 600)), within=PATIENCE)
    assert any(phase.startswith("waiting for Kafka") for phase in running.phases)


def test_a_prefetch_that_fails_half_way_loses_nothing(
    log: Log, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its response may still arrive and must not be taken for the one to the next fetch."""
    monkeypatch.setattr(source_thread, "_MOST", 400)
    send, failures = WireFetcher._send_for, iter([False, True, False, True, *[False, True] * 9])

    def send_and_fail(self: WireFetcher, starts: Any, least: int, most: int) -> Any:
        sent = send(self, starts, least, most)
        if next(failures, False):
            raise ConnectionResetError
        return sent

    monkeypatch.setattr(WireFetcher, "_send_for", send_and_fail)
    log.topics.create(topic)
    for first in range(0, 300, 5):
        log.fill(topic, rows(range(first, first + 5)))
    ran(thirds_of(topic), log, tmp_path / "job")
    assert set(ids(log, f"{topic}.out")) == set(thirds(0, 300))
    assert not list(failures)


def test_consecutive_pieces_are_prefetched(
    log: Log, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In pieces of a few hundred bytes, so that most of them were prefetched."""
    monkeypatch.setattr(source_thread, "_MOST", 400)
    found: list[bool] = []
    real = WireFetcher._prefetch_of

    def prefetch_of(self: WireFetcher, starts: Any) -> Any:
        found.append(bool(sent := real(self, starts)))
        return sent

    monkeypatch.setattr(WireFetcher, "_prefetch_of", prefetch_of)
    log.topics.create(topic, partitions=3)
    for first in range(0, 300, 5):
        log.fill(topic, rows(range(first, first + 5)))
    ran(thirds_of(topic), log, tmp_path / "job")
    assert sorted(ids(log, f"{topic}.out")) == thirds(0, 300)
    assert sum(found) > len(found) / 2 > 5


@pytest.mark.spark
@pytest.mark.parametrize("by", ["driver", "spark"])
def test_bad_rows_go_to_the_topic_given_as_dead(
    by: str, log: Log, topic: str, tmp_path: Path, spark: object
) -> None:
    log.topics.create(topic)
    log.fill(topic, [*rows(range(2)), b"no json"])
    stream = ms.read(ms.Topic(topic, schema=SCHEMA), time="at")
    named = ms.Topic(f"{topic}.bad")
    out = stream.to(ms.Topic(f"{topic}.out"))
    ran(continuous(topic, out, dead=named, engine=by), log, tmp_path / "job")

    assert [record.value for record in log.read(f"{topic}.bad")] == [b"no json"]
    assert size(log, f"{topic}.dead") == 0
    assert size(log, f"{topic}.out") == 2
