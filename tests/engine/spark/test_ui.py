"""Spark's own page: on by default, on this machine only, and off by Spark's own setting."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from typing import TYPE_CHECKING

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
