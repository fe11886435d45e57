"""Each example, started as a user would, runs on Spark: Spark's own REST API is asked."""

from __future__ import annotations

import json
import os
import runpy
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

import millstream as ms
from millstream.engine.inspection.inspect import open_checkpoint
from millstream.plan.stages import cut
from millstream.sources.kafka.topic import Topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from millstream.testing.local_broker import ThrowAwayBroker

ROOT = Path(__file__).parents[2]
EXAMPLES = ["hot_auctions.py", "click_through.py", "tax_rate.py", "home_timelines.py"]
PATIENCE = 120.0
ENOUGH = 6  # batches on Spark


def pipeline_in(file: Path) -> ms.Pipeline:
    """The one pipeline of an example."""
    [found] = {value for value in runpy.run_path(str(file)).values()
               if isinstance(value, ms.Pipeline)}  # fmt: skip
    return found


def topics_of(pipeline: ms.Pipeline) -> list[Topic]:
    """The topics it reads."""
    reads = cut(pipeline.outputs).reads.values()
    return [read.source for read in reads if isinstance(read.source, Topic)]


def row(topic: Topic, number: int) -> dict[str, Any]:
    """A row of a topic's schema."""
    values = {"string": f"k{number % 5}", "timestamp": datetime.now(UTC).isoformat(),
              "double": float(number), "boolean": True}  # fmt: skip
    return {field.name: values.get(field.type.ddl(), number % 5)
            for field in topic.row_schema().fields}  # fmt: skip


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def started(
    file: Path, broker: ThrowAwayBroker, folder: Path, port: int
) -> Iterator[subprocess.Popen[str]]:
    """`millstream run` on a file, with Spark's page on a port of the test."""
    command = [sys.executable, "-m", "millstream.cli.main", "run", str(file),
               "--kafka", broker.address, "--checkpoint", str(folder)]  # fmt: skip
    arguments = f"--conf spark.ui.port={port} pyspark-shell"
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, env={**os.environ, "PYSPARK_SUBMIT_ARGS": arguments},
    )  # fmt: skip
    try:
        yield process
    finally:
        process.terminate()
        print(process.communicate(timeout=60)[0][-3000:])


def ran_in(folder: Path) -> list[str]:
    """Where each committed batch ran."""
    if not (folder / "job").exists():
        return []
    checkpoint = open_checkpoint(folder)
    bodies = [checkpoint.read_commit(batch) for batch in checkpoint.batches("commit")]
    return [body["facts"]["where"] for body in bodies]


def jobs_of(port: int) -> list[dict[str, Any]]:
    """The jobs that Spark has run, by its REST API."""
    address = f"http://127.0.0.1:{port}/api/v1/applications"
    with urllib.request.urlopen(address, timeout=10) as answer:
        [application] = json.load(answer)
    with urllib.request.urlopen(f"{address}/{application['id']}/jobs", timeout=10) as answer:
        found: list[dict[str, Any]] = json.load(answer)
    return found


def feed(process: subprocess.Popen[str], pipeline: ms.Pipeline, address: str) -> Iterator[int]:
    """Send a row to every topic the pipeline reads, again and again while it runs."""
    deadline = time.monotonic() + PATIENCE
    with ms.Producer(address) as producer:
        for number in range(10_000):
            assert process.poll() is None, process.communicate()[0]
            assert time.monotonic() < deadline
            for topic in topics_of(pipeline):
                key = str(number % 5).encode()
                producer.send(topic.name, json.dumps(row(topic, number)).encode(), key=key)
            producer.flush()
            time.sleep(0.1)
            yield number


@pytest.fixture
def made(broker: ThrowAwayBroker) -> Iterator[Callable[[ms.Pipeline], None]]:
    """Makes the topics that a pipeline reads. Examples share names with documents: all topics of a
    test are deleted at its end."""
    topics = ms.Topics(broker.address)
    before = {topic.name for topic in topics.list()}

    def make(pipeline: ms.Pipeline) -> None:
        for topic in topics_of(pipeline):
            topics.create(topic.name, partitions=2, exists_ok=True)

    yield make
    for name in {topic.name for topic in topics.list()} - before:
        topics.delete(name)


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_runs_on_spark_once_it_has_started(
    example: str, broker: ThrowAwayBroker, tmp_path: Path, made: Callable[[ms.Pipeline], None]
) -> None:
    file, folder, port = ROOT / "examples" / example, tmp_path / "job", free_port()
    pipeline = pipeline_in(file)
    made(pipeline)
    with started(file, broker, folder, port) as process:
        for _ in feed(process, pipeline, broker.address):
            places = ran_in(folder)
            if places.count("spark") >= ENOUGH:
                break
        jobs = [job for job in jobs_of(port) if "batch" in job.get("description", "")]

    on_spark = places.count("spark")
    assert set(places[:-on_spark]) <= {"bridge"}
    assert len(jobs) >= on_spark
    assert all(job["status"] in ("SUCCEEDED", "RUNNING") for job in jobs)
    assert all(job["description"].startswith(f"{pipeline.name} · batch ") for job in jobs)
    assert all(job["numTasks"] == 1 for job in jobs)


def test_with_the_driver_as_its_engine_an_example_needs_no_java(
    broker: ThrowAwayBroker, tmp_path: Path, made: Callable[[ms.Pipeline], None]
) -> None:
    source = (ROOT / "examples" / "hot_auctions.py").read_text()
    file, folder = tmp_path / "hot.py", tmp_path / "job"
    file.write_text(source.replace('"hot-auctions", ', '"hot-driver", engine="driver", *[')
                    .replace('ms.Topic("hot")))', 'ms.Topic("hot"))])'))  # fmt: skip
    pipeline = pipeline_in(file)
    made(pipeline)
    with started(file, broker, folder, free_port()) as process:
        for _ in feed(process, pipeline, broker.address):
            if len(ran_in(folder)) >= ENOUGH:
                break
        children = psutil.Process(process.pid).children(recursive=True)

    assert set(ran_in(folder)) == {"driver"}
    assert [child for child in children if "java" in child.name()] == []
