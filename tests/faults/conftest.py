"""One job per test: its topic, its name, its checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.faults.driver import Config
from tests.faults.feed import Feed
from tests.faults.small_world import Small, install_fault_points

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from millstream.testing.local_broker import ThrowAwayBroker


@pytest.fixture
def config(broker: ThrowAwayBroker, topic: str, tmp_path: Path) -> Config:
    """A job with its own names, not started yet."""
    return Config(
        kafka=broker.address,
        topic=topic,
        name=f"job-{topic[-8:]}",
        checkpoint=str(tmp_path / "checkpoint"),
        events=str(tmp_path / "events"),
    )


@pytest.fixture
def feed(config: Config) -> Feed:
    """Its input: an empty topic."""
    feed = Feed(config.kafka, config.topic, seed=20260101)
    feed.make_topic()
    return feed


@pytest.fixture
def small(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Small:
    """A job with one committed batch and rows for the next."""
    job = Small(tmp_path / "checkpoint", spark)
    install_fault_points(job.environment, monkeypatch)
    job.feed()
    job.step()
    job.feed()
    return job
