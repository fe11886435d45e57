"""Every guard of the protocol is needed: with it off, the same fault does harm."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.faults.small_world import Small, tell_the_world

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture
def small(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Small:
    """A job with one batch behind it and rows for the next."""
    job = Small(tmp_path / "checkpoint", spark)
    tell_the_world(job.world, monkeypatch)
    job.feed()
    job.step()
    job.feed()
    return job


@pytest.mark.parametrize("point", ["after a sink's commit", "after intent"])
def test_smoke(small: Small, point: str) -> None:
    small.crash_at(point)
    small.step()
    small.finish()
    assert small.green(), small.verdict()
    assert small.verdict()["rows"]
