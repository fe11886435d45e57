"""Reading a checkpoint from which a running job removes old records."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.faults.record_files import RecordFile
from tests.faults.small_world import Small

import millstream as ms
from millstream.engine.inspection.inspect import ReadOnlyCheckpoint, commits, of_key, states
from millstream.errors import Damaged
from millstream.testing import Drive

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from millstream.operators.windows.trigger import Each


class Swept(ReadOnlyCheckpoint):
    """Lists a commit that is removed before it is read, the first time."""

    listed = 0

    def batches(self, kind: str) -> list[int]:
        self.listed += 1
        found = super().batches(kind)
        return [*found, 99] if self.listed == 1 else found


@pytest.fixture
def folder(tmp_path: Path, spark: SparkSession) -> Path:
    """A checkpoint with one batch, and a later run."""
    job = Small(tmp_path / "checkpoint", spark)
    job.feed()
    job.step()
    with job.run():
        pass
    return job.folder


def test_a_removed_commit_is_not_reported_as_damaged(folder: Path) -> None:
    assert [row["batch"] for row in commits(Swept(folder))] == [1]
    assert states(Swept(folder)).batch == 1


def test_a_damaged_commit_is_reported(folder: Path) -> None:
    RecordFile.of(folder, 1, "commit").replace(lambda record: record.replace(b"batch", b"botch"))
    with pytest.raises(Damaged):
        commits(ReadOnlyCheckpoint(folder))
    with pytest.raises(Damaged):
        states(ReadOnlyCheckpoint(folder))


@pytest.mark.parametrize("early", [None, ms.each(2)], ids=["on time only", "early"])
def test_the_state_of_a_session_is_readable_with_and_without_early_panes(
    tmp_path: Path, spark: SparkSession, early: Each | None
) -> None:
    rows = [{"k": "a", "v": n, "ts": f"2026-01-01 00:00:0{n}"} for n in range(3)]
    source = ms.Memory(rows, schema="k string, v long, ts timestamp")
    stream = ms.read(source, time="ts").by("k").window(ms.session(gap="5 seconds"))
    shown = stream.trigger(early=early).agg(n=ms.count(), name="visits")
    out = ms.Sqlite(tmp_path / "out.db", "visits", key="k")
    pipeline = ms.Pipeline("visits", shown.to(out))
    pipeline.run(until="caught_up", checkpoint=tmp_path / "checkpoint")

    found = of_key(ReadOnlyCheckpoint(tmp_path / "checkpoint"), "visits", {"k": "a"})

    assert [row["n"] for row in found.steps] == [3]


def test_the_state_of_a_window_has_no_rows_that_it_would_retract(spark: SparkSession) -> None:
    source = ms.Topic("visits", schema="k string, ts timestamp")
    counted = ms.read(source, time="ts").by("k").window(ms.rows(100)).trigger(early=ms.each(2))
    out = counted.agg(n=ms.count(), name="counts").to(ms.Topic("counts"))
    with Drive(ms.Pipeline("counts", out)) as drive:
        for seconds in ((5, 6), (1,)):
            drive.feed("visits", [{"k": "a", "ts": f"2026-01-01 00:00:0{s}"} for s in seconds])
            drive.step()

        found = of_key(ReadOnlyCheckpoint(drive._folder / "checkpoint"), "counts", {"k": "a"})

    assert [row["n"] for row in found.steps] == [3]
