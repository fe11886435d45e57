"""A full disk at each write: a clear error, and afterwards no row is lost or doubled.

The limit is the kernel's (RLIMIT_FSIZE), set for this process at a step of the protocol: from
there on no file can grow.
"""

from __future__ import annotations

import resource
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from tests.faults.small_world import Small, install_fault_points

from millstream.errors import MillstreamError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession


@contextmanager
def full() -> Iterator[None]:
    """Free the space at the end, whenever it ran out."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


def fill() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))


@pytest.fixture
def small(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Small:
    job = Small(tmp_path / "checkpoint", spark)
    install_fault_points(job.environment, monkeypatch)
    return job


WRITES = {
    "intent": ("before intent", "00000002-000001"),
    "staged": ("after intent", "-results-"),
    "prepared": ("before prepared", "00000002-000001"),
    "commit": ("before commit", "00000002-000001"),
}


@pytest.mark.parametrize("write", WRITES)
def test_a_batch_stops_on_a_full_disk_and_continues_when_there_is_space(
    write: str, small: Small
) -> None:
    point, file = WRITES[write]
    small.feed()
    small.step()
    small.feed()
    small.environment.at[point] = fill

    with full(), pytest.raises(MillstreamError, match="needs a writable disk") as stopped:
        small.step()
    assert file in str(stopped.value)

    small.finish()
    assert small.green(), small.verdict()


def test_state_on_a_full_disk_stops_the_job_and_leaves_no_partial_file(small: Small) -> None:
    small.feed(8)
    small.environment.at["after intent"] = fill

    with full(), pytest.raises(MillstreamError, match=r"state.*needs a writable disk"):
        small.step()
    assert not list(small.folder.glob("state/*/*/*.arrow"))

    small.finish()
    assert small.green(), small.verdict()


def test_a_first_start_on_a_full_disk_leaves_no_job_behind(small: Small) -> None:
    small.feed()
    with full():
        fill()
        with pytest.raises(MillstreamError, match=r"job needs a writable disk"):
            small.step()
    assert not [path for path in small.folder.rglob("*") if path.is_file()]

    small.finish()
    assert small.green(), small.verdict()


def test_a_start_that_cannot_write_its_run_record_stops(small: Small) -> None:
    small.feed()
    small.step()
    with full():
        fill()
        with pytest.raises(MillstreamError, match=r"runs.*needs a writable disk"):
            small.step()

    small.finish()
    assert small.green(), small.verdict()
