"""Secrets of a pipeline, of Kafka and of the page are in no response and no file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from millstream.cli.job_process import about_run
from millstream.cli.terminal.pipelines import load
from millstream.jobs.registry import JobRegistry
from millstream.jobs.stack import KAFKA
from millstream.kafka.settings import Cluster

if TYPE_CHECKING:
    from pathlib import Path

    from tests.console.serving import Served

CANARY = "canary-8f14e45f"
FILE = f"""import millstream as ms

bids = ms.read(ms.Topic("bids", schema="auction long, ts timestamp"), time="ts")
counts = (
    bids.by("auction").window(ms.tumbling("1 minute"))
    .late(rest=ms.Postgres("late", url="postgresql://ann:{CANARY}@db.example/shop"))
    .agg(n=ms.count())
)
pipeline = ms.Pipeline(
    "hot",
    counts.to(ms.Postgres("hot", key=["auction"], url="postgresql://ann:{CANARY}@db.example/s")),
    counts.to(ms.Webhook("https://hooks.example/{CANARY}", secret="${{env:HOOK_SECRET}}")),
)
"""


@pytest.fixture
def kept(console: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Served:
    """A job with secrets in its pipeline, on a cluster with a password."""
    monkeypatch.setenv("HOOK_SECRET", f"whsec_{CANARY}")
    monkeypatch.setenv("MILLSTREAM_KAFKA_SASL_PASSWORD", CANARY)
    (tmp_path / "hot.py").write_text(FILE)
    loaded, pipeline = load(str(tmp_path / "hot.py"))
    cluster = Cluster("127.0.0.1:1", {"sasl.password": CANARY})
    console.add_job(about=about_run(loaded, pipeline, cluster, tmp_path))
    with JobRegistry(console.folder.registry) as registry:
        registry.set(KAFKA, "127.0.0.1:1")
    return console


def test_no_answer_of_any_route_holds_a_secret(kept: Served) -> None:
    for method, path in kept.routes():
        if method == "GET" and not path.endswith(("stream", "follow")):
            answer = kept(path)
            assert CANARY.encode() not in answer.body, path
            assert kept.token.encode() not in answer.body, path


def test_the_plan_still_says_where_rows_go(kept: Served) -> None:
    job = kept("/api/jobs/hot").json
    text = json.dumps(job["plan"])
    assert "hooks.example" in text
    assert "***" in text
    late = kept("/api/jobs/hot/late").json
    assert late["topics"] == []
    assert len(late["other_sinks"]) == 1


def test_the_token_is_only_in_its_own_file(kept: Served, tmp_path: Path) -> None:
    kept("/api/jobs")
    kept("/api/jobs", token="guess")
    holding = [file.name for file in tmp_path.rglob("*")
               if file.is_file() and kept.token.encode() in file.read_bytes()]  # fmt: skip
    assert holding == ["token"]
