"""Segments of a job: what counts, who may append, and what a reader sees meanwhile."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from millstream.engine.checkpoint import durable
from millstream.engine.checkpoint.checkpoint import Checkpoint
from millstream.engine.checkpoint.records import appending
from millstream.engine.checkpoint.records.compaction import Stays, write_kept
from millstream.engine.checkpoint.records.segments import FOLDER, Segments
from millstream.errors import Damaged, Fenced, MillstreamError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

Patch = pytest.MonkeyPatch


class Job(Checkpoint):
    """A checkpoint whose records are of no particular use."""

    def write(self, batch: int, kind: str = "intent") -> dict[str, Any]:
        return self._write_once(
            batch, kind, {"incarnation": self.incarnation, "batch": batch, "full": 1}
        )


_OPEN: list[Job] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Release the locks of all runs at the end of a test."""
    yield
    while _OPEN:
        _OPEN.pop().close()


def opened(folder: Path, *, take_over: bool = False) -> Job:
    job = Job(folder)
    _OPEN.append(job)
    job.open("job", 4, take_over=take_over)
    return job


def read(folder: Path) -> list[tuple[str, int, int]]:
    """All records, and the runs that wrote them."""
    job = Checkpoint(folder)
    kinds = ("intent", "prepared", "commit")
    return [
        (kind, n, job.read(n, kind)["incarnation"]) for kind in kinds for n in job.batches(kind)
    ]


def suspended_in(patch: Patch, point: str, meanwhile: Callable[[], None]) -> None:
    """Do something else, once, while a run is at this point."""
    waiting = [meanwhile]

    def reached(here: str, batch: int) -> None:
        if here == point and waiting:
            waiting.pop()()

    patch.setattr(appending, "reached", reached)


# -- a zombie and its successor ---------------------------------------------------


@pytest.mark.parametrize("kind", ["intent", "prepared", "commit"])
def test_a_record_that_is_on_disk_before_the_takeover_is_read(tmp_path: Path, kind: str) -> None:
    zombie = opened(tmp_path)
    zombie.write(1, kind)
    new = opened(tmp_path, take_over=True)

    assert new.read(1, kind)["incarnation"] == 1
    with pytest.raises(Fenced):
        zombie.write(2)
    assert read(tmp_path) == [(kind, 1, 1)]


@pytest.mark.parametrize("kind", ["intent", "prepared", "commit"])
def test_a_record_that_is_finished_after_the_takeover_is_not_read_and_its_writer_is_fenced(
    tmp_path: Path, kind: str, monkeypatch: Patch
) -> None:
    zombie, new = opened(tmp_path), list[Job]()
    zombie.write(1)

    def taken_over() -> None:
        new.append(opened(tmp_path, take_over=True))
        new[0].write(2, kind)

    suspended_in(monkeypatch, f"in the middle of writing {kind}", taken_over)
    with pytest.raises(Fenced):
        zombie.write(2, kind)

    assert new[0].read(2, kind)["incarnation"] == 2
    assert sorted(read(tmp_path)) == sorted([("intent", 1, 1), (kind, 2, 2)])
    new[0].close()
    assert opened(tmp_path).read(2, kind)["incarnation"] == 2


def test_without_the_check_after_appending_a_zombie_continues_after_a_record_that_is_never_read(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    zombie = opened(tmp_path)
    zombie.write(1)

    def taken_over() -> None:
        opened(tmp_path, take_over=True)
        monkeypatch.setattr(zombie, "owned", lambda: None)

    suspended_in(monkeypatch, "in the middle of writing prepared", taken_over)
    zombie.write(2, "prepared")

    assert read(tmp_path) == [("intent", 1, 1)]


@pytest.mark.parametrize(
    "point", ["before a new segment", "after a new segment", "in the middle of writing intent"]
)
def test_two_runs_that_start_at_once_leave_the_records_of_one(
    tmp_path: Path, point: str, monkeypatch: Patch
) -> None:
    opened(tmp_path).write(1)
    new = list[Job]()
    suspended_in(monkeypatch, point, lambda: new.append(opened(tmp_path, take_over=True)))
    with pytest.raises(Fenced):
        opened(tmp_path, take_over=True).write(2)

    new[0].write(2)
    assert read(tmp_path) == [("intent", 1, 1), ("intent", 2, 3)]


def test_a_zombie_that_rolls_or_compacts_changes_nothing(tmp_path: Path) -> None:
    zombie = opened(tmp_path)
    for batch in (1, 2):
        zombie.write(batch, "commit")
    old, target = zombie.to_compact(0, 4, always=True)
    assert target is not None
    new = opened(tmp_path, take_over=True)
    kept = write_kept(zombie.segments, target, [Stays("commit", 2)])
    zombie.replace_segments(old, kept)
    with pytest.raises(Fenced):
        zombie.owned()

    new.write(3, "commit")
    assert read(tmp_path) == [("commit", 1, 1), ("commit", 2, 1), ("commit", 3, 2)]
    new.remove_unlisted()
    assert not target.exists()
    assert read(tmp_path) == [("commit", 1, 1), ("commit", 2, 1), ("commit", 3, 2)]


def test_a_run_whose_record_was_removed_since_is_fenced(tmp_path: Path) -> None:
    zombie = opened(tmp_path)
    for _ in range(12):
        job = opened(tmp_path, take_over=True)
        job.forget_old_runs()
    assert len(list((tmp_path / "runs").glob("*[0-9]"))) == 9
    assert not (tmp_path / "runs" / "00000002").exists()
    with pytest.raises(Fenced):
        zombie.owned()
    job.owned()


# -- torn tails ---------------------------------------------------------------------


def test_a_last_record_cut_at_any_byte_is_dropped_by_the_next_run(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    job = opened(folder)
    for batch in (1, 2):
        job.write(batch)
    place = job.place(2, "intent")
    assert place is not None
    assert place.entry is not None
    whole, start = place.path.read_bytes(), place.entry.at
    job.close()
    for tail in (b"", b"\0" * 64, b"\xff\x1e\n"):
        for cut in range(start, len(whole)):
            place.path.write_bytes(whole[:cut] + tail)
            found = Segments(folder)
            found.refresh()
            assert list(found.index) == [("intent", 1)]
            assert found.all_parts()[-1].length == start
    for cut in (start + 1, len(whole) - 1):
        place.path.write_bytes(whole[:cut])
        copy = tmp_path / f"{cut}"
        shutil.copytree(folder, copy)
        opened(copy).write(2)
        assert read(copy) == [("intent", 1, 1), ("intent", 2, 2)]


def test_a_write_that_fails_leaves_nothing_that_is_read(tmp_path: Path, monkeypatch: Patch) -> None:
    job = opened(tmp_path)
    job.write(1)

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", full)
        with pytest.raises(MillstreamError, match=r"00000001-000001 needs a writable disk"):
            job.write(2)
    assert not job.has(2, "intent")
    job.write(3)
    assert [batch for _, batch, _ in read(tmp_path)] == [1, 3]
    job.close()
    assert opened(tmp_path).batches("intent") == [1, 3]


# -- many segments --------------------------------------------------------------------


def test_segments_are_left_when_they_are_full(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(appending, "ROLL_BYTES", 300)
    job = opened(tmp_path)
    for batch in range(1, 30):
        job.write(batch)
    job.close()

    assert len(list((tmp_path / FOLDER).iterdir())) > 5
    assert opened(tmp_path).batches("intent") == list(range(1, 30))


def test_runs_that_write_nothing_leave_no_segments(tmp_path: Path) -> None:
    opened(tmp_path).write(1)
    for _ in range(5):
        job = opened(tmp_path, take_over=True)
        job.remove_unlisted()
    assert len(list((tmp_path / FOLDER).iterdir())) == 2


def test_many_runs_with_a_record_each_are_compacted(tmp_path: Path) -> None:
    for batch in range(1, 40):
        job = opened(tmp_path)
        job.write(batch, "commit")
        old, target = job.to_compact(2**20, 4, always=False)
        if target is not None:
            kept = write_kept(
                job.segments, target, [Stays("commit", n) for n in range(1, batch + 1)]
            )
            job.replace_segments(old, kept)
            job.owned()
            job.remove_unlisted()
        job.close()
    assert len(list((tmp_path / FOLDER).iterdir())) < 36
    assert [batch for _, batch, _ in read(tmp_path)] == list(range(1, 40))


def test_a_reader_sees_what_is_appended_and_what_is_compacted(tmp_path: Path) -> None:
    job, reader = opened(tmp_path), Checkpoint(tmp_path)
    for batch in range(1, 6):
        job.write(batch, "commit")
        assert reader.batches("commit") == list(range(1, batch + 1))
    listed = Segments(tmp_path)
    listed.refresh()
    old, target = job.to_compact(0, 4, always=True)
    assert target is not None
    kept = write_kept(job.segments, target, [Stays("commit", n) for n in (2, 4, 5)])
    job.replace_segments(old, kept)
    job.remove_unlisted()

    assert reader.batches("commit") == [2, 4, 5]
    assert [job.read(n, "commit")["batch"] for n in job.batches("commit")] == [2, 4, 5]
    assert listed.read("commit", 4)["batch"] == 4, "listed before, read after"
    with pytest.raises(Damaged, match="no commit of batch 3"):
        listed.read("commit", 3)


def test_a_listed_segment_that_is_gone_is_named(tmp_path: Path) -> None:
    opened(tmp_path).write(1)
    opened(tmp_path, take_over=True).write(2)
    (tmp_path / FOLDER / "00000001-000001").unlink()

    with pytest.raises(Damaged, match="00000001-000001"):
        Checkpoint(tmp_path).batches("intent")


def test_a_newer_format_is_named(tmp_path: Path, monkeypatch: Patch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("millstream.engine.checkpoint.records.segments.FORMAT", 3)
        opened(tmp_path).close()

    with pytest.raises(Damaged, match="format 3; this version reads 2"):
        opened(tmp_path)


def test_a_record_of_an_earlier_format_is_read_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "batches").mkdir()
    durable.write_new(tmp_path / "batches" / "0000000007.commit", "commit", {"by": 1})

    assert Checkpoint(tmp_path).batches("commit") == [7]
    assert Checkpoint(tmp_path).read(7, "commit") == {"by": 1}
