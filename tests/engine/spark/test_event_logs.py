"""Event logs for Spark's history server: the user's own settings, and jobs that can be read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from tests.faults.running import until

if TYPE_CHECKING:
    from pathlib import Path

PIPELINE = """import millstream as ms

numbers = ms.read(ms.Memory([{"n": number} for number in range(50)]))
once = numbers.transform(lambda df: df.where("n > 9")).distinct(by="n")
pipeline = ms.Pipeline("logged", once.to(ms.Function(lambda rows, *_: None, name="nothing")))
"""


def jobs_in(folder: Path) -> list[dict[str, Any]]:
    """The jobs in the one event log of a folder, which its application has closed."""
    [log] = folder.glob("eventlog_v2_*")
    until(lambda: not list(log.glob("appstatus_*.inprogress")), "the end of the log", 120)
    [file] = log.glob("events_1_*")
    with pa.CompressedInputStream(pa.OSFile(str(file)), "zstd") as stream:
        events = [json.loads(line) for line in stream.read().decode().splitlines()]
    return [event for event in events if event["Event"] == "SparkListenerJobStart"]


def test_sparks_settings_for_event_logs_work_and_a_run_prints_the_address_of_the_ui(
    tmp_path: Path,
) -> None:
    file, logs = tmp_path / "logged.py", tmp_path / "logs"
    file.write_text(PIPELINE)
    logs.mkdir()
    settings = f"--conf spark.eventLog.enabled=true --conf spark.eventLog.dir=file://{logs}"
    done = subprocess.run(
        [sys.executable, "-m", "millstream.cli.main", "run", str(file), "--until", "finished",
         "--checkpoint", str(tmp_path / "job")],
        capture_output=True, text=True, timeout=300, check=False,
        env={**os.environ, "PYSPARK_SUBMIT_ARGS": f"{settings} pyspark-shell"},
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    said = done.stderr.splitlines()
    assert len([line for line in said if line.startswith("Spark UI: http://127.0.0.1:")]) == 1
    assert not [line for line in said if "· bridge ·" in line], "SQL of Spark waits for Spark"
    jobs = [job["Properties"] for job in jobs_in(logs)]
    described = [job for job in jobs if job["spark.job.description"].startswith("logged · batch ")]
    assert [job["spark.job.description"] for job in jobs if job not in described] == ["warm up"]
    assert len(described) >= 2
    assert {job["callSite.short"] for job in described} == {"distinct(n) at logged.py:4"}
