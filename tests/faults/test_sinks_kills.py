"""kill -9 with every kind of sink in one pipeline: each equals the results of DuckDB."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.faults.running import ROOT, Run
from tests.faults.sinks_outputs import SYSTEMS
from tests.faults.verdicts import Report, verdict_on

from millstream.engine.checkpoint.fault_points import POINTS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.faults.driver import Config
    from tests.faults.feed import Feed

BEFORE, AFTER = "before a sink's commit", "after a sink's commit"
BatchTime = tuple[str, int]
SHORT: list[BatchTime] = [(BEFORE, 2), (AFTER, 2), (AFTER, 4), (BEFORE, 5), (AFTER, 6)]
EVERY: list[BatchTime] = [
    *((point, 1) for point in POINTS if point not in (BEFORE, AFTER)),
    *((point, place) for place in range(1, len(SYSTEMS) + 1) for point in (BEFORE, AFTER)),
]


@pytest.fixture
def every_sink(config: Config, database: str, tmp_path: Path) -> Config:
    """The job with all results in every kind of sink."""
    folder = tmp_path / "tables"
    folder.mkdir()
    return replace(config, tables=(str(folder), database))


def tables_verdict(config: Config) -> dict[str, Any]:
    """The verdict on tables and files, by a process that does not import Millstream."""
    assert config.tables is not None
    question = {"kafka": config.kafka, "topic": config.topic, "folder": config.tables[0],
                "database": config.tables[1]}  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.sinks_verifier", json.dumps(question)],
        capture_output=True, text=True, check=False, timeout=280, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    verdict: dict[str, Any] = json.loads(done.stdout)
    return verdict


def kill_at(batch_time: BatchTime, config: Config, folder: Path, name: str) -> None:
    """Run the job until it reaches a point for the n-th time, and kill all its processes."""
    point, times = batch_time
    with Run(config, folder, name=name, hold=point) as job:
        for turn in range(times):
            job.wait_held(point)
            if turn < times - 1:
                job.arm(point)
                job.release()
        job.kill()


def survived(
    moments: Sequence[BatchTime], config: Config, feed: Feed, folder: Path
) -> dict[str, dict[str, Any]]:
    """The verdicts on topics and tables after a kill at each of these moments."""
    report = Report(feed.seed)
    for turn, batch_time in enumerate(moments):
        feed.send()
        kill_at(
            batch_time, replace(config, lane="narrow" if turn % 2 else "wide"), folder, f"{turn}"
        )
        report.kills[f"{batch_time[0]} {batch_time[1]}"] += 1
    feed.send()
    with Run(replace(config, until="finished"), folder, name="last") as job:
        job.succeed()

    verdict = {"topics": verdict_on(config), "tables": tables_verdict(config)}
    print(report.text(verdict))
    return verdict


def assert_green(verdict: dict[str, dict[str, Any]]) -> None:
    assert verdict["topics"]["green"], verdict
    assert verdict["tables"]["green"], verdict
    assert all(part["rows"] for name, part in verdict["tables"].items() if name != "green")


@pytest.mark.timeout(900)
def test_a_job_with_every_kind_of_sink_survives_being_killed_between_them(
    every_sink: Config, feed: Feed, tmp_path: Path
) -> None:
    verdict = survived(SHORT, every_sink, feed, tmp_path)
    assert len(verdict["tables"]) > 2
    assert_green(verdict)


@pytest.mark.soak
def test_a_job_with_every_kind_of_sink_survives_being_killed_at_each_step_and_sink(
    every_sink: Config, feed: Feed, tmp_path: Path
) -> None:
    verdict = survived(EVERY, every_sink, feed, tmp_path)
    assert len(verdict["tables"]) > 2
    assert_green(verdict)
