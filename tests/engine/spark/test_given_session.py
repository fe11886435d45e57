"""A session that is handed in is used and left as it was; one of ours stays for the next run."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, Literal

import pytest
from tests.engine.scenes import bid, bids, counted, out
from tests.faults.running import until

import millstream as ms
from millstream.engine.spark.rdd_jobs import check_workers
from millstream.engine.spark.session import existing_session
from millstream.errors import UserCodeFailed
from millstream.testing import Drive

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

Lane = Literal["narrow", "wide"]
OURS = ("spark.job.description", "spark.jobGroup.id", "callSite.short", "callSite.long")


def numbers(*values: int) -> ms.Stream:
    return ms.read(ms.Memory([{"n": value} for value in values], schema="n long"))


def finished(spark: SparkSession, folder: Path, lane: Lane) -> None:
    found = ms.Memory()
    pipeline = ms.Pipeline("numbers", numbers(1, 2).where("abs(n) > 1").to(found))
    pipeline.run(until="finished", spark=spark, lane=lane)
    assert found.rows == [{"n": 2}]


def failed(spark: SparkSession, folder: Path, lane: Lane) -> None:
    broken = numbers(0).select("1 div n as x").to(ms.Memory())
    with pytest.raises(UserCodeFailed, match="DIVIDE_BY_ZERO"):
        ms.Pipeline("broken", broken, on_bad="stop").run(until="finished", spark=spark, lane=lane)


def stopped(spark: SparkSession, folder: Path, lane: Lane) -> None:
    found = ms.Memory()
    endless = ms.Pipeline("endless", ms.read(ms.Rate(rows_per_second=50)).to(found))
    job = endless.start(spark=spark, lane=lane, checkpoint=folder)
    until(lambda: found.rows or job.ended(), "rows")
    job.stop()
    job.wait(120)
    assert found.rows


def driven(spark: SparkSession, folder: Path, lane: Lane) -> None:
    with Drive(out(counted(bids())), lane=lane, spark=spark) as drive:
        drive.feed("bids", [bid(1)])
        drive.step()
        drive.restart()
        drive.finish()
        assert len(drive.rows("out")) == 1


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    """A session of the user's own, with a setting, and jobs with a description."""
    mine = spark.newSession()
    mine.conf.set("spark.sql.shuffle.partitions", "3")
    mine.sparkContext.setJobDescription("mine")
    yield mine
    mine.sparkContext.setLocalProperty("spark.job.description", None)  # type: ignore[arg-type]


@pytest.mark.parametrize("lane", ["narrow", "wide"])
@pytest.mark.parametrize("used", [finished, failed, stopped, driven])
def test_a_session_handed_in_answers_afterwards_as_before(
    used: Callable[..., None], lane: Lane, session: SparkSession, tmp_path: Path
) -> None:
    table = f"mine_{uuid.uuid4().hex[:8]}"
    session.range(5).createOrReplaceTempView(table)
    context = session.sparkContext
    before: Any = (context.applicationId, session.conf.getAll,
                   [context.getLocalProperty(name) for name in OURS])  # fmt: skip

    used(session, tmp_path / "job", lane)

    after = (context.applicationId, session.conf.getAll,
             [context.getLocalProperty(name) for name in OURS])  # fmt: skip
    assert after == before
    assert session.sql(f"select sum(id) as s from {table}").collect()[0].s == 10
    assert context.parallelize([1, 2, 3], 2).map(lambda n: n + 1).sum() == 9
    assert context.statusTracker().getActiveJobsIds() == []


def test_checking_the_workers_leaves_the_users_description(session: SparkSession) -> None:
    from millstream.engine.spark import rdd_jobs as module

    module._checked.discard(session.sparkContext.applicationId)
    check_workers(session)
    assert session.sparkContext.getLocalProperty("spark.job.description") == "mine"


def test_a_session_of_ours_stays_for_the_next_run(spark: SparkSession) -> None:
    """The fixture's session was made as a run makes it; a second run finds it, and it stays."""
    for _ in range(2):
        found = ms.Memory()
        ms.Pipeline("numbers", numbers(3).to(found)).run(until="finished")
        assert found.rows == [{"n": 3}]
        known = existing_session()
        assert known is not None
        assert known.sparkContext.applicationId == spark.sparkContext.applicationId
        assert known.range(4).count() == 4
