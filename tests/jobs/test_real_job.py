"""A real job on Spark and Kafka, killed and frozen: back in seconds, each row's effect once."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from tests.cli.bids import lines
from tests.jobs.stacks import Stack, until

from millstream.kafka.clients.consuming.consumer import Consumer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FILE = """import millstream as ms

bids = ms.read(
    ms.Topic({topic!r}, schema="auction long, price double, ts timestamp"), time="ts", idle=None
)
hot = bids.by("auction").window(ms.tumbling("10 seconds")).agg(n=ms.count())
pipeline = ms.Pipeline(
    {topic!r},
    hot.to(ms.Topic({topic!r} + ".out")),
    hot.to(ms.LiveTable("windows", key="window_start")),
)
"""
RUNNING = ("running", "idle")


class RealJob:
    """A job that counts bids in windows of ten seconds, three bids to a window."""

    def __init__(self, stack: Stack, topic: str, folder: Path, *options: str) -> None:
        self.stack, self.topic, self._rounds = stack, topic, 0
        file = folder / f"{topic}.py"
        file.write_text(FILE.format(topic=topic))
        for name in (topic, f"{topic}.out"):
            stack.millstream.ok("topics", "create", name)
        stack.millstream.ok("jobs", "submit", str(file), "--no-wait", *options)
        stack.await_state(topic, *RUNNING)

    def send(self) -> None:
        """Send three bids for the next window, which close the previous one."""
        self._rounds += 1
        first = 10 * self._rounds
        sent = lines([first + 1, first + 2, first + 3])
        self.stack.millstream.ok("produce", self.topic, stdin=sent)

    def left(self) -> list[tuple[str, int]]:
        """The committed results in the output topic, in order."""
        with Consumer(f"{self.topic}.out", kafka=self.stack.kafka, until_end=True) as reader:
            values = [json.loads(record.value or b"") for record in reader]
        return [(value["window_start"], value["n"]) for value in values]

    def expected(self) -> list[tuple[str, int]]:
        """Every window except the last, which is open, with its three bids."""
        return [(f"2026-01-01T00:{10 * n // 60:02d}:{10 * n % 60:02d}.000000Z", 3)
                for n in range(1, self._rounds)]  # fmt: skip

    def await_left(self) -> None:
        """Wait until all expected results are there."""
        wanted = self.expected()
        until(lambda: set(wanted) <= set(self.left()), f"{len(wanted)} windows")

    def hurt(self, how: Callable[[], Any]) -> float:
        """Harm it while rows arrive; return how long until another process is running."""
        holder = self.stack.holder(self.topic)
        assert holder is not None
        how()
        began = time.monotonic()
        self.send()

        def back() -> bool:
            now = self.stack.holder(self.topic)
            return now is not None and now.pid != holder.pid

        until(back, "another process")
        self.stack.await_state(self.topic, *RUNNING)
        return time.monotonic() - began


@pytest.fixture
def job(stack: Stack, topic: str, tmp_path: Path) -> RealJob:
    """A running job."""
    stack.up()
    return RealJob(stack, topic, tmp_path)


def asked(stack: Stack, path: str) -> Any:
    page = stack.millstream.ok("status", "-o", "json").json["page"].partition("#")[0]
    request = urllib.request.Request(
        f"{page}{path}", headers={"Authorization": f"Bearer {stack.folder.token()}"}
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read())
    except urllib.error.HTTPError as error:
        said = (stack.folder.path / "console.out").read_text()[-3000:]
        raise AssertionError(f"{path}: {error.code} {error.read()!r}\n{said}") from error


@pytest.mark.timeout(900)
def test_a_job_killed_and_frozen_is_back_in_seconds_and_counts_every_row_once(
    job: RealJob, capsys: pytest.CaptureFixture[str]
) -> None:
    stack, name = job.stack, job.topic
    job.send()
    job.send()
    job.await_left()

    def kill() -> None:
        holder = stack.holder(name)
        assert holder is not None
        holder.kill()

    def kill_both() -> None:
        stack.kill_supervisor()
        kill()

    seconds = {"killed": job.hurt(kill)}
    job.await_left()
    seconds["frozen"] = job.hurt(lambda: stack.freeze(name))
    job.await_left()
    seconds["killed with the supervisor"] = job.hurt(kill_both)
    job.await_left()
    with capsys.disabled():
        times = ", ".join(f"{how} {s:.1f} s" for how, s in seconds.items())
        print(f"\n  back after being {times}")

    assert job.left() == job.expected()
    assert len(stack.processes(name)) == 1
    assert stack.job(name).restarts == 3
    _check_reports(job)

    stack.millstream.ok("jobs", "stop", name)
    assert stack.holder(name) is None
    [table] = asked(stack, f"api/jobs/{name}/results")
    assert [(row["window_start"], row["n"]) for row in table["rows"]] == job.expected()


def _check_reports(job: RealJob) -> None:
    """The open window by key, from the command and over HTTP; the totals; the metrics."""
    stack, name = job.stack, job.topic
    state = asked(stack, f"api/jobs/{name}/state/{quote('tumbling(auction)')}?key=7")
    [row] = state["rows"]
    assert (row["auction"], row["n"]) == (7, 3)
    said = stack.millstream.ok("state", "show", name, "tumbling(auction)", "--key", "auction=7",
                               "-o", "json")  # fmt: skip
    assert said.json["rows"][0]["n"] == 3
    rows = 3 * (len(job.expected()) + 1)
    [listed] = asked(stack, "api/jobs")
    until(lambda: asked(stack, "api/jobs")[0]["spark_ui"], "the address of Spark's own page")
    [shown] = [line for line in stack.millstream.ok("jobs", "show", name).out.splitlines()
               if line.startswith("spark ui")]  # fmt: skip
    with urllib.request.urlopen(f"{shown.split()[-1]}/api/v1/applications", timeout=60) as answer:
        assert [application["name"] for application in json.loads(answer.read())] == [name]
    places = {commit["where"] for commit in asked(stack, f"api/jobs/{name}/commits")["commits"]}
    assert places <= {"bridge", "spark"}
    until(lambda: asked(stack, "api/jobs")[0]["rows"] == rows, f"{rows} rows reported", 30)
    step = asked(stack, f"api/jobs/{name}")["steps"]["tumbling(auction)"]
    assert (step["in"], step["out"]) == (rows, len(job.expected()))
    assert listed["version"]
    until(lambda: asked(stack, "api/jobs")[0]["lag"] == 0, "no lag", 30)
