"""Tasks that fail, workers and executors that die, tasks that run twice: the same answer."""

from __future__ import annotations

import signal
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import psutil
import pytest
from tests.faults.judging import verdict_on
from tests.faults.running import Run, until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.faults.driver import Config
    from tests.faults.feeding import Feed


def test_tasks_that_raise_and_workers_that_die_are_tried_again(
    config: Config, feed: Feed, tmp_path: Path
) -> None:
    feed.send()
    feed.send()
    run = replace(config, until="finished", lane="wide", clumsy="raises dies")
    with Run(run, tmp_path, environment={"MILLSTREAM_SPARK_MASTER": "local[2,4]"}) as job:
        job.succeed()

    assert (tmp_path / "raises").exists()
    assert (tmp_path / "dies").exists()
    verdict = verdict_on(config)
    assert verdict["green"], verdict
    assert {batch["lane"] for batch in job.batches()} == {"wide"}


def executors(job: Run) -> list[psutil.Process]:
    """The executors of its cluster, which are processes of their own."""
    found = []
    for process in job.tree():
        with suppress(psutil.NoSuchProcess):
            if any("CoarseGrainedExecutorBackend" in word for word in process.cmdline()):
                found.append(process)
    return found


CLUSTER = {"MILLSTREAM_SPARK_MASTER": "local-cluster[2,1,1024]"}
SPECULATING = {
    **CLUSTER,
    "PYSPARK_SUBMIT_ARGS": "--conf spark.speculation=true --conf spark.speculation.interval=100ms "
    "--conf spark.speculation.quantile=0.3 --conf spark.speculation.multiplier=1.1 "
    "--conf spark.speculation.minTaskRuntime=500ms pyspark-shell",
}


def test_an_executor_that_is_killed_changes_nothing_in_the_answer(
    config: Config, feed: Feed, tmp_path: Path
) -> None:
    feed.send()
    run = replace(config, until="finished", lane="wide", clumsy="slow")
    with Run(run, tmp_path, environment=CLUSTER) as job:
        until((tmp_path / "slow").exists, "a task in an executor")
        victim, *_ = executors(job)
        victim.send_signal(signal.SIGKILL)
        job.succeed()

    verdict = verdict_on(config)
    assert verdict["green"], verdict


@pytest.mark.soak
def test_a_slow_task_that_is_run_twice_changes_nothing_in_the_answer(
    config: Config, feed: Feed, tmp_path: Path
) -> None:
    feed.send(400)
    run = replace(config, until="finished", lane="wide", clumsy="slow")
    with Run(run, tmp_path, environment=SPECULATING) as job:
        job.succeed()

    assert (tmp_path / "slow").exists()
    verdict = verdict_on(config)
    assert verdict["green"], verdict
