"""Checkpoints of earlier versions, with a file per record, are opened; kills lose nothing."""

from __future__ import annotations

import shutil
import sqlite3
import tarfile
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.faults.record_files import names
from tests.faults.small_world import Crash, Scene, Small, install_fault_points

import millstream as ms
from millstream.engine.checkpoint import durable
from millstream.engine.checkpoint.checkpoint import Checkpoint
from millstream.engine.checkpoint.records import migration
from millstream.engine.checkpoint.records.compaction import write_kept
from millstream.engine.inspection.inspect import commits, open_checkpoint
from millstream.engine.recovery.rewind import Rewinder
from millstream.errors import Damaged

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCENES = ("after intent", "after prepared", "after a sink's commit", "after commit")
POINTS = (
    "kept records written", "before a new segment", "in the middle of a new segment",
    "after a new segment", "records migrated",
)  # fmt: skip


def written_as_before(folder: Path) -> None:
    """Write each record to a file of its own, as earlier versions did."""
    checkpoint = Checkpoint(folder)
    (folder / "batches").unlink()
    (folder / "batches").mkdir()
    for kind, number in names(folder):
        path = folder / "batches" / f"{number:010d}.{kind}"
        durable.write_new(path, kind, checkpoint.read(number, kind))
    shutil.rmtree(folder / "segments")


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> dict[str, Scene]:
    found = {}
    for point in SCENES:
        folder = tmp_path_factory.mktemp("earlier") / "job"
        with pytest.MonkeyPatch.context() as patch:
            small = Small(folder, spark)
            install_fault_points(small.environment, patch)
            for _ in range(2):
                small.feed()
                small.step()
            small.feed()
            small.crash_at(point)
            small.step()
        written_as_before(folder)
        found[point] = Scene(folder, small.environment, spark)
    return found


@pytest.mark.parametrize("point", SCENES)
def test_an_earlier_checkpoint_continues(
    point: str, earlier: dict[str, Scene], tmp_path: Path
) -> None:
    small = earlier[point].copy(tmp_path / "job")
    before = Checkpoint(small.folder)
    known = [before.read_commit(number) for number in before.batches("commit")]

    small.finish()

    assert small.green(), small.verdict()
    with pytest.raises(FileExistsError):  # as an earlier version opens it
        (small.folder / "batches").mkdir(exist_ok=True)
    after = Checkpoint(small.folder)
    assert [after.read_commit(body["batch"]) for body in known] == known


@pytest.mark.parametrize("kill", POINTS)
@pytest.mark.parametrize("point", SCENES)
def test_a_kill_at_any_step_of_the_migration_changes_nothing(
    point: str, kill: str, earlier: dict[str, Scene], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    small = earlier[point].copy(tmp_path / "job")
    install_fault_points(small.environment, monkeypatch)
    before = names_of_both(small.folder)
    small.crash_at(kill)
    with suppress(Crash), small.run():
        pytest.fail("it was not killed")

    assert names_of_both(small.folder) == before
    small.finish()
    assert small.green(), small.verdict()
    with pytest.raises(FileExistsError):  # as an earlier version opens it
        (small.folder / "batches").mkdir(exist_ok=True)
    assert len(list((small.folder / "segments").iterdir())) < 6


def names_of_both(folder: Path) -> set[tuple[str, int]]:
    """The records that matter: those of a batch that is committed only as its commit."""
    found = set(names(folder))
    newest = max((number for kind, number in found if kind == "commit"), default=0)
    return {(kind, number) for kind, number in found if kind == "commit" or number > newest}


def test_files_left_by_a_kill_while_they_were_deleted_are_not_read(
    earlier: dict[str, Scene], tmp_path: Path
) -> None:
    small = earlier["after prepared"].copy(tmp_path / "job")
    shutil.copytree(small.folder / "batches", tmp_path / "left")
    with small.run():
        pass
    (tmp_path / "left" / "0000000002.commit").unlink()
    (small.folder / "batches").unlink()
    shutil.copytree(tmp_path / "left", small.folder / "batches")

    small.finish()
    assert small.green(), small.verdict()
    with pytest.raises(FileExistsError):  # as an earlier version opens it
        (small.folder / "batches").mkdir(exist_ok=True)


def test_without_the_list_before_the_deletion_a_kill_loses_the_job(
    earlier: dict[str, Scene], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = earlier["after prepared"].copy(tmp_path / "job")
    install_fault_points(small.environment, monkeypatch)

    def deleted_first(*given: object, **words: object) -> object:
        kept = write_kept(*given, **words)  # type: ignore[arg-type]
        migration.remove_earlier(small.folder)
        return kept

    monkeypatch.setattr(migration, "write_kept", deleted_first)
    small.crash_at("before a new segment")
    with suppress(Crash), small.run():
        pass
    monkeypatch.undo()

    with pytest.raises(Damaged):
        small.finish()


def test_an_earlier_checkpoint_is_readable_before_its_job_runs_again(
    earlier: dict[str, Scene],
) -> None:
    checkpoint = open_checkpoint(earlier["after commit"].folder)

    assert [row["batch"] for row in commits(checkpoint)] == [1, 2, 3]
    assert checkpoint.head().batch == 3
    assert (checkpoint.folder / "batches").exists(), "reading changes nothing"


def test_a_damaged_record_of_an_earlier_version_is_named_and_rewound_past(
    earlier: dict[str, Scene], tmp_path: Path
) -> None:
    small = earlier["after commit"].copy(tmp_path / "job")
    path = small.folder / "batches" / "0000000003.commit"
    path.write_text(path.read_text()[:-20])
    before = names(small.folder)

    with pytest.raises(Damaged, match=path.name):
        small.finish()
    assert names(small.folder) == before
    Rewinder(small.pipeline, Checkpoint(small.folder), small.environment).rewind(2, again=True)
    small.finish()
    rows = small.environment.sinks.rows
    small.environment.sinks.rows = [row for n, row in enumerate(rows) if row not in rows[:n]]
    assert small.green(), small.verdict()


def test_a_checkpoint_that_the_last_such_version_wrote_is_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has six commits and a batch that was prepared when the job was killed.

    `earlier/job.tar.gz` holds the checkpoint, its input and its output, as the job left them. Its
    notes of the files it has read name them where they lie now.
    """
    with tarfile.open(Path(__file__).parent / "earlier" / "job.tar.gz") as packed:
        packed.extractall(tmp_path, filter="data")
    monkeypatch.chdir(tmp_path)
    for path in (tmp_path / "checkpoint" / "sources" / "in").iterdir():
        files = durable.read(path, "note")["files"]
        durable.replace(path, "note", {"files": [lies_now(one, tmp_path) for one in files]})
    with (tmp_path / "in" / "00007.json").open("w") as more:
        more.writelines(f'{{"key": {key}, "ts": "2026-01-01T00:07:00Z"}}\n' for key in range(5))

    source = ms.Files("in", format="json", schema="key long, ts timestamp")
    rows = ms.read(source, time="ts", watermark="5 seconds", idle=None)
    panes = rows.by("key").window(ms.tumbling("10 seconds")).agg(n=ms.count())
    counts = rows.by("key").agg(n=ms.count())
    ms.Pipeline(
        "job",
        panes.to(ms.Sqlite("out.db", "panes"), name="panes"),
        counts.to(ms.Sqlite("out.db", "counts", key="key"), name="counts"),
        engine="driver",
    ).run(until="finished", checkpoint="checkpoint")

    store = sqlite3.connect("out.db")
    assert sorted(store.execute("select key, n from counts")) == [(key, 8) for key in range(5)]
    found = Counter(store.execute("select key, n from panes"))
    store.close()
    assert found == Counter({(key, 1): 8 for key in range(5)})
    assert (tmp_path / "checkpoint" / "batches").is_file()
    assert Checkpoint(tmp_path / "checkpoint").batches("commit")[:6] == [1, 2, 3, 4, 5, 6]


def lies_now(note: dict[str, object], folder: Path) -> dict[str, object]:
    """A note of a file that was moved to this folder."""
    path = folder / "in" / Path(str(note["path"])).name
    found = path.stat()
    return {**note, "path": str(path), "inode": found.st_ino, "changed": found.st_mtime_ns}
