"""Commits, watermarks, late and dead rows of a real pipeline, read over the API."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from tests.cli.bids import lines, pipeline_file

from millstream.cli.job_process import about_run
from millstream.cli.terminal.pipelines import load
from millstream.engine.dead_letters.rows import Selection
from millstream.engine.dead_letters.topic import TopicDeadLetters
from millstream.engine.inspection.inspect import open_checkpoint
from millstream.jobs.registry import JobRegistry
from millstream.jobs.reports.run_log import RunLog
from millstream.kafka.admin.topics import Topics
from millstream.kafka.clients.producing.producer import Producer
from millstream.kafka.settings import Cluster
from millstream.sinks.kafka.messages import ENVELOPE

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession
    from tests.console.serving import Served

    from millstream.testing.local_broker import ThrowAwayBroker

NAME = "past-job"
ORIGIN = {"source": "s", "partition": 0, "offset": 0, "index": 0}
FORGED: dict[str, object] = {"step": "x" * 9_000, "reason": "late", "watermark": None,
                             "windows": None, "origin": ORIGIN, "row": "{"}  # fmt: skip
MARK: dict[str, object] = {"format": 1, "what": "dropped", "source": NAME, "id": None,
                           "partition": 0, "offsets": [[0, 1]], "at": 0}  # fmt: skip
CHANGES: list[dict[str, object]] = [{}, {"windows": [{"start": 1}]}, {"origin": []}]


@pytest.fixture(scope="module")
def past(
    kafka_console: Served,
    broker: ThrowAwayBroker,
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
) -> Served:
    """A job of two batches: the second has two late rows and three dead ones."""
    folder = tmp_path_factory.mktemp("past")
    cluster, checkpoint = Cluster(broker.address), folder / "job"
    loaded, pipeline = load(pipeline_file(folder, NAME))
    Topics(cluster).create(NAME)
    bad = ["no json", '{"auction": "x"}', "<script>alert(1)</script>"]
    batches = [lines([1, 2, 11]).splitlines(), [*lines([25, 3, 4]).splitlines(), *bad]]
    for rows in batches:
        with Producer(cluster) as producer:
            for row in rows:
                producer.send(NAME, row)
        pipeline.run(until="caught_up", kafka=cluster, checkpoint=checkpoint)
    job = kafka_console.add_job(NAME, checkpoint=str(checkpoint), batches=0,
                                about=about_run(loaded, pipeline, cluster, checkpoint))  # fmt: skip
    looked = open_checkpoint(checkpoint)
    run_log = RunLog(kafka_console.folder.job(NAME).run_log, "r2", 2)
    for number in looked.batches("commit"):
        commit = looked.read_commit(number)
        run_log.batch(commit["facts"], commit["clock"] / 1e6)
    run_log.beat(0.0, None)
    run_log.close()
    assert job.pipeline == NAME
    return kafka_console


def asked(console: Served, path: str) -> Any:
    answer = console(f"/api/jobs/{NAME}/{path}")
    assert answer.status == 200, answer.body
    return answer.json


def test_commits_are_those_of_the_checkpoint_and_can_be_paged(past: Served) -> None:
    whole = asked(past, "commits")
    assert [(one["batch"], one["rows"], one["late"], one["dead"]) for one in whole["commits"]] == [
        (1, 3, 0, 0), (2, 6, 2, 3),
    ]  # fmt: skip
    assert {one["reachable"] for one in whole["commits"]} == {True}
    assert (whole["earlier"], whole["suffix"]) == (None, "")
    last = asked(past, "commits?last=1")
    assert ([one["batch"] for one in last["commits"]], last["earlier"]) == ([2], 2)
    first = asked(past, f"commits?last=2&before={last['earlier']}")
    assert ([one["batch"] for one in first["commits"]], first["earlier"]) == ([1], None)


def test_a_job_without_a_checkpoint_has_no_commits(past: Served) -> None:
    past.add_job("fresh")
    assert past("/api/jobs/fresh/commits").json["commits"] == []
    assert past("/api/jobs/fresh/late").json["rows"] == []
    assert past("/api/jobs/nobody/commits").status == 404


def test_each_batch_has_its_watermark_and_how_far_behind_it_was(past: Served) -> None:
    history = asked(past, "watermarks")
    assert history["sources"] == [NAME]
    points = history["points"]
    assert [point["batch"] for point in points] == [1, 2]
    assert [point["watermarks"][NAME] for point in points] == [
        f"2026-01-01T00:00:{second}+00:00" for second in (11, 25)
    ]
    assert all(point["delay"][NAME] > 0 for point in points)
    assert [point["batch"] for point in asked(past, "watermarks?last=1")["points"]] == [2]


def test_late_rows_have_their_windows_and_their_origin(past: Served) -> None:
    page = asked(past, "late")
    topic = f"{NAME}.late"
    assert (page["topic"], page["topics"], page["other_sinks"]) == (topic, [topic], [])
    assert [row["origin"] for row in page["rows"]] == [
        {"source": NAME, "partition": 0, "offset": offset, "index": 0} for offset in (4, 5)
    ]
    row = page["rows"][0]
    assert (row["step"], row["reason"]) == ("tumbling(auction)", "late")
    assert row["windows"] == [
        {"start": "2026-01-01T00:00:00.000000Z", "end": "2026-01-01T00:00:10.000000Z"}
    ]
    assert json.loads(row["row"]["text"])["ts"] == "2026-01-01T00:00:03.000000Z"
    assert asked(past, "late?step=other")["rows"] == []
    assert past(f"/api/jobs/{NAME}/late?topic=hot").status == 404


def test_dead_rows_have_their_original_record_reason_and_state(
    past: Served, broker: ThrowAwayBroker
) -> None:
    page = asked(past, "dead")
    assert [row["record"]["value"]["text"] for row in page["rows"]] == [
        "no json", '{"auction": "x"}', "<script>alert(1)</script>",
    ]  # fmt: skip
    assert [(row["record"]["topic"], row["record"]["offset"]) for row in page["rows"]] == [
        (NAME, offset) for offset in (6, 7, 8)
    ]
    assert all(row["reason"] and row["step"] for row in page["rows"])
    last = asked(past, "dead?limit=1")
    assert [row["record"]["offset"] for row in last["rows"]] == [8]
    before = asked(past, f"dead?limit=1&before={quote(last['earlier'])}")
    assert [row["record"]["offset"] for row in before["rows"]] == [7]

    TopicDeadLetters(NAME, Cluster(broker.address)).drop(Selection(places=((0, 7),)))
    states = {row["record"]["offset"]: row["state"] for row in asked(past, "dead")["rows"]}
    assert states == {6: "waiting", 7: "dropped", 8: "waiting"}
    waiting = asked(past, "dead?state=waiting&at=beginning")["rows"]
    assert [row["record"]["offset"] for row in waiting] == [6, 8]
    assert past(f"/api/jobs/{NAME}/dead?state=gone").status == 400


def test_foreign_records_in_the_topics_are_counted_or_bounded(
    past: Served, broker: ThrowAwayBroker
) -> None:
    with Producer(broker.address) as producer:
        for change in CHANGES:
            producer.send(f"{NAME}.late", {**FORGED, **change})
        producer.send(f"{NAME}.late", b"[" * 100_000)
        producer.send(f"{NAME}.dead", b"no envelope")
        producer.send(f"{NAME}.dead", b"x", headers=[(f"millstream.{word}", b"9" * 5_000)
                                                     for word in ENVELOPE])  # fmt: skip
        for mark in (b"", b"no mark", b"[]", b"[" * 100_000, {"format": 1, "offsets": 5},
                     {**MARK, "offsets": [[0, 10**15]]}, {**MARK, "offsets": [[9, 0], [0, 9]]},
                     {**MARK, "what": "blessed"}):  # fmt: skip
            producer.send(f"{NAME}.dead.done", mark)
    late, dead = asked(past, "late"), asked(past, "dead")
    assert (late["unreadable"], len(late["rows"])) == (3, 3)
    assert len(late["rows"][-1]["step"]) <= 1_024
    assert (dead["unreadable"], len(dead["rows"])) == (2, 3)
    assert sorted(row["state"] for row in dead["rows"]) == ["dropped", "waiting", "waiting"]


def test_topics_say_which_job_reads_and_writes_them(past: Served) -> None:
    rows = {row["topic"]: row for row in past("/api/topics").json}
    assert rows[NAME]["read_by"] == [NAME]
    assert rows[f"{NAME}.late"]["written_by"] == rows[f"{NAME}.dead"]["written_by"] == [NAME]


def test_a_rewind_that_fails_answers_with_its_error_and_is_in_the_jobs_history(
    past: Served, tmp_path: Path
) -> None:
    body = json.dumps({"to": "start", "again": True}).encode()
    refused = past(f"/api/jobs/{NAME}/rewind", "POST", body=body)
    assert refused.status in (400, 404, 503)
    with JobRegistry(past.folder.registry, read_only=True) as registry:
        events = [(event.event, event.detail) for event in registry.events(NAME)][-2:]
    assert events == [("rewind requested", "--to=start --again"),
                      ("rewind failed", refused.json["error"])]  # fmt: skip
