"""kill -9 in the middle of clean-up, and while segments are made: nothing lost, nothing twice.

A process runs a pipeline over files into SQLite, with a pass of clean-up after every second batch.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from tests.faults.running import kill_when_held, search_path

from millstream.engine.checkpoint.fault_points import CLEAN_UP
from millstream.engine.inspection.inspect import open_checkpoint

if TYPE_CHECKING:
    from pathlib import Path

JOB = """
import json, os, sys
import millstream as ms
from millstream.engine.checkpoint import housekeeping
from millstream.engine.job import Job

housekeeping.SWEEP_EVERY, housekeeping.COMPACT_BYTES = 2, 0
folder, endless = sys.argv[1], sys.argv[2] == "endless"
source = ms.Files(folder + "/in", format="json", schema="key long, ts timestamp")
rows = ms.read(source, time="ts", watermark="5 seconds", idle=None)
panes = rows.by("key").window(ms.tumbling("10 seconds")).agg(n=ms.count())
counts = rows.by("key").agg(n=ms.count())
pipeline = ms.Pipeline(
    "job",
    panes.to(ms.Sqlite(folder + "/out.db", "panes")),
    counts.to(ms.Sqlite(folder + "/out.db", "counts", key="key")),
    engine="driver",
)


def feed(*batch):
    fed = len(os.listdir(folder + "/in"))
    rows = [{"key": k, "ts": f"2026-01-01T{fed // 60:02d}:{fed % 60:02d}:00Z"} for k in range(5)]
    with open(folder + "/draft", "w") as file:
        file.writelines(json.dumps(row) + "\\n" for row in rows)
    os.rename(folder + "/draft", f"{folder}/in/{fed:05d}.json")


if endless:
    feed()
Job(pipeline, until=None if endless else "finished", checkpoint=folder + "/checkpoint",
    on_batch=feed if endless else None).run()
"""


def run(folder: Path, *, kill_at: str | None = None) -> None:
    """Run the job to its finish; or let it feed itself, and kill it at a point."""
    hold = folder / "hold"
    if kill_at is not None:
        (hold / f"{kill_at}@*").touch()
    process = subprocess.Popen(
        [sys.executable, folder / "job.py", folder, "finish" if kill_at is None else "endless"],
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": search_path(), "MILLSTREAM_HOLD": str(hold)},
    )
    with process:
        if kill_at is not None:
            kill_when_held(process, hold, kill_at)
            return
        said = process.communicate(timeout=120)[1]
    assert process.returncode == 0, said


def rows(folder: Path, table: str) -> Counter[tuple[int, ...]]:
    store = sqlite3.connect(folder / "out.db")
    found = Counter(store.execute(f"select key, n from {table}").fetchall())
    store.close()
    return found


@pytest.mark.timeout(600)
def test_a_job_killed_at_each_step_of_clean_up_loses_and_repeats_nothing(tmp_path: Path) -> None:
    for part in ("in", "hold"):
        (tmp_path / part).mkdir()
    (tmp_path / "job.py").write_text(JOB)
    for point in CLEAN_UP:
        run(tmp_path, kill_at=point)
    fed = len(list((tmp_path / "in").iterdir()))
    assert fed > 2 * len(CLEAN_UP)
    run(tmp_path)

    assert rows(tmp_path, "counts") == Counter({(key, fed): 1 for key in range(5)})
    assert rows(tmp_path, "panes") == Counter({(key, 1): fed for key in range(5)})
    checkpoint = open_checkpoint(tmp_path / "checkpoint")
    commits = checkpoint.lineage()
    assert [checkpoint.head(number).batch for number in commits] == commits
    assert len(list((tmp_path / "checkpoint" / "segments").iterdir())) < 40
