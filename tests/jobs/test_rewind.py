"""`millstream jobs rewind`: stopped, rewound, started again."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

from tests.cli.bids import lines, pipeline_file
from tests.jobs.stacks import Stack, until

from millstream.engine.inspection.inspect import open_checkpoint
from millstream.jobs.registry import JobRegistry

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

IN_ITS_PROCESS = """
import os, time

if "MILLSTREAM_RUN" in os.environ:
    time.sleep(3600)
"""


def test_a_job_is_stopped_rewound_and_started_again(
    stack: Stack, spark: SparkSession, topic: str, tmp_path: Path
) -> None:
    file, job = pipeline_file(tmp_path, topic), tmp_path / "job"
    millstream = stack.millstream
    millstream.ok("topics", "create", topic)
    millstream.ok("produce", topic, stdin=lines([1, 2, 11]))
    millstream.ok("run", file, "--checkpoint", str(job), "--until", "caught-up")
    (tmp_path / "hot.py").write_text((tmp_path / "hot.py").read_text() + IN_ITS_PROCESS)
    page = stack.up()
    millstream.ok("jobs", "submit", file, "--checkpoint", str(job), "--no-wait")
    first = until(lambda: stack.job(topic).run and stack.holder(topic), "its process")

    said = millstream.ok("jobs", "rewind", topic, "--to", "start", "--again", "--no-wait").err
    assert f"{topic} is back at the start, with the same outputs" in said
    assert [row["lane"] for row in _commits(stack, job)] == ["narrow", "rewind"]
    until(lambda: (now := stack.holder(topic)) is not None and now.pid != first.pid, "the next")
    assert open_checkpoint(job).head().sources == {}

    millstream.ok("jobs", "stop", topic)
    refused = millstream("jobs", "rewind", topic, "--to", "7", "--again")
    assert refused.code == 4
    assert stack.job(topic).wanted == "stopped"

    url = f"{page}api/jobs/{topic}/rewind"
    status, answer = posted(stack, url, {"to": "7", "again": True})
    assert (status, answer["error"]) == (404, refused.err.strip().removeprefix("error: "))
    status, answer = posted(stack, url, {"to": "start", "into": "-2"})
    assert status == 200, answer
    messages = " ".join(answer["messages"])
    assert f"{topic} is back at the start, into outputs that end in -2" in messages
    assert [row["lane"] for row in _commits(stack, job)] == ["narrow", "rewind", "rewind"]
    with JobRegistry(stack.folder.registry, read_only=True) as registry:
        events = [event.event for event in registry.events(topic)]
    assert events[-1] == "rewound"


def posted(stack: Stack, url: str, wish: dict[str, object]) -> tuple[int, dict[str, Any]]:
    """The response of the page's server to a rewind request."""
    headers = {
        "Authorization": f"Bearer {stack.folder.token()}",
        "Content-Type": "application/json",
    }
    request = urllib.request.Request(url, json.dumps(wish).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=280) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        answer = json.loads(error.read())
        if error.code == 500:
            answer["console"] = (stack.folder.path / "console.out").read_text()[-4000:]
        return error.code, answer


def _commits(stack: Stack, job: Path) -> list[dict[str, str]]:
    found: list[dict[str, str]] = stack.millstream.ok(
        "commits", "--checkpoint", str(job), "-o", "json"
    ).json
    return found
