"""The API of jobs: shown, stopped, restarted, removed."""

from __future__ import annotations

import http.client
import json
import os
import re
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.console.serving import facts

from millstream.jobs.registry import JobRegistry
from millstream.jobs.reports.run_log import RunLog

if TYPE_CHECKING:
    from tests.console.serving import Served


def test_jobs_are_listed_with_their_metrics(console: Served) -> None:
    assert console("/api/jobs").json == []
    console.add_job()
    [job] = console("/api/jobs").json
    assert (job["job"], job["state"], job["application"], job["owner"]) == (
        "hot", "stopped", "shop", "ann",
    )  # fmt: skip
    assert (job["rows"], job["out"], job["late"], job["dead"]) == (300, 9, 3, 6)
    assert (job["checkpoint_files"], job["checkpoint_bytes"]) == (70, 3000)
    assert job["warnings"] == []
    full = facts(4)
    full["checkpoint"]["warning"] = "the disk of the checkpoint is nearly full"
    run_log = RunLog(console.folder.job("hot").run_log, "r2", 2)
    run_log.batch(full)
    run_log.beat(time.time(), {"bids": {0: 10}})
    run_log.close()
    assert console("/api/jobs").json[0]["warnings"] == [full["checkpoint"]["warning"]]


def test_the_page_of_spark_is_named_while_the_job_runs(console: Served) -> None:
    console.add_job(about={"spark_ui": "http://127.0.0.1:4041"}, places=("bridge", "spark"))
    assert console("/api/jobs/hot").json["spark_ui"] is None
    with os.fdopen(console.folder.job("hot").lock.take() or 0, "w") as held:
        print(os.getpid(), file=held, flush=True)
        job = console("/api/jobs/hot").json
    assert job["spark_ui"] == "http://127.0.0.1:4041"
    assert job["where"] == {"bridge": 1, "spark": 1}
    assert [batch["where"] for batch in job["batches_shown"]] == ["bridge", "spark"]


def test_one_job_is_described_in_full(console: Served) -> None:
    console.add_job()
    job = console("/api/jobs/hot").json
    assert [batch["batch"] for batch in job["batches_shown"]] == [1, 2, 3]
    assert {batch["where"] for batch in job["batches_shown"]} == {"driver"}
    assert job["batches_shown"][0]["phases"]["run"] == 0.1
    assert [step["step"] for step in job["plan"]["steps"]] == ["read bids", "tumbling(auction)"]
    step = job["steps"]["tumbling(auction)"]
    assert (step["in"], step["out"], step["late"], step["state_rows"]) == (300, 9, 3, 5)
    assert [event["event"] for event in job["events"]] == ["submitted"]


@pytest.mark.parametrize(
    ("path", "status", "sentence"),
    [
        ("/api/jobs/cold", 404, "there is no job named 'cold'; the jobs are hot"),
        ("/api/jobs/cold/log", 404, "there is no job named 'cold'"),
        ("/api/jobs/cold/stream", 404, "there is no job named 'cold'"),
        ("/api/jobs/hot/log?last=0", 400, "last needs a whole number from 1 to 5000; got '0'"),
        ("/api/jobs/hot/log?last=x", 400, "got 'x'"),
        ("/api/jobs/hot/state", 404, "needs a checkpoint"),
    ],
)
def test_an_invalid_request_gets_one_sentence(
    console: Served, path: str, status: int, sentence: str
) -> None:
    console.add_job()
    asked = console(path)
    assert asked.status == status
    assert sentence in asked.json["error"]


@pytest.mark.parametrize(
    ("method", "path", "wanted", "asked"),
    [
        ("POST", "/api/jobs/hot/stop", "stopped", 1),
        ("POST", "/api/jobs/hot/restart", "running", 2),
        ("DELETE", "/api/jobs/hot", "removed", 1),
    ],
)
def test_a_command_is_stored_in_the_registry(
    console: Served, method: str, path: str, wanted: str, asked: int
) -> None:
    console.add_job()
    assert console(path, method).status == 202
    with JobRegistry(console.folder.registry, read_only=True) as registry:
        job = registry.job("hot")
    assert (job.wanted, job.asked) == (wanted, asked)
    assert console(path.replace("hot", "cold"), method).status == 404


def test_a_command_with_the_wrong_method_does_nothing(console: Served) -> None:
    console.add_job()
    assert console("/api/jobs/hot/stop").status == 405


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/api/nothing", 404), ("GET", "/api/jobs/", 404), ("GET", "/api/jobs/a/b/c", 404),
     ("PUT", "/api/jobs", 405), ("GET", "/api/jobs/..%2f..%2fx/log", 404)],
)  # fmt: skip
def test_an_unknown_route_gets_one_sentence(
    console: Served, method: str, path: str, status: int
) -> None:
    asked = console(path, method)
    assert (asked.status, list(asked.json)) == (status, ["error"])


def test_the_log_is_returned_unchanged(console: Served) -> None:
    console.add_job()
    lines = [json.dumps({"event": f"e{number}"}) for number in range(5)]
    console.folder.job("hot").log.write_text("".join(f"{line}\n" for line in lines))
    assert console("/api/jobs/hot/log?last=2").body.decode().splitlines() == lines[-2:]


def test_every_route_is_in_the_openapi_document_and_the_document_holds_no_other(
    console: Served,
) -> None:
    document = console("/api/openapi.json").json
    assert document["openapi"].startswith("3.1")
    identities = []
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            identities.append(operation["operationId"])
            named = {p["name"] for p in operation["parameters"] if p["in"] == "path"}
            assert named == set(re.findall(r"{(\w+)}", path)), path
            filled = re.sub(r"{\w+}", "x", path)
            if not path.endswith("stream"):
                assert console(filled, method.upper()).status not in (404, 405) or named, path
            open_route = path in ("/healthz", "/readyz", "/metrics")
            assert operation["security"] == ([] if open_route else [{"token": []}])
    assert len(identities) == len(set(identities))


def test_health_is_about_this_process_and_readiness_about_the_jobs(console: Served) -> None:
    assert console("/healthz", token=None).status == 200
    ready = console("/readyz", token=None)
    assert (ready.status, ready.json["supervisor"]) == (503, False)


def read_events(console: Served, path: str, count: int) -> list[Any]:
    """The first `count` events of a stream."""
    connection = http.client.HTTPConnection("127.0.0.1", console.port, timeout=60)
    connection.request("GET", path, headers={"Authorization": f"Bearer {console.token}"})
    answer = connection.getresponse()
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    events: list[Any] = []
    while len(events) < count:
        line = answer.readline()
        if line.startswith(b"data: "):
            events.append(json.loads(line[6:]))
        if len(events) == 1 and line == b"\n":
            console.add_job(f"more-{len(events)}")
    connection.close()
    return events


def test_a_stream_sends_the_current_state_and_then_changes(console: Served) -> None:
    first, second = read_events(console, "/api/stream", 2)
    assert first == {"jobs": []}
    assert [job["job"] for job in second["jobs"]] == ["more-1"]


def test_an_unexpected_error_is_one_sentence_for_the_client_and_logged_in_full(
    console: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr("millstream.console.api.jobs.state", broken)
    asked = console("/api/jobs/hot/state")
    assert asked.status == 500
    assert "unexpected error" in asked.json["error"]
    assert b"secret" not in asked.body
    assert "secret detail" in caplog.text
