"""While a wide batch takes long, the ends of its sources are read: a topic reports that it
waits for Kafka, and a job that is stopped does not wait for its tasks."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from tests.faults.running import until
from tests.faults.small_world import Environment, LogReader, Small

from millstream.engine.spark import session
from millstream.engine.spark.job_thread import CallSite, JobThread
from millstream.engine.spark.session import Spark
from millstream.sources.spec import Scan

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from millstream.plan.graph import Read
    from millstream.sources.spec import Extent, Fetching, Ranges

pytestmark = pytest.mark.spark


@dataclass(frozen=True)
class Held:
    """Fetches once the ends of the source are read while a task waits."""

    fetch: Fetching
    folder: Path

    def __call__(self, numbers: Iterable[int]) -> Iterator[pa.RecordBatch]:
        (self.folder / "held").touch()
        until((self.folder / "read").exists, "its ends to be read", 60)
        return iter(self.fetch(numbers))


class WatchedReader(LogReader):
    """A topic whose tasks wait until its ends are read."""

    folder: Path

    def extent(self) -> Extent:
        if (self.folder / "held").exists():
            (self.folder / "read").touch()
        return super().extent()

    def scan(self, ranges: Ranges, slices: int, more: Sequence[str] = ()) -> Scan:
        found = super().scan(ranges, slices, more)
        return Scan(found.count, Held(found.fetch, self.folder))


def test_the_ends_of_sources_are_read_while_the_tasks_of_a_wide_batch_wait(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reader(self: Environment, name: str, read: Read) -> LogReader:
        made = WatchedReader(self.log, name)
        made.folder = tmp_path
        return made

    monkeypatch.setattr(Environment, "reader", reader)
    monkeypatch.setattr(session, "_PATIENCE_SECONDS", 0.1)
    small = Small(tmp_path / "checkpoint", spark, lane="wide")
    small.feed()
    small.finish()

    assert (tmp_path / "read").exists()
    assert small.green()


def sleep(numbers: Iterable[int]) -> Iterator[int]:
    time.sleep(120)
    yield from numbers


def test_jobs_that_are_no_longer_waited_for_are_cancelled(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_STUCK_SECONDS", 0.1)
    whys: list[str] = []

    def stopped(why: str) -> None:
        whys.append(why)
        if context.statusTracker().getActiveJobsIds():
            raise InterruptedError

    context: Any = spark.sparkContext
    thread = JobThread(Spark.of(spark, stopped), {})
    job = context.parallelize([1], 1).mapPartitions(sleep)
    with pytest.raises(InterruptedError):
        thread.run(job.collect, "asleep", CallSite("sleep", ""), "batch 7")
    thread.close()

    assert set(whys) == {"batch 7 waits for its Spark tasks"}
    until(lambda: not context.statusTracker().getActiveJobsIds(), "the end of the job", 60)
