"""A checkpoint stays small however long its job runs, and clean-up loses nothing when it is killed.

The engine is the real one. Its clock is moved, so that a year passes in some seconds.
"""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from tests.engine.test_rewind import RecordingEnvironment
from tests.faults.small_world import TOPIC, Crash, Small, install_fault_points

import millstream as ms
from millstream.engine.checkpoint import cleaning, housekeeping
from millstream.engine.checkpoint.checkpoint import Checkpoint
from millstream.engine.checkpoint.cleaning import Sizes
from millstream.engine.checkpoint.fault_points import CLEAN_UP
from millstream.engine.checkpoint.filling import Filling
from millstream.engine.checkpoint.records import archive as archive_module
from millstream.engine.recovery.rewind import Rewinder
from millstream.errors import Damaged, Fenced, NotFound

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from millstream.engine.checkpoint.records.compaction import Stays
    from millstream.engine.checkpoint.records.segments import Part
    from millstream.engine.engine import Engine

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SECOND = 1_000_000
Patch = pytest.MonkeyPatch


def feed(job: Small, rows: int = 3) -> None:
    """Add rows of the job's present time."""
    fed = len(job.environment.log.records.get(TOPIC, {}).get(0, ()))
    now = EPOCH + timedelta(microseconds=job.environment.now)
    for place in range(fed, fed + rows):
        row = {"id": place, "key": place % 3, "amount": place, "ts": now.isoformat()}
        record = {"key": None, "value": json.dumps(row).encode(), "headers": None,
                  "timestamp": None}  # fmt: skip
        job.environment.log.append(TOPIC, 0, record)


def run(job: Small, engine: Engine, batches: int, gap: float) -> None:
    """Run batches, so many seconds of the job's clock apart."""
    for _ in range(batches):
        feed(job)
        engine.step()
        job.environment.now += round(gap * SECOND)


def small_job(folder: Path, spark: SparkSession, history: str = "1 day") -> Small:
    job = Small(folder / "checkpoint", spark)
    job.environment = RecordingEnvironment()
    job.pipeline = ms.Pipeline("small", *job.pipeline.outputs, history=history, engine="driver")
    return job


def taken(job: Small) -> tuple[int, int]:
    files = [path for path in job.folder.rglob("*") if path.is_file()]
    return len(files), sum(path.stat().st_size for path in files)


def rewound_and_green(job: Small, to: int) -> bool:
    """Whether the job gives the same answers again from this commit on."""
    Rewinder(job.pipeline, Checkpoint(job.folder), job.environment).rewind(to, again=True)
    job.finish()
    rows = job.environment.sinks.rows
    job.environment.sinks.rows = [row for n, row in enumerate(rows) if row not in rows[:n]]
    return job.green()


@pytest.fixture
def often(monkeypatch: Patch) -> None:
    """A pass of clean-up, with a compaction, after every third batch, and within it."""
    monkeypatch.setattr(housekeeping, "SWEEP_EVERY", 3)
    monkeypatch.setattr(housekeeping, "COMPACT_BYTES", 0)
    monkeypatch.setattr(housekeeping, "BESIDE", False)


# -- how large it gets ---------------------------------------------------------------


def test_a_year_of_batches_leaves_a_small_checkpoint(
    tmp_path: Path, spark: SparkSession, monkeypatch: Patch
) -> None:
    """Bursts at the rate at rest, with days between them; each run ends as a killed one does."""
    monkeypatch.setattr(housekeeping, "COMPACT_BYTES", 50_000)
    monkeypatch.setattr(housekeeping, "SWEEP_EVERY", 10)
    job = small_job(tmp_path, spark)
    start, most = job.environment.now, (0, 0)
    while job.environment.now - start < 365 * 86_400 * SECOND:
        with suppress(Crash), job.run() as engine:
            run(job, engine, 10, 0.2)
            run(job, engine, 3, 4 * 86_400)
            most = max(most, taken(job))
            if engine.head.batch % 2:
                raise Crash
    files, size = most
    kept = Checkpoint(job.folder).lineage()

    assert kept[-1] > 350
    assert files < 100, taken(job)
    assert size < 500_000
    assert len(kept) < 60
    assert rewound_and_green(job, kept[0])


def test_at_rest_files_of_state_stay_few_and_every_recent_commit_is_reachable(
    tmp_path: Path, spark: SparkSession
) -> None:
    job = small_job(tmp_path, spark)
    most = 0
    with job.run() as engine:
        for _ in range(12):
            run(job, engine, 25, 0.2)
            most = max(most, taken(job)[0])
    kept = Checkpoint(job.folder).lineage()

    assert kept == list(range(1, 301)), "all of the last ten minutes"
    assert most < 250
    assert rewound_and_green(job, 17)


@pytest.mark.usefixtures("often")
def test_history_is_thinned_and_every_commit_that_stays_is_reachable(
    tmp_path: Path, spark: SparkSession
) -> None:
    job = small_job(tmp_path, spark, history="6 hours")
    with job.run() as engine:
        run(job, engine, 60, 10 * 60)
        run(job, engine, 30, 10)
    kept = Checkpoint(job.folder).lineage()
    clocks = [Checkpoint(job.folder).read_commit(number)["clock"] for number in kept]
    ages = [(clocks[-1] - clock) / SECOND for clock in clocks]

    assert 6 <= sum(age > 3600 for age in ages) <= 9
    assert sum(age <= 600 for age in ages) >= 30
    assert ages[0] >= 6 * 3600
    left_out = kept[1] + 1
    with pytest.raises(NotFound, match=rf"the nearest are {kept[1]} and {kept[2]};"):
        rewound_and_green(job, left_out)
    for target in (kept[-20], kept[3], kept[0]):
        assert rewound_and_green(job, target), target


@pytest.mark.usefixtures("often")
def test_history_that_does_not_fit_is_thinned_further(
    tmp_path: Path, spark: SparkSession, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(cleaning, "ARCHIVE_BYTES", 20_000)
    monkeypatch.setattr(archive_module, "_SMALL", 0)
    job = small_job(tmp_path, spark)
    with job.run() as engine:
        run(job, engine, 160, 1)
        live = sum(run.bytes for state in engine.head.steps.values() for run in state.runs)
    archived = sum(path.stat().st_size for path in (job.folder / "archive").iterdir())
    kept = Checkpoint(job.folder).lineage()

    assert archived < 2 * (2 * live + 20_000) + 10_000
    assert kept[-8:] == list(range(153, 161))
    assert len(kept) < 130
    assert rewound_and_green(job, kept[0])


def test_runs_that_come_and_go_leave_few_files(tmp_path: Path, spark: SparkSession) -> None:
    job = small_job(tmp_path, spark)
    most = 0
    for _ in range(50):
        with job.run() as engine:
            engine._housekeeping._swept_at = 0.0
            run(job, engine, 1, 30)
        most = max(most, taken(job)[0])

    assert most < 120


# -- kills ---------------------------------------------------------------------------


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize("point", CLEAN_UP)
def test_a_kill_at_any_step_of_clean_up_loses_and_repeats_nothing(
    point: str, tmp_path: Path, spark: SparkSession, monkeypatch: Patch
) -> None:
    job = small_job(tmp_path, spark)
    install_fault_points(job.environment, monkeypatch)
    with job.run() as engine:
        run(job, engine, 8, 300)
    before = Checkpoint(job.folder).lineage()
    for _ in range(3):
        with suppress(Crash), job.run() as engine:
            run(job, engine, 2, 300)
            job.crash_at(point)
            run(job, engine, 8, 300)
            pytest.fail("it was not killed")
    with job.run() as engine:
        run(job, engine, 4, 300)
    kept = Checkpoint(job.folder).lineage()

    assert kept[0] in before
    assert rewound_and_green(job, kept[len(kept) // 2])
    assert rewound_and_green(job, Checkpoint(job.folder).lineage()[0])
    assert taken(job)[0] < 120


@pytest.mark.usefixtures("often")
def test_a_kill_while_a_rewind_restores_state_is_made_good_by_the_next_run(
    tmp_path: Path, spark: SparkSession, monkeypatch: Patch
) -> None:
    job = small_job(tmp_path, spark)
    install_fault_points(job.environment, monkeypatch)
    with job.run() as engine:
        run(job, engine, 60, 1)
    for point in ("in the middle of restoring state", "before rewind", "after rewind"):
        job.crash_at(point)
        with suppress(Crash):
            Rewinder(job.pipeline, Checkpoint(job.folder), job.environment).rewind(9, again=True)
            pytest.fail("it was not killed")
    job.finish()
    rows = job.environment.sinks.rows
    job.environment.sinks.rows = [row for n, row in enumerate(rows) if row not in rows[:n]]
    assert job.green()


# -- guards --------------------------------------------------------------------------


def zombie_in_clean_up(job: Small, monkeypatch: Patch, meanwhile: Patch | None = None) -> None:
    """A run is suspended in a pass of clean-up while another one takes the job over."""
    install_fault_points(job.environment, monkeypatch)

    def taken_over() -> None:
        with job.run(take_over=True) as successor:
            run(job, successor, 2, 1)
        if meanwhile is not None:
            meanwhile.setattr(Checkpoint, "owned", lambda self: None)

    with job.run() as zombie:
        run(job, zombie, 5, 1)
        job.environment.at["kept records written"] = taken_over
        with suppress(Fenced):
            run(job, zombie, 1, 1)


@pytest.mark.usefixtures("often")
def test_a_zombie_in_clean_up_deletes_nothing(
    tmp_path: Path, spark: SparkSession, monkeypatch: Patch
) -> None:
    job = small_job(tmp_path, spark)
    zombie_in_clean_up(job, monkeypatch)

    job.finish()
    assert job.green(), job.verdict()


@pytest.mark.usefixtures("often")
def test_without_the_ownership_check_it_deletes_segments_of_its_successor(
    tmp_path: Path, spark: SparkSession, monkeypatch: Patch
) -> None:
    job = small_job(tmp_path, spark)
    with pytest.MonkeyPatch.context() as patch:
        zombie_in_clean_up(job, monkeypatch, patch)

    with pytest.raises(Damaged, match="no such file, but it is listed"):
        job.finish()


@pytest.mark.usefixtures("often")
def test_without_the_list_before_the_deletion_a_kill_loses_records(
    tmp_path: Path, spark: SparkSession, monkeypatch: Patch
) -> None:
    job = small_job(tmp_path, spark)
    install_fault_points(job.environment, monkeypatch)
    replaced = Checkpoint.replace_segments

    def deleted_first(self: Checkpoint, old: tuple[Part, ...], kept: object) -> None:
        for part in old:
            (self.folder / "segments" / part.name).unlink()
        replaced(self, old, kept)  # type: ignore[arg-type]

    monkeypatch.setattr(Checkpoint, "replace_segments", deleted_first)
    with suppress(Crash), job.run() as engine:
        run(job, engine, 2, 1)
        job.environment.at["kept records written"] = lambda: job.crash_at("before a new segment")
        run(job, engine, 4, 1)
    with pytest.raises(Damaged):
        job.finish()


@pytest.mark.usefixtures("often")
def test_without_a_full_commit_at_its_beginning_recent_history_cannot_be_read(
    tmp_path: Path, spark: SparkSession, monkeypatch: Patch
) -> None:
    job = small_job(tmp_path, spark)
    stays = cleaning._stays

    def never_full(*given: object) -> list[Stays]:
        return [one._replace(full=False) for one in stays(*given)]  # type: ignore[arg-type]

    with job.run() as engine:
        run(job, engine, 60, 20)
    assert rewound_and_green(job, Checkpoint(job.folder).lineage()[-9])
    job = small_job(tmp_path / "other", spark)
    monkeypatch.setattr(cleaning, "_stays", never_full)
    with job.run() as engine:
        run(job, engine, 60, 20)
    with pytest.raises(Damaged, match="no commit of batch"):
        rewound_and_green(job, Checkpoint(job.folder).lineage()[-9])


# -- the disk ------------------------------------------------------------------------


def test_a_disk_that_is_filling_is_warned_of_before_it_is_full(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "millstream")
    filling, disk = Filling(), 100 * 10**9
    filling.look(Sizes(10, 10, 80 * 10**9, disk), now=0)
    filling.look(Sizes(10, 10, 79 * 10**9, disk), now=300)
    assert filling.warning is None, "at this rate there are hours left"
    filling.look(Sizes(10, 10, 40 * 10**9, disk), now=1800)
    filling.look(Sizes(10, 10, 39 * 10**9, disk), now=1860)
    assert len(caplog.records) == 1, "at most every ten minutes"
    filling.look(Sizes(10, 10, 39 * 10**9, disk), now=1800 + 3700)
    assert len(caplog.records) == 1, "it has stopped"
    filling.look(Sizes(10, 10, 4 * 10**9, disk), now=1800 + 3720)
    soon, full = (record.message for record in caplog.records)
    assert "will be full in about 30 minutes: 40.0 GB of 100 GB are free" in soon
    assert "nearly full: 4.0 GB of 100 GB are free" in full


def test_sizes_are_those_of_the_folder(tmp_path: Path, spark: SparkSession) -> None:
    job = small_job(tmp_path, spark)
    with job.run() as engine:
        run(job, engine, 3, 1)
    found = cleaning.sizes_of(job.folder)

    assert (found.files, found.bytes) == taken(job)
    assert 0 < found.free <= found.disk
