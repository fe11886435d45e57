"""Batches move from the driver to Spark once it has started, and the results are the same."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.faults.running import Run, until
from tests.faults.verdicts import verdict_on

from millstream.engine.checkpoint.fault_points import IN_TASK, ON_SPARK

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import psutil
    from tests.faults.driver import Config
    from tests.faults.feed import Feed

SMALL = {"engine": "spark", "budget": 40_000, "narrow": 4_000}


def places(job: Run) -> list[str]:
    """Where its batches ran: `bridge`, `driver`, or the lane on Spark."""
    return [batch["lane"] if batch["where"] == "spark" else batch["where"]
            for batch in job.batches()]  # fmt: skip


def has_java(job: Run) -> bool:
    return any("java" in process.name() for process in job.tree())


def feed_until(job: Run, feed: Feed, true: Callable[[], bool], what: str, rows: int = 20) -> None:
    """Feed rows, some with every new batch, until something is true."""
    seen = [-1]

    def fed() -> bool:
        if len(job.batches()) > seen[0]:
            seen[0] = len(job.batches())
            feed.send(rows)
        return true()

    until(fed, what)


def finish(config: Config, feed: Feed, folder: Path) -> None:
    """Bring the job to its end; its results are those of the oracle."""
    with Run(replace(config, until="finished"), folder, name="last") as job:
        job.succeed()
    verdict = verdict_on(config)
    assert verdict["green"], verdict
    assert verdict["windows"]["rows"]


def test_a_job_of_the_driver_alone_needs_no_java(
    config: Config, feed: Feed, tmp_path: Path
) -> None:
    feed.send()
    with Run(config, tmp_path) as job:
        job.wait_batches(1)
        feed.send()
        job.wait_batches(2)

        assert not has_java(job)
        assert set(places(job)) == {"driver"}
    finish(config, feed, tmp_path)


def test_batches_run_in_the_driver_until_spark_is_ready_then_in_its_tasks(
    config: Config, feed: Feed, tmp_path: Path
) -> None:
    with Run(replace(config, engine="spark"), tmp_path) as job:
        feed_until(job, feed, lambda: places(job).count("narrow") >= 3, "batches on Spark")
        found = places(job)

        assert found[0] == "bridge"
        assert found == sorted(found)  # no batch returns to the driver
        assert has_java(job)
    finish(config, feed, tmp_path)


def test_a_backlog_is_taken_in_small_batches_until_spark_is_ready_then_wide(
    config: Config, feed: Feed, tmp_path: Path
) -> None:
    with Run(replace(config, **SMALL), tmp_path) as job:  # type: ignore[arg-type]
        feed_until(job, feed, lambda: "wide" in places(job), "a wide batch", rows=100)
        first = places(job).index("wide")

        assert places(job)[0] == "bridge"
        assert all(batch["rows"] < 100 for batch in job.batches()[:first])
    finish(config, feed, tmp_path)


@pytest.mark.parametrize("point", [ON_SPARK, IN_TASK, "in the middle of a run"])
def test_a_kill_while_batches_move_to_spark_loses_and_repeats_nothing(
    config: Config, feed: Feed, tmp_path: Path, point: str
) -> None:
    feed.send(40)
    with Run(replace(config, engine="spark"), tmp_path, hold=point) as job:
        feed_until(job, feed, lambda: job.held() == point, f"held {point}")
        before = places(job)
        job.kill()

    assert set(before) <= {"bridge"}
    finish(config, feed, tmp_path)


def test_a_narrow_batch_whose_worker_is_killed_is_run_again(
    config: Config, feed: Feed, tmp_path: Path
) -> None:
    feed.send(40)
    with Run(replace(config, engine="spark"), tmp_path, hold=IN_TASK) as job:
        feed_until(job, feed, lambda: job.held() == IN_TASK, "a task that is held")
        before = len(job.batches())
        for worker in workers(job):
            worker.kill()
        job.release()
        job.wait_batches(before + 1)

        assert places(job)[before] == "narrow"
        assert job.process.poll() is None
    finish(config, feed, tmp_path)


def workers(job: Run) -> list[psutil.Process]:
    """Spark's Python workers, without the daemon that starts them."""
    daemons = [p for p in job.tree() if "pyspark.daemon" in p.cmdline()]
    found = [p for p in daemons if any(p.ppid() == other.pid for other in daemons)]
    assert found
    return found


def test_a_batch_started_by_spark_is_run_again_without_it(
    config: Config, feed: Feed, tmp_path: Path
) -> None:
    feed.send(200)
    killed = replace(config, lane="wide", **SMALL)  # type: ignore[arg-type]
    with Run(killed, tmp_path, name="killed", hold="in the middle of a run") as job:
        job.wait_held("in the middle of a run")
        job.kill()
    with Run(config, tmp_path, name="again") as job:
        job.wait_batches(1)
        again = job.batches()[0]
        assert not has_java(job)

    assert (again["lane"], again["batch"]) == ("narrow", 1)
    finish(config, feed, tmp_path)


def test_a_failed_start_of_spark_ends_the_job_and_loses_nothing(
    config: Config, feed: Feed, tmp_path: Path
) -> None:
    feed.send(200)
    broken = {"MILLSTREAM_DRIVER_MEMORY": "none"}
    with Run(replace(config, **SMALL), tmp_path, environment=broken) as job:  # type: ignore[arg-type]

        def ended() -> bool:
            feed.send(20)
            return job.process.poll() is not None

        until(ended, "it to end")
        assert job.process.returncode != 0
        kind, sentence = job.error() or ("", "")
        assert kind == "SetupFailed"
        assert sentence.startswith("Spark needs to start; got [JAVA_GATEWAY_EXITED]")
    finish(config, feed, tmp_path)
