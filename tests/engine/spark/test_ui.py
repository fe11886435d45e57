"""Spark's own page: on by default, on this machine only, and off by Spark's own setting."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
import urllib.request
import uuid
from typing import TYPE_CHECKING, Any, Literal, cast

import pytest

import millstream as ms
from millstream.engine.job import Job
from millstream.engine.spark.session import Spark, ui_address

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from millstream.api.pipeline import EngineName

SHOWN = """
from millstream.engine.spark.session import session, ui_address

spark = session()
print(ui_address(spark))
spark.stop()
"""


def twos(engine: EngineName) -> ms.Pipeline:
    numbers = ms.read(ms.Memory([{"n": 1}, {"n": 2}]))
    return ms.Pipeline("twos", numbers.where("n > 1").to(ms.Memory()), engine=engine)


def test_it_is_on_and_listens_on_the_loopback(spark: SparkSession) -> None:
    address = Spark.of(spark).spark_ui

    assert address is not None
    assert address.startswith("http://127.0.0.1:")
    with urllib.request.urlopen(f"{address}/api/v1/applications", timeout=60) as answer:
        assert answer.status == 200


def test_it_has_no_address_before_spark_has_started(spark: SparkSession) -> None:
    starting = Spark(lambda: spark)
    assert starting.spark_ui is None
    starting.get()
    assert starting.spark_ui == ui_address(spark)


@pytest.mark.parametrize("engine", ["spark", "driver"])
def test_a_job_knows_it_unless_the_driver_runs_it(engine: EngineName, spark: SparkSession) -> None:
    job = Job(twos(engine), until="finished")
    assert job.spark_ui is None
    job.run()

    assert job.spark_ui == (ui_address(spark) if engine == "spark" else None)


@pytest.mark.parametrize("by", ["the words of spark-submit", "a file"])
def test_it_is_off_where_sparks_own_setting_says_so(by: str, tmp_path: Path) -> None:
    environment = dict(os.environ)
    if by == "a file":
        (tmp_path / "spark-defaults.conf").write_text("spark.ui.enabled  false\n")
        environment["SPARK_CONF_DIR"] = str(tmp_path)
    else:
        environment["PYSPARK_SUBMIT_ARGS"] = "--conf spark.ui.enabled=false pyspark-shell"

    done = subprocess.run([sys.executable, "-c", SHOWN], capture_output=True, text=True,
                          timeout=240, check=False, env=environment)  # fmt: skip

    assert (done.returncode, done.stdout.strip()) == (0, "None"), done.stderr


def jobs_of(spark: SparkSession, pipeline: str) -> list[dict[str, Any]]:
    """The jobs of a pipeline, by Spark's REST API, each with the details of its last stage."""
    address = f"{ui_address(spark)}/api/v1/applications/{spark.sparkContext.applicationId}"
    with urllib.request.urlopen(f"{address}/jobs", timeout=60) as answer:
        jobs = [job for job in json.load(answer) if job.get("description", "").startswith(pipeline)]
    for job in jobs:
        with urllib.request.urlopen(f"{address}/stages/{job['stageIds'][-1]}", timeout=60) as found:
            job["details"] = json.load(found)[0]["details"]
    return jobs


@pytest.mark.parametrize(("lane", "condition"), [
    ("narrow", "n > 1"), ("narrow", "abs(n) > 1"), ("wide", "n > 1"), ("wide", "abs(n) > 1"),
])  # fmt: skip
def test_a_job_shows_the_step_and_the_line_on_which_it_was_written(
    lane: Literal["narrow", "wide"], condition: str, spark: SparkSession
) -> None:
    """With SQL that Arrow runs, and with SQL that Spark runs."""
    name = f"counted-{uuid.uuid4().hex[:8]}"
    numbers = ms.read(ms.Memory([{"n": -2}, {"n": 2}], schema="n int"))
    counts = numbers.where(condition).distinct(by="n")  # the line of the step
    job = Job(ms.Pipeline(name, counts.to(ms.Memory())), until="finished", lane=lane)
    job.run()

    lines = inspect.getsource(sys.modules[__name__]).splitlines()
    line = next(at for at, text in enumerate(lines, 1) if text.endswith("# the line of the step"))
    jobs = jobs_of(spark, f"{name} · batch ")
    assert jobs
    for found in jobs:
        assert found["name"].endswith(f" at test_ui.py:{line}"), found
        assert found["details"].endswith(f" at {__file__}:{line}"), found


def test_jobs_of_the_users_own_keep_their_call_site(spark: SparkSession) -> None:
    spark.sparkContext.setJobDescription("one of mine")
    spark.sparkContext.parallelize([1, 2]).sum()
    spark.sparkContext.setLocalProperty("spark.job.description", cast("str", None))

    [found] = jobs_of(spark, "one of mine")
    assert found["name"].startswith("sum at ")
    assert "test_ui.py:" in found["name"]
