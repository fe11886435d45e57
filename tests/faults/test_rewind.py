"""Rewind with every kind of sink, killed with -9 at each of its steps: nothing lost, nothing twice.

The results are compared with a count in plain Python.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from deltalake import DeltaTable
from pyarrow import parquet
from tests.faults.running import kill_when_held

import millstream as ms
from millstream.engine.inspection.inspect import open_checkpoint
from millstream.engine.recovery.unfinished_rewind import POINTS

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from millstream.testing.local_broker import ThrowAwayBroker

FILE = """
import millstream as ms

rows = ms.read(ms.Topic({topic!r}, schema="key long, ts timestamp"), time="ts", idle=None)
panes = rows.by("key").window(ms.tumbling("10 seconds")).agg(n=ms.count())
pane = ["key", "window_start"]
pipeline = ms.Pipeline(
    {name!r},
    panes.to(ms.Files({folder!r} + "/files")),
    panes.to(ms.Delta({folder!r} + "/delta"), name="delta"),
    panes.to(ms.Topic({name!r} + ".out")),
    panes.to(ms.Postgres("panes", key=pane, url={url!r}), name="postgres"),
    panes.to(ms.Sqlite({folder!r} + "/panes.db", "panes", key=pane), name="sqlite"),
    panes.to(ms.Delta({folder!r} + "/keyed", key=pane), name="keyed"),
)
"""
START = datetime(2026, 1, 1, tzinfo=UTC)
Pane = tuple[int, datetime, int]


@dataclass
class Job:
    """A pipeline in a file, its input, and its results."""

    kafka: str
    topic: str
    name: str
    folder: Path
    url: str
    fed: int = 0

    @property
    def file(self) -> Path:
        return self.folder / "job.py"

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    def write(self) -> None:
        names = {"topic": self.topic, "name": self.name, "folder": str(self.folder)}
        self.file.write_text(FILE.format(**names, url=self.url))

    def feed(self, seconds: int = 20) -> None:
        with ms.Producer(self.kafka) as producer:
            for second in range(self.fed, self.fed + seconds):
                ts = f"2026-01-01T00:00:{second:02d}Z"
                producer.send(self.topic, json.dumps({"key": second % 3, "ts": ts}).encode())
        self.fed += seconds

    def run(self, until: Any = "caught_up") -> None:
        found: dict[str, Any] = {}
        exec(self.file.read_text(), found)
        found["pipeline"].run(until=until, kafka=self.kafka, checkpoint=self.checkpoint,
                              lane="narrow")  # fmt: skip

    def rewind(self, *words: str, hold: str | None = None) -> None:
        """Run `millstream rewind` in a separate process, and kill it at the point `hold`."""
        place = self.folder / "hold"
        place.mkdir(exist_ok=True)
        if hold is not None:
            (place / f"{hold}@*").touch()
        command = [sys.executable, "-m", "millstream.cli.main", "rewind", str(self.file), *words,
                   "--kafka", self.kafka, "--checkpoint", str(self.checkpoint)]  # fmt: skip
        with subprocess.Popen(
            command, env={**os.environ, "MILLSTREAM_HOLD": str(place)}, stderr=subprocess.PIPE
        ) as process:
            if hold is not None:
                kill_when_held(process, place, hold)
                return
            output = process.communicate(timeout=120)[1]
        assert process.returncode == 0, output

    def oracle(self) -> Counter[Pane]:
        """The panes of the input, each once."""
        counts: Counter[tuple[int, int]] = Counter((s % 3, s // 10) for s in range(self.fed))
        return Counter(
            {(key, START + timedelta(seconds=10 * ten), n): 1 for (key, ten), n in counts.items()}
        )

    def tables(self, suffix: str = "") -> dict[str, Counter[Pane]]:
        """The panes in every sink that is not a topic, each with its count."""
        files = [parquet.ParquetFile(p).read()
                 for p in (self.folder / f"files{suffix}").glob("*.parquet")]  # fmt: skip
        found: dict[str, list[Any]] = {"files": [r for t in files for r in t.to_pylist()]}
        for name in ("delta", "keyed"):
            table = DeltaTable(str(self.folder / f"{name}{suffix}"))
            found[name] = table.to_pyarrow_table().to_pylist()
        columns = "key, window_start, n"
        names = columns.split(", ")
        with psycopg.connect(self.url) as database:
            rows = database.execute(f'select {columns} from "panes{suffix}"').fetchall()
        found["postgres"] = [dict(zip(names, row, strict=True)) for row in rows]
        store = sqlite3.connect(self.folder / "panes.db")
        rows = store.execute(f'select {columns} from "panes{suffix}"').fetchall()
        store.close()
        found["sqlite"] = [dict(zip(names, row, strict=True)) for row in rows]
        return {name: Counter(map(_pane, rows)) for name, rows in found.items()}

    def sent(self, suffix: str = "") -> tuple[Counter[Pane], Counter[Pane]]:
        """The rows of the topic: those sent once, and those marked as sent again."""
        once: Counter[Pane] = Counter()
        again: Counter[Pane] = Counter()
        for record in ms.Consumer(f"{self.name}.out{suffix}", kafka=self.kafka, until_end=True):
            marked = "millstream.again" in dict(record.headers)
            (again if marked else once)[_pane(json.loads(record.value or b""))] += 1
        return once, again


def _pane(row: dict[str, Any]) -> Pane:
    at = row["window_start"]
    at = datetime.fromisoformat(at) if isinstance(at, str) else at
    return row["key"], at.astimezone(UTC), row["n"]


@pytest.fixture
def job(
    broker: ThrowAwayBroker, spark: SparkSession, database: str, topic: str, tmp_path: Path
) -> Job:
    """A job with three committed batches and six sinks."""
    job = Job(broker.address, topic, f"job-{topic[-8:]}", tmp_path, database)
    job.write()
    ms.Topics(job.kafka).create(topic)
    for _ in range(3):
        job.feed()
        job.run()
    return job


def test_a_rewind_of_the_same_sinks_killed_at_each_step_loses_and_doubles_nothing(job: Job) -> None:
    target = open_checkpoint(job.checkpoint).batches("commit")[0]
    before = job.sent()[0]
    for point in POINTS:  # each rewind first completes the killed one
        job.rewind("--to", str(target), "--again", hold=point)
    first = job.tables()
    assert first["files"] == first["delta"] == first["keyed"]
    assert set(first["files"]) < set(before)
    job.run("finished")

    wanted = job.oracle()
    assert dict(job.tables()) == dict.fromkeys(first, wanted)
    once, again = job.sent()
    assert once == wanted
    assert again
    assert set(again) < set(before)
    assert set(again.values()) == {1}


def test_new_outputs_of_a_killed_rewind_equal_those_of_a_fresh_run(job: Job) -> None:
    old = job.tables(), job.sent()
    for point in ("after rewind", "a sink was rewound"):
        job.rewind("--to", "start", "--into", "-2", hold=point)
    job.run("finished")

    assert dict(job.tables("-2")) == dict.fromkeys(old[0], job.oracle())
    assert job.sent("-2") == (job.oracle(), Counter())
    assert (job.tables(), job.sent()) == old
