"""Jobs that share a Spark application: each has its own process, and what is killed is back."""

from __future__ import annotations

import json
import urllib.request
from typing import TYPE_CHECKING

import psutil
import pytest
from tests.jobs.stacks import until
from tests.jobs.test_real_job import RUNNING, RealJob, asked

if TYPE_CHECKING:
    from pathlib import Path

    from tests.jobs.stacks import Stack


def uis(stack: Stack) -> list[str | None]:
    return [job["spark_ui"] for job in asked(stack, "api/jobs")]


def javas(stack: Stack) -> list[psutil.Process]:
    return [process for process in stack.processes() if process.name() == "java"]


def places(stack: Stack, name: str) -> set[str]:
    return {commit["where"] for commit in asked(stack, f"api/jobs/{name}/commits")["commits"]}


def pools(stages: str) -> set[str]:
    """The pools of stages, which take turns; those of jobs, not of what they do at their start."""
    with urllib.request.urlopen(stages, timeout=60) as answer:
        return {stage["schedulingPool"] for stage in json.loads(answer.read())} - {"default"}


def pids(stack: Stack, jobs: list[RealJob]) -> list[int | None]:
    holders = [stack.holder(job.topic) for job in jobs]
    return [None if holder is None else holder.pid for holder in holders]


@pytest.mark.timeout(900)
def test_jobs_share_an_application_and_survive_its_death(
    stack: Stack, topic: str, tmp_path: Path
) -> None:
    stack.up()
    jobs = [RealJob(stack, f"{topic}-{number}", tmp_path, "--share") for number in (1, 2)]
    [ui] = until(lambda: None not in (found := uis(stack)) and set(found), "both on Spark")
    with urllib.request.urlopen(f"{ui}/api/v1/applications", timeout=60) as answer:
        [application] = json.loads(answer.read())
    assert application["name"] == "millstream: shared by jobs"
    for job in jobs:
        job.send()
        job.send()
        job.await_left()
        assert places(stack, job.topic) <= {"bridge", "spark"}
    assert len(javas(stack)) == 1
    assert len(pools(f"{ui}/api/v1/applications/{application['id']}/stages")) == 2
    assert (stack.folder.shared_spark.stat().st_mode & 0o777) == 0o600

    host = stack.folder.lock("spark").holder()
    assert host is not None
    before = pids(stack, jobs)
    host.kill()
    until(lambda: all(now not in (None, old)
                      for now, old in zip(pids(stack, jobs), before, strict=True)),
          "other processes of both jobs")  # fmt: skip
    for job in jobs:
        stack.await_state(job.topic, *RUNNING)
        job.send()
        job.await_left()
        assert job.left() == job.expected()
    until(lambda: None not in uis(stack), "both on Spark again")

    first, second = jobs
    _, other = pids(stack, jobs)
    first.hurt(lambda: psutil.Process(pids(stack, jobs)[0]).kill())
    first.await_left()
    assert (first.left(), pids(stack, jobs)[1]) == (first.expected(), other)

    for job in jobs:
        stack.millstream.ok("jobs", "stop", job.topic)
    until(lambda: not javas(stack), "no Java once no job uses it")
    stack.millstream.ok("jobs", "restart", second.topic)
    second.send()
    second.await_left()
    stack.millstream.ok("down")
    assert stack.processes() == []
