"""The supervisor, killed at any moment: no job is lost, none runs twice.

The jobs are real processes of real files that never start Spark. The tests check which process
starts, finds and ends them.
"""

from __future__ import annotations

import random
import time
from functools import partial
from typing import TYPE_CHECKING

import pytest
from tests.jobs.stacks import SLEEPER, Stack, until

from millstream.jobs.process import leftovers
from millstream.jobs.registry import JobRegistry, JobRow

if TYPE_CHECKING:
    from pathlib import Path

KILLS = 12
JOBS = 3
MOST_HURT = 4  # more deaths in a row would rightly make a job fail


def sleeper(stack: Stack, name: str, folder: Path, text: str = SLEEPER) -> JobRow:
    """A job whose file never finishes loading."""
    file = folder / f"{name}.py"
    file.write_text(text)
    job = JobRow(name=name, application="test", owner="ann", file=str(file), pipeline=name,
                 kafka=stack.kafka, checkpoint=str(folder / name), lane=None,
                 submitted=time.time())  # fmt: skip
    with JobRegistry(stack.folder.registry) as registry:
        registry.add(job)
    return job


def killed_at_random(stack: Stack, folder: Path, *, kills: int, seed: int) -> dict[str, int]:
    """Kill the supervisor so many times, jobs now and then too; how many processes each job that
    should run has then."""
    chance = random.Random(seed)
    stack.up()
    names = [f"job-{number}" for number in range(JOBS)]
    hurt = dict.fromkeys(names, 0)
    for kill in range(kills):
        if kill < JOBS:
            sleeper(stack, names[kill], folder)
        else:
            name = chance.choice(names)
            victim = stack.holder(name)
            if victim is not None and hurt[name] < MOST_HURT and chance.random() < 0.4:
                hurt[name] += 1
                victim.kill()
        time.sleep(chance.random() * 0.6)
        stack.kill_supervisor()
        until(stack.supervisor, "another supervisor")
    pids = {name: until(partial(stack.holder, name), f"a process of {name}").pid for name in names}
    running = {name: [process.pid for process in stack.processes(name)] for name in names}
    assert all(pids[name] in running[name] for name in names), (pids, running)
    return {name: len(running[name]) for name in names if stack.job(name).wanted == "running"}


def test_a_supervisor_killed_at_random_moments_loses_and_duplicates_no_job(
    stack: Stack, tmp_path: Path
) -> None:
    found = killed_at_random(stack, tmp_path, kills=KILLS, seed=20)

    assert found == {f"job-{number}": 1 for number in range(JOBS)}


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(5))
def test_a_supervisor_killed_two_hundred_times_loses_and_duplicates_no_job(
    stack: Stack, tmp_path: Path, seed: int
) -> None:
    found = killed_at_random(stack, tmp_path, kills=200, seed=seed)

    assert found == {f"job-{number}": 1 for number in range(JOBS)}


def test_a_job_continues_without_the_supervisor_and_is_found_again(
    stack: Stack, tmp_path: Path
) -> None:
    stack.up()
    sleeper(stack, "steady", tmp_path)
    before = until(lambda: stack.holder("steady"), "its process")
    first = stack.supervisor()
    assert first is not None
    stack.kill_supervisor()
    until(lambda: (now := stack.supervisor()) and now.pid != first.pid, "another supervisor")
    time.sleep(1.0)
    assert [process.pid for process in stack.processes("steady")] == [before.pid]
    assert stack.job("steady").restarts == 0


def test_a_job_is_stopped_restarted_and_removed_on_request(stack: Stack, tmp_path: Path) -> None:
    stack.up()
    sleeper(stack, "steady", tmp_path)
    first = until(lambda: stack.holder("steady"), "its process")
    run = stack.job("steady").run
    assert run is not None
    stack.freeze("steady")
    stack.millstream.ok("jobs", "stop", "steady")
    assert stack.holder("steady") is None
    assert leftovers(run) == []

    stack.millstream.ok("jobs", "restart", "steady", "--no-wait")
    second = until(lambda: stack.holder("steady"), "a new process")
    assert second.pid != first.pid
    stack.freeze("steady")
    stack.millstream.ok("jobs", "remove", "steady", "--yes")
    assert stack.holder("steady") is None
    assert stack.millstream.ok("jobs", "list", "-o", "json").json == []
    assert not stack.folder.job("steady").path.exists()


def test_an_invalid_file_fails_at_once_with_a_reason(stack: Stack, tmp_path: Path) -> None:
    stack.up()
    sleeper(stack, "wrong", tmp_path, "import millstream as ms\nms.tumbling('0 seconds')\n")
    job = stack.await_state("wrong", "failed")
    assert job.reason is not None
    assert "wrong.py:2" in job.reason
    assert job.restarts == 0
    said = stack.millstream.ok("jobs", "show", "wrong", "-o", "json").json
    assert said["reason"] == job.reason
    assert [event["event"] for event in said["events"]][:2] == ["submitted", "launched"]


def test_down_stops_everything_and_up_restarts_the_jobs(stack: Stack, tmp_path: Path) -> None:
    stack.up()
    sleeper(stack, "steady", tmp_path)
    before = until(lambda: stack.holder("steady"), "its process")
    stack.freeze("steady")
    stack.kill_supervisor()
    stack.millstream.ok("down")
    assert stack.processes() == []
    assert stack.job("steady").wanted == "running"
    stack.up()
    after = until(lambda: stack.holder("steady"), "its process again")
    assert after.pid != before.pid


def test_jobs_need_the_stack_to_be_up(stack: Stack, tmp_path: Path) -> None:
    file = tmp_path / "hot.py"
    file.write_text(SLEEPER)
    said = stack.millstream("jobs", "submit", str(file))
    assert said.code == 5
    assert "start it with `millstream up`" in said.err
    assert stack.millstream.ok("jobs", "list").out == ""
    assert stack.millstream("jobs", "show", "hot").code == 4
