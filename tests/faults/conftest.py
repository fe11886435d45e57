"""One job per test: its topic, its name, its checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.faults.driver import Config
from tests.faults.feeding import Feed
from tests.faults.small_world import Small, tell_the_world

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from millstream.testing.local_broker import ThrowAwayBroker


@pytest.fixture
def config(broker: ThrowAwayBroker, topic: str, tmp_path: Path) -> Config:
    """A job nobody else has, not started yet."""
    return Config(
        kafka=broker.address,
        topic=topic,
        name=f"job-{topic[-8:]}",
        checkpoint=str(tmp_path / "checkpoint"),
        diary=str(tmp_path / "diary"),
    )


@pytest.fixture
def feed(config: Config) -> Feed:
    """Its input: the topic is there, with nothing in it."""
    feed = Feed(config.kafka, config.topic, seed=20260101)
    feed.make_topic()
    return feed


@pytest.fixture
def small(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Small:
    """A job with one batch behind it and rows for the next."""
    job = Small(tmp_path / "checkpoint", spark)
    tell_the_world(job.environment, monkeypatch)
    job.feed()
    job.step()
    job.feed()
    return job
