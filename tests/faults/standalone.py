"""A local Spark cluster: a master, and a worker for each of several hosts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
from tests.faults.running import search_path, until

from millstream.toolchain.java import find_java, spark_java_home

if TYPE_CHECKING:
    from collections.abc import Iterator

_HOME = Path(pyspark.__file__).parent


@contextmanager
def cluster(folder: Path, *hosts: str) -> Iterator[str]:
    """Start a cluster with one core per host; yields its address and stops it afterwards."""
    folder.mkdir()
    with ExitStack() as stack:
        log = folder / "master.log"
        stack.enter_context(
            _serving("master.Master", log, "--host", hosts[0], "--port", "0", "--webui-port", "0")
        )
        found = until(lambda: re.search(r"spark://[\w.]+:\d+", log.read_text()), "a Spark master")
        for host in hosts:
            log = folder / f"{host}.log"
            stack.enter_context(
                _serving("worker.Worker", log, "--host", host, "--cores", "1", "--memory", "1g",
                         "--webui-port", "0", "--work-dir", str(folder / host), found[0])
            )  # fmt: skip
            until(partial(_says, log, "Successfully registered"), "a Spark worker")
        yield found[0]


def _says(log: Path, words: str) -> bool:
    return words in log.read_text()


@contextmanager
def _serving(what: str, log: Path, *words: str) -> Iterator[None]:
    """A Spark daemon process that runs within the block."""
    java = spark_java_home(find_java()) / "bin" / "java"
    command = [str(java), "-Xmx256m", "-cp", f"{_HOME}/jars/*", f"org.apache.spark.deploy.{what}"]
    environment = {"SPARK_HOME": str(_HOME), "SPARK_SCALA_VERSION": "2.13",
                   "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": search_path()}  # fmt: skip
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, *words], stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            env={**os.environ, **environment},
        )  # fmt: skip
    try:
        yield
    finally:
        process.kill()
        process.wait()
