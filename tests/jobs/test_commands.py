"""`millstream jobs …` as people and programs read it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.jobs.stacks import Stack, until
from tests.jobs.test_supervisor import sleeper

from millstream.jobs.logs import Log

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def steady(stack: Stack, tmp_path: Path) -> Stack:
    """A stack with a job whose file is still being read."""
    stack.up()
    sleeper(stack, "steady", tmp_path)
    until(lambda: stack.job("steady").run and stack.holder("steady"), "its process")
    return stack


def test_a_job_is_listed_and_shown_for_people_and_programs(steady: Stack) -> None:
    said = steady.millstream.ok("jobs", "list")
    assert said.out.splitlines()[0].split()[:2] == ["JOB", "STATE"]
    assert said.out.splitlines()[1].split()[:2] == ["steady", "starting"]
    [listed] = steady.millstream.ok("jobs", "list", "-o", "json").json
    holder = steady.holder("steady")
    assert holder is not None
    assert (listed["job"], listed["pid"], listed["owner"]) == ("steady", holder.pid, "ann")
    shown = steady.millstream.ok("jobs", "show", "steady")
    assert ["application", "test"] in [line.split() for line in shown.out.splitlines()]
    assert "submitted" in shown.out
    detail = steady.millstream.ok("jobs", "show", "steady", "-o", "json").json
    assert [event["event"] for event in detail["events"]] == ["submitted", "launched"]


def test_a_log_is_printed_from_its_end(steady: Stack) -> None:
    folder = steady.folder.job("steady")
    until(lambda: folder.log.exists() and "started" in folder.log.read_text(), "its first line")
    log = Log(folder.log)
    log("hello", text="a\x1b[31mred")
    log.close()
    said = steady.millstream.ok("jobs", "logs", "steady", "--last", "1")
    assert json.loads(said.out)["event"] == "hello"
    assert "\x1b" not in said.out
    assert steady.millstream("jobs", "logs", "steady", "--last", "0").code == 2
    assert steady.millstream("jobs", "logs", "nobody").code == 4


def test_a_job_is_not_removed_without_a_yes(steady: Stack) -> None:
    said = steady.millstream("jobs", "remove", "steady")
    assert said.code == 2
    assert "a yes is needed to remove the job steady" in said.err
    assert steady.job("steady").wanted == "running"


def test_the_same_pipeline_is_not_submitted_twice(steady: Stack, tmp_path: Path) -> None:
    file = tmp_path / "again.py"
    file.write_text(
        "import millstream as ms\n"
        'rows = ms.read(ms.Topic("in", schema="n long"))\n'
        'pipeline = ms.Pipeline("steady", rows.to(ms.Topic("out")))\n'
    )
    said = steady.millstream("jobs", "submit", str(file))
    assert said.code == 1
    assert "a new job needs an unused name, not 'steady'" in said.err
