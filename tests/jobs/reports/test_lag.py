"""Lag, and the warning before unread records are gone."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from tests.jobs.stacks import until

from millstream.jobs.folders import StackFolder, stack_folder
from millstream.jobs.logs import Log, last_lines
from millstream.jobs.registry import JobRegistry, JobRow
from millstream.jobs.reports.lag import LagWatch, Retention, danger, lags
from millstream.jobs.reports.run_log import RunLog
from millstream.kafka.admin.topics import Topics
from millstream.kafka.clients.producing.producer import Producer

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.testing.local_broker import ThrowAwayBroker

FOREVER, DAY = Retention(None), Retention(86_400.0)


def warned(retention: Retention = FOREVER, *, position: int, aged: int | None = None,
           first: int = 100, cut: bool = False) -> str | None:  # fmt: skip
    return danger(position=position, first=first, end=200, aged=aged, retention=retention, cut=cut)


def test_a_job_that_has_read_everything_causes_no_warning() -> None:
    assert warned(DAY, position=200, aged=200, cut=True) is None


def test_recent_unread_records_cause_no_warning() -> None:
    assert warned(DAY, position=150, aged=120) is None


def test_unread_records_near_the_end_of_their_retention_cause_a_warning() -> None:
    warning = warned(DAY, position=150, aged=180)
    assert warning == "30 unread records have used up 75% of the retention of 86,400 s"


def test_a_log_that_is_not_truncated_causes_no_warning_without_retention() -> None:
    assert warned(position=101) is None


@pytest.mark.parametrize(("position", "expected"), [(124, True), (125, False)])
def test_unread_records_in_the_oldest_quarter_of_a_truncated_log_cause_a_warning(
    position: int, *, expected: bool
) -> None:
    assert (warned(position=position, cut=True) is not None) == expected


def test_records_that_have_been_deleted_are_reported_as_deleted() -> None:
    assert warned(position=90) == "10 unread records have been deleted already"


def reading(folder: StackFolder, kafka: str, topic: str, position: int) -> None:
    """A job that has read a topic up to a position, in its registry and run log."""
    with JobRegistry(folder.registry) as registry:
        registry.add(JobRow(name=topic, application="a", owner="ann", file="f.py", pipeline=topic,
                        kafka=kafka, checkpoint="c", lane=None, submitted=0.0))  # fmt: skip
    folder.job(topic).path.mkdir()
    run_log = RunLog(folder.job(topic).run_log, "r1", 1)
    run_log.about({"kafka": kafka, "topics": {"bids": topic}})
    run_log.beat(time.time(), {"bids": {0: position}})
    run_log.close()


def test_the_lag_of_a_job_that_is_down_has_a_warning_before_records_are_deleted(
    broker: ThrowAwayBroker, topic: str, tmp_path: Path
) -> None:
    young, old = f"{topic}-young", f"{topic}-old"
    folder = stack_folder(tmp_path)
    folder.make()
    then = datetime.now(UTC) - timedelta(minutes=50)
    with Producer(broker.address) as producer:
        for name, at in ((young, datetime.now(UTC)), (old, then)):
            Topics(broker.address).create(name, retention="1 hour")
            for number in range(5):
                producer.send(name, {"n": number}, timestamp=at)
            reading(folder, broker.address, name, position=2)
    log = Log(tmp_path / "lag.log")
    watch = LagWatch(folder, log)
    watch.start()
    try:
        until(lambda: watch.of(old) is not None, "the lag")
        found = {lag.job: lag for lag in lags(folder)}
        assert {lag.lag for lag in found.values()} == {3} == {watch.of(young), watch.of(old)}
        assert found[young].warning is None
        assert found[old].warning == (
            "3 unread records have used up 75% of the retention of 3,600 s"
        )
        until(lambda: lags(folder, old)[0].seconds > 0, "the time they have waited")
    finally:
        watch.close()
        log.close()
    [line] = [line for line in last_lines(tmp_path / "lag.log", 50) if '"retention"' in line]
    assert f'"pipeline": "{old}"' in line
