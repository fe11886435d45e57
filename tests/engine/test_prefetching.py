"""Prefetching in whole runs: the results are the same, also after crashes at any point."""

from __future__ import annotations

import random
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from tests.engine.prefetch_log import PrefetchableReader, until
from tests.faults.small_world import TOPIC, Crash, Environment, Small, install_fault_points

import millstream as ms
from millstream.engine.checkpoint.fault_points import POINTS
from millstream.engine.lanes import prefetch
from millstream.kafka.admin.topics import Topics

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from millstream.engine.engine import Engine
    from millstream.metrics.facts import Facts
    from millstream.plan.graph import Read
    from millstream.testing.local_broker import ThrowAwayBroker

pytestmark = pytest.mark.spark
PAD = b"x" * (2 * prefetch.LEAST // 100)  # a transaction is worth prefetching
PROTOCOL = [point for point in POINTS if "writing" not in point]
Patch = pytest.MonkeyPatch


class PrefetchableWorld(Environment):
    """The small world, with topics that support prefetching."""

    def reader(self, name: str, read: Read) -> PrefetchableReader:
        return PrefetchableReader(self.log, name)


class Reading(Small):
    """A job whose rows arrive during batches and are prefetched then."""

    def __init__(self, folder: Path, spark: SparkSession, patch: Patch) -> None:
        super().__init__(folder, spark)
        self.environment = PrefetchableWorld()
        self.found: list[str] = []
        patch.setattr(prefetch, "LEAST", 1)
        patch.setattr(prefetch, "reached", lambda point, batch: self.found.append(point))
        install_fault_points(self.environment, patch)

    def feed_at(self, engine: Engine, point: str) -> None:
        """Feed rows at a point of the current batch, and wait until they are prefetched."""

        def feed() -> None:
            self.feed()
            self.all_read(engine)

        self.environment.at[point] = feed

    def all_read(self, engine: Engine) -> None:
        """Wait until all rows are prefetched."""
        source, reader = (
            engine._prefetcher._sources[TOPIC],
            PrefetchableReader(self.environment.log, TOPIC),
        )
        until(lambda: source._at == reader.extent().end, "all rows prefetched")

    def warmed(self, engine: Engine) -> None:
        """Two batches, after which the source is prefetched."""
        for _ in range(2):
            self.feed()
            assert engine.step() is not None


@pytest.fixture
def reading(tmp_path: Path, spark: SparkSession, monkeypatch: Patch) -> Reading:
    return Reading(tmp_path / "job", spark, monkeypatch)


def stepped(engine: Engine) -> Facts:
    facts = engine.step()
    assert facts is not None
    return facts


def test_a_batch_gets_the_rows_prefetched_during_the_previous_one(reading: Reading) -> None:
    with reading.run() as engine:
        reading.warmed(engine)
        reading.feed_at(engine, "before commit")
        reading.feed()
        first, second = stepped(engine), stepped(engine)

    assert (first.rows, second.rows, second.ahead) == (24, 24, 24)
    assert second.steps[engine.typed.stages.stages[0].name]["in"] == 24
    reading.finish()
    assert reading.green(), reading.verdict()


def test_a_prefetched_bad_row_is_dead_in_its_batch(
    reading: Reading,
) -> None:
    def spoilt() -> None:
        record = {"key": None, "value": b"{", "headers": None, "timestamp": None}
        reading.environment.log.append(TOPIC, 0, record)
        reading.all_read(engine)

    with reading.run() as engine:
        reading.warmed(engine)
        reading.feed()
        reading.environment.at["before commit"] = spoilt
        first, second = stepped(engine), stepped(engine)

    assert (first.dead, second.dead, second.ahead) == (0, 1, 1)
    dead = [row for _, door, row in reading.environment.sinks.rows if door == "dead"]
    assert [(row["value"], row["offset"]) for row in dead] == [(b"{", 36)]


def retried(reading: Reading) -> None:
    """A batch fails after later rows were prefetched; the same run retries it."""
    with reading.run() as engine:
        reading.warmed(engine)
        reading.feed()

        def feed_then_fail() -> None:
            reading.feed()
            reading.all_read(engine)
            raise OSError("a disk that is full for a moment")

        reading.environment.at["in the middle of a run"] = feed_then_fail
        with pytest.raises(OSError, match="full for a moment"):
            engine.step()
        assert [stepped(engine).rows for _ in range(2)] == [24, 24]
    reading.finish()


def test_a_retried_batch_does_not_get_the_rows_after_it(reading: Reading) -> None:
    retried(reading)

    assert reading.green(), reading.verdict()


def test_without_the_check_of_ranges_it_would(reading: Reading, monkeypatch: Patch) -> None:
    monkeypatch.setattr(prefetch, "fits", lambda piece, at, ranges: True)

    retried(reading)

    assert reading.verdict()["wrong"] or reading.verdict()["lost"]


def test_a_run_that_has_fallen_behind_does_not_prefetch(reading: Reading) -> None:
    """Its batches end where the planner cuts them, and read all their rows themselves."""
    with reading.run() as engine:
        reading.warmed(engine)
        reading.feed(36)
        engine._sizing.budget = 700.0
        facts = stepped(engine)
    assert (0 < facts.rows < 72, facts.ahead) == (True, 0)
    reading.finish()

    assert reading.green(), reading.verdict()


def test_a_recreated_topic_gets_no_rows_of_the_old_one(reading: Reading) -> None:
    """The topic's id is compared, as in every read."""
    with reading.run() as engine:
        reading.warmed(engine)
        reading.feed_at(engine, "before commit")
        reading.feed()
        stepped(engine)
        assert TOPIC in engine._prefetcher._sources
        track = prefetch.Track({0: 60, 1: 60}, "second")
        assert engine._prefetcher.take(TOPIC, {0: (36, 60), 1: (36, 60)}, track).rows == ()


def test_a_crash_with_prefetched_rows_loses_and_repeats_nothing(
    reading: Reading,
) -> None:
    for point in PROTOCOL:
        with suppress(Crash), reading.run() as engine:
            reading.warmed(engine)
            crashing(reading, engine, point)
        assert reading.environment.at == {}
    reading.finish()

    assert reading.green(), reading.verdict()
    assert len(reading.found) >= len(PROTOCOL)


def crashing(reading: Reading, engine: Engine, point: str) -> None:
    """A batch that crashes at a point after rows of the next one were prefetched."""

    def feed_then_crash() -> None:
        reading.feed()
        reading.all_read(engine)
        raise Crash

    reading.feed()
    reading.environment.at[point] = feed_then_crash
    engine.step()


def test_a_run_to_fixed_ends_reads_no_further(reading: Reading) -> None:
    with reading.run() as engine:
        reading.warmed(engine)
        reading.feed()
        engine.end_here(final=False)
        stepped(engine)
        before = len(reading.found)
        reading.feed()

    assert len(reading.found) == before


@pytest.mark.parametrize("place", ["spark", "driver"])
def test_prefetched_rows_of_a_real_topic_are_emitted_once(
    broker: ThrowAwayBroker, topic: str, tmp_path: Path, spark: SparkSession, place: Any
) -> None:
    """Fed in transactions, some of them aborted, until a batch gets prefetched rows."""
    spark.sparkContext.parallelize(range(2), 2).foreach(lambda number: time.sleep(0.5))
    Topics(broker.address).create(topic, partitions=2)
    rows = ms.read(ms.Topic(topic, schema="n long, ts timestamp"), time="ts")
    results = ms.Memory("out")
    batches: list[Facts] = []
    job = ms.Pipeline(f"prefetch-{topic}", rows.to(results), engine=place).start(
        kafka=broker.address, checkpoint=tmp_path / "real", lane="narrow",
        on_batch=lambda facts, lag: batches.append(facts),
    )  # fmt: skip
    writer = Producer({"bootstrap.servers": broker.address, "transactional.id": topic})
    writer.init_transactions()
    chance, sent = random.Random(4), list[int]()
    deadline = time.monotonic() + 240
    while not any(facts.ahead for facts in batches):
        assert time.monotonic() < deadline
        assert not job.ended()
        writer.begin_transaction()
        numbers = range(len(sent), len(sent) + 100)
        for number in numbers:
            value = b'{"n":%d,"ts":%d,"pad":"%s"}' % (number, number, PAD)
            writer.produce(topic, value, partition=number % 2)
        writer.flush()  # a broker refuses to abort a transaction that it has not seen
        if chance.random() < 0.2:
            writer.abort_transaction()
        else:
            writer.commit_transaction()
            sent += numbers
    until(lambda: len(results.rows) >= len(sent) or job.ended(), "all rows", patience=240)
    job.stop()
    job.wait(120)

    assert sorted(row["n"] for row in results.rows) == sent
    assert sum(facts.rows for facts in batches) == len(sent)
    assert {facts.where for facts in batches} == {place}
