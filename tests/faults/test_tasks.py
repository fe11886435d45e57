"""Failing tasks, killed workers and executors, tasks that run twice: the results are the same."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import psutil
import pyspark
import pytest
from tests.faults.driver import DELAY, SCHEMA, SIZE
from tests.faults.running import Run, until
from tests.faults.small_world import TOPIC, Small
from tests.faults.standalone import cluster
from tests.faults.verdicts import verdict_on

import millstream as ms
from millstream.engine.lanes import wide
from millstream.engine.lanes.wide import WideLane
from millstream.engine.spark.rdd_jobs import RddJobs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from tests.faults.driver import Config
    from tests.faults.feed import Feed


def test_tasks_that_raise_and_killed_workers_are_retried(
    config: Config, feed: Feed, tmp_path: Path
) -> None:
    feed.send()
    feed.send()
    run = replace(config, until="finished", lane="wide", task_faults="raises dies")
    with Run(run, tmp_path, environment={"MILLSTREAM_SPARK_MASTER": "local[2,4]"}) as job:
        job.succeed()

    assert (tmp_path / "raises").exists()
    assert (tmp_path / "dies").exists()
    assert (tmp_path / "again").exists()
    verdict = verdict_on(config)
    assert verdict["green"], verdict
    assert {batch["lane"] for batch in job.batches()} == {"wide"}


def executor_of(worker: int) -> psutil.Process:
    """The executor process of a Python worker."""
    (executor,) = [
        process
        for process in psutil.Process(worker).parents()
        if any("CoarseGrainedExecutorBackend" in word for word in process.cmdline())
    ]
    return executor


def small_cluster(folder: Path) -> dict[str, str]:
    """The environment of a run with two executors, whose folders are below `folder`."""
    home = folder / "spark"
    home.mkdir()
    for part in Path(pyspark.__file__).parent.iterdir():
        (home / part.name).symlink_to(part)
    return {"MILLSTREAM_SPARK_MASTER": "local-cluster[2,1,1024]", "SPARK_HOME": str(home)}


@pytest.mark.soak
def test_a_killed_executor_does_not_change_the_results(
    config: Config, feed: Feed, tmp_path: Path
) -> None:
    feed.send()
    run = replace(config, until="finished", lane="wide", task_faults="slow")
    with Run(run, tmp_path, environment=small_cluster(tmp_path)) as job:
        slow = tmp_path / "slow"
        worker = until(lambda: slow.exists() and slow.read_text(), "a task in an executor")
        executor_of(int(worker)).send_signal(signal.SIGKILL)
        job.succeed()

    assert (tmp_path / "again").exists()
    verdict = verdict_on(config)
    assert verdict["green"], verdict


def speculating(master: str) -> dict[str, str]:
    """The environment of a run with speculative execution of slow tasks."""
    settings = {
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.quantile": "0.3",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.minTaskRuntime": "500ms",
        "spark.speculation.efficiency.enabled": "false",
        "spark.executor.memory": "512m",
    }
    options = " ".join(f"--conf {name}={value}" for name, value in settings.items())
    return {"MILLSTREAM_SPARK_MASTER": master, "PYSPARK_SUBMIT_ARGS": f"{options} pyspark-shell"}


@pytest.mark.soak
def test_a_slow_task_that_runs_twice_does_not_change_the_results(
    config: Config, feed: Feed, tmp_path: Path
) -> None:
    """Spark runs the copy on another host only, so the workers use two addresses of this one."""
    feed.send(400)
    run = replace(config, until="finished", lane="wide", task_faults="slow")
    with (
        cluster(tmp_path / "cluster", "127.0.0.1", "127.0.0.2") as master,
        Run(run, tmp_path, environment=speculating(master)) as job,
    ):
        job.succeed()

    assert (tmp_path / "again").exists()
    verdict = verdict_on(config)
    assert verdict["green"], verdict


Counts = tuple[int, int, int]


class Twice:
    """A frame whose tasks all run and report twice, as after the loss of an executor."""

    def __init__(self, frame: DataFrame) -> None:
        self._frame = frame

    def mapInArrow(self, *task: Any) -> Self:  # noqa: N802
        self._frame = self._frame.mapInArrow(*task)
        return self

    def collect(self) -> list[Any]:
        self._frame.select("*").collect()  # a separate plan, so that the shuffle is not reused
        return self._frame.collect()


def after_spark_sql() -> ms.Pipeline:
    """Windows over rows that have passed SQL which only Spark runs."""
    rows = ms.read(ms.Topic(TOPIC, schema=SCHEMA), time="ts", watermark=DELAY, idle=None)
    rows = rows.with_columns(amount="abs(amount)")
    panes = rows.by("key").window(ms.tumbling(SIZE)).agg(n=ms.count(), total=ms.sum("amount"))
    return ms.Pipeline("windows", panes.to(ms.Topic("out")))


def reported_twice(
    folder: Path, spark: SparkSession, patch: pytest.MonkeyPatch, pipeline: ms.Pipeline | None
) -> Counts:
    """A job whose tasks all run twice, over 60 rows, two bad ones and then two late ones.

    Returns how many rows it says it has read, and how many left as dead and as late.
    """
    frame, run = WideLane._frame, RddJobs.run
    patch.setattr(WideLane, "_frame", lambda self, *args: Twice(frame(self, *args)))
    patch.setattr(RddJobs, "run", lambda self, *args: [run(self, *args), run(self, *args)][1])
    small = Small(folder, spark, pipeline, lane="wide")
    small.feed(30)
    read = 0
    with small.run() as engine:
        for value in (b"{", b'{"id": 1, "key": 1, "amount": 5, "ts": "2026-01-01T00:00:01Z"}'):
            facts = engine.step()
            assert facts is not None
            read += facts.rows
            for partition in (0, 1):
                record = {"key": None, "value": value, "headers": None, "timestamp": None}
                small.environment.log.append(TOPIC, partition, record)
        facts = engine.step()
        assert facts is not None
        read += facts.rows
    kinds = [kind for _, kind, _ in small.environment.sinks.rows]
    return read, kinds.count("dead"), kinds.count("late")


@pytest.mark.parametrize("pipeline", [None, after_spark_sql()], ids=["rdd", "sql"])
def test_tasks_that_run_and_report_twice_count_once(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch,
    pipeline: ms.Pipeline | None,
) -> None:  # fmt: skip
    assert reported_twice(tmp_path / "checkpoint", spark, monkeypatch, pipeline) == (64, 2, 2)


def test_without_reports_by_partition_double_reports_count_twice(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Late rows are part of a task's result, which Spark collects once in any case."""

    def piled(self: object, known: dict[Any, Any], new: dict[Any, Any]) -> dict[Any, Any]:
        for key, read in new.items():
            known[*key, len(known)] = read
        return known

    monkeypatch.setattr(wide._BySlice, "addInPlace", piled)

    folder = tmp_path / "checkpoint"
    assert reported_twice(folder, spark, monkeypatch, after_spark_sql()) == (128, 4, 2)
