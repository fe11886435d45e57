"""A truncated, changed, emptied or lost file of the checkpoint stops the job and is named."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from tests.faults import record_files
from tests.faults.record_files import RecordFile
from tests.faults.small_world import Scene, Small, install_fault_points, windows

from millstream.engine.checkpoint import durable
from millstream.engine.checkpoint.records.framing import scan
from millstream.errors import Damaged, MillstreamError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def bit_changed(content: bytes) -> bytes:
    whole = bytearray(content)
    whole[len(whole) * 3 // 4] ^= 4
    return bytes(whole)


def change_a_bit(path: Path) -> None:
    path.write_bytes(bit_changed(path.read_bytes()))


def empty(path: Path) -> None:
    path.write_bytes(b"")


def lose(path: Path) -> None:
    path.unlink()


def cut_record(folder: Path, batch: int, kind: str) -> None:
    RecordFile.of(folder, batch, kind).replace(lambda record: record[:-9])


def change_record(folder: Path, batch: int, kind: str) -> None:
    RecordFile.of(folder, batch, kind).replace(bit_changed)


def empty_record(folder: Path, batch: int, kind: str) -> None:
    RecordFile.of(folder, batch, kind).replace(lambda record: b"\0" * len(record))


def lose_record(folder: Path, batch: int, kind: str) -> None:
    record_files.lose(folder, batch, kind)


WOUNDS = (truncate, change_a_bit, empty, lose)
RECORD_WOUNDS = (cut_record, change_record, empty_record, lose_record)


def scene(folder: Path, spark: SparkSession, point: str) -> Scene:
    """Two commits, then a crash at this point of the third batch."""
    with pytest.MonkeyPatch.context() as patch:
        small = Small(folder, spark)
        install_fault_points(small.environment, patch)
        for _ in range(2):
            small.feed()
            small.step()
        small.feed()
        small.crash_at(point)
        small.step()
    return Scene(folder, small.environment, spark)


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> dict[str, Scene]:
    points = ("after intent", "after prepared", "after a sink's commit", "after commit")
    folder = tmp_path_factory.mktemp("scenes")
    return {point: scene(folder / point, spark, point) for point in points}


KINDS = {
    "job": ("after commit", "job"),
    "run": ("after commit", "runs/00000003"),
    "spec": ("after commit", "state/*/spec"),
    "state": ("after commit", "state/*/*/*.arrow"),
    "staged": ("after prepared", "staged/000000000003-*.arrow"),
    "earlier segment": ("after commit", "segments/00000002-000001"),
}


@pytest.mark.parametrize("wound", WOUNDS, ids=lambda wound: wound.__name__)
@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_file_stops_the_job_and_is_named(
    kind: str, wound: Callable[[Path], None], scenes: dict[str, Scene], tmp_path: Path
) -> None:
    point, pattern = KINDS[kind]
    small = scenes[point].copy(tmp_path / "checkpoint")
    (*_, path) = sorted(small.folder.glob(pattern))
    wound(path)

    with pytest.raises(Damaged) as stopped:
        small.finish()
    assert path.name in str(stopped.value)
    assert not small.verdict()["doubled"]


RECORDS = {
    "newest commit": ("after commit", 3, "commit"),
    "intent": ("after prepared", 3, "intent"),
    "prepared": ("after prepared", 3, "prepared"),
    "commit": ("after intent", 2, "commit"),
    "earlier commit": ("after intent", 1, "commit"),
}
# The last record of all may have been written in part, and nothing follows from it. If it is not
# whole, or lost, the job continues without it, with the right results.
LAST = ("prepared", "newest commit")


@pytest.mark.parametrize("wound", RECORD_WOUNDS, ids=lambda wound: wound.__name__)
@pytest.mark.parametrize("kind", RECORDS)
def test_a_damaged_record_stops_the_job_and_is_named(
    kind: str, wound: Callable[[Path, int, str], None], scenes: dict[str, Scene], tmp_path: Path
) -> None:
    point, batch, record = RECORDS[kind]
    small = scenes[point].copy(tmp_path / "checkpoint")
    path = RecordFile.of(small.folder, batch, record).path
    wound(small.folder, batch, record)

    if kind in LAST:
        small.finish()
        assert small.green(), small.verdict()
        return
    with pytest.raises(Damaged) as stopped:
        small.finish()
    named = f"no {record} of batch {batch}" if wound is lose_record else path.name
    assert named in str(stopped.value)
    assert not small.verdict()["doubled"]


def test_a_lost_newest_segment_does_not_repeat_what_the_sinks_hold(
    scenes: dict[str, Scene], tmp_path: Path
) -> None:
    small = scenes["after commit"].copy(tmp_path / "checkpoint")
    lose(small.folder / "segments" / "00000003-000001")

    with pytest.raises(Damaged, match="ledger"):
        small.finish()
    assert not small.verdict()["doubled"]


@pytest.mark.parametrize("wound", [truncate, change_a_bit, empty], ids=lambda wound: wound.__name__)
def test_a_segment_whose_list_is_damaged_is_named(
    wound: Callable[[Path], None], scenes: dict[str, Scene], tmp_path: Path
) -> None:
    small = scenes["after commit"].copy(tmp_path / "checkpoint")
    path = small.folder / "segments" / "00000003-000001"
    listed = scan(path.read_bytes()).entries[0].end
    path.write_bytes(path.read_bytes()[:listed])
    wound(path)

    with pytest.raises(Damaged, match=path.name):
        small.finish()


def test_the_undamaged_scenes_finish_correctly(scenes: dict[str, Scene], tmp_path: Path) -> None:
    for place, whole in enumerate(scenes.values()):
        small = whole.copy(tmp_path / f"{place}")
        small.finish()
        assert small.green(), small.verdict()


def test_an_intent_lost_before_its_batch_ran_is_planned_again(
    scenes: dict[str, Scene], tmp_path: Path
) -> None:
    small = scenes["after intent"].copy(tmp_path / "checkpoint")
    lose_record(small.folder, 3, "intent")

    small.finish()

    assert small.green(), small.verdict()


@pytest.mark.parametrize("point", ["after intent", "after prepared", "after commit"])
def test_drafts_of_killed_writers_are_ignored_and_removed(
    point: str, scenes: dict[str, Scene], tmp_path: Path
) -> None:
    small = scenes[point].copy(tmp_path / "checkpoint")
    records = [
        path for path in small.folder.rglob("*") if path.is_file() and path.suffix != ".arrow"
    ]
    drafts = [path.with_name(f".{path.name}.{'ab' * 16}") for path in records]
    (small.folder / "segments" / f".00000009-000001.{'cd' * 16}").write_text("segment 1 pl")
    for path, draft in zip(records, drafts, strict=True):
        draft.write_bytes(path.read_bytes()[:20])
        os.utime(draft, (0, 0))

    small.finish()

    assert small.green(), small.verdict()
    assert not [
        path for path in drafts if path.exists() and path.parent.name in ("runs", "segments")
    ]
    assert list(small.folder.glob("segments/.00000009*")), "recent drafts stay"


def test_a_writer_whose_draft_was_removed_returns_false(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sweep(point: str, batch: int) -> None:
        for draft in tmp_path.glob(".*"):
            os.utime(draft, (0, 0))
        durable.sweep_drafts(tmp_path)

    monkeypatch.setattr(durable, "reached", sweep)

    assert not durable.write_new(tmp_path / "record", "intent", {"batch": 7})
    assert list(tmp_path.iterdir()) == []


def test_damaged_state_is_named_from_inside_a_spark_task(
    scenes: dict[str, Scene], tmp_path: Path
) -> None:
    small = scenes["after commit"].copy(tmp_path / "checkpoint")
    small.lane = "wide"
    (*_, path) = sorted(small.folder.glob("state/*/*/*.arrow"))
    change_a_bit(path)
    small.feed()

    with pytest.raises(Damaged, match=path.name):
        small.finish()


def test_an_older_copy_of_the_checkpoint_does_not_write_rows_again(
    scenes: dict[str, Scene], tmp_path: Path
) -> None:
    small = scenes["after commit"].copy(tmp_path / "checkpoint")
    record_files.lose(small.folder, 3)

    with pytest.raises(Damaged, match="ledger"):
        small.finish()
    assert not small.verdict()["doubled"]


def test_a_change_of_any_bit_of_a_record_is_detected(tmp_path: Path) -> None:
    path = tmp_path / "record"
    durable.write_new(path, "commit", {"batch": 7, "next": {"0": 12, "1": 30}})
    whole = path.read_bytes()
    for place in range(len(whole) * 8):
        changed = bytearray(whole)
        changed[place // 8] ^= 1 << place % 8
        path.write_bytes(changed)
        with pytest.raises(Damaged):
            durable.read(path, "commit")


def test_a_record_of_another_kind_is_refused(tmp_path: Path) -> None:
    durable.write_new(tmp_path / "record", "intent", {"batch": 7})

    with pytest.raises(Damaged):
        durable.read(tmp_path / "record", "commit")


def test_a_second_writer_of_a_name_gets_false_and_changes_nothing(tmp_path: Path) -> None:
    assert durable.write_new(tmp_path / "record", "intent", {"by": "first"})

    assert not durable.write_new(tmp_path / "record", "intent", {"by": "second"})
    assert durable.read(tmp_path / "record", "intent") == {"by": "first"}
    assert [path.name for path in tmp_path.iterdir()] == ["record"]


def test_a_checkpoint_of_another_pipeline_is_refused(
    scenes: dict[str, Scene], tmp_path: Path
) -> None:
    small = scenes["after commit"].copy(tmp_path / "checkpoint")
    small.pipeline = windows("another")

    with pytest.raises(MillstreamError, match="needs the pipeline 'small'"):
        small.finish()
