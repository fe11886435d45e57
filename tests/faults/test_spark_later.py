"""A job starts without Spark, which is started in the background: the results are the same."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.faults.running import Run, until
from tests.faults.verdicts import verdict_on

if TYPE_CHECKING:
    from pathlib import Path

    from tests.faults.driver import Config
    from tests.faults.feed import Feed

SMALL = {"budget": 40_000, "narrow": 4_000}


def lanes(job: Run) -> list[str]:
    return [batch["lane"] for batch in job.batches()]


def has_java(job: Run) -> bool:
    return any("java" in process.name() for process in job.tree())


def test_few_rows_need_no_java(config: Config, feed: Feed, tmp_path: Path) -> None:
    feed.send()
    with Run(config, tmp_path) as job:
        job.wait_batches(1)
        feed.send()
        job.wait_batches(2)

        assert not has_java(job)
    with Run(replace(config, until="finished"), tmp_path, name="last") as job:
        job.succeed()
    assert verdict_on(config)["green"]


def test_many_rows_do_not_wait_for_spark_which_takes_over_when_ready(
    config: Config, feed: Feed, tmp_path: Path
) -> None:
    with Run(replace(config, **SMALL), tmp_path) as job:  # type: ignore[arg-type]
        fed = [0]

        def wide() -> bool:
            if len(lanes(job)) >= fed[-1]:
                feed.send(100)
                fed.append(len(lanes(job)) + 4)
            return "wide" in lanes(job)

        until(wide, "a batch in the wide lane")
        assert has_java(job)
        first = lanes(job).index("wide")
        assert first > 1
        assert all(batch["rows"] < 100 for batch in job.batches()[:first])
    with Run(replace(config, until="finished"), tmp_path, name="last") as job:
        job.succeed()

    verdict = verdict_on(config)
    assert verdict["green"], verdict
    assert verdict["windows"]["rows"]


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
    with Run(replace(config, until="finished"), tmp_path, name="last") as job:
        job.succeed()

    assert again["lane"] == "narrow"
    assert again["batch"] == 1
    assert verdict_on(config)["green"]


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
        assert lanes(job)
    with Run(replace(config, until="finished"), tmp_path, name="last") as job:
        job.succeed()
    assert verdict_on(config)["green"]
