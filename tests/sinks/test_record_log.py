"""The numbered records that give files and Delta tables a single writer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.sinks.batches import JOB, opened, staged

import millstream as ms
from millstream.errors import Fenced
from millstream.sinks.files import writer as files_writer
from millstream.sinks.files.files import FilesSink
from millstream.sinks.record_log import Records, read_all
from millstream.sinks.spec import Opening

if TYPE_CHECKING:
    from pathlib import Path


def records(place: Path, epoch: int) -> Records:
    return Records(place, Opening("p", JOB, epoch, ()))


def test_records_are_numbered_and_read_back_in_order(tmp_path: Path) -> None:
    mine = records(tmp_path, 1)
    assert mine.claim() == []
    mine.append(kind="batch", intent="one")
    mine.append(kind="batch", intent="two")
    found = read_all(mine.folder)
    assert [body["number"] for body in found] == [1, 2, 3]
    assert [body.get("intent") for body in found] == [None, "one", "two"]


def test_the_second_run_to_create_a_number_is_fenced(tmp_path: Path) -> None:
    first, second = records(tmp_path, 1), records(tmp_path, 2)
    first.claim()
    second.claim()
    with pytest.raises(Fenced):
        first.append(kind="batch")
    with pytest.raises(Fenced):
        first.check()
    second.append(kind="batch")


def test_a_run_suspended_while_old_records_were_removed_is_fenced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number it would use is free again; its record must be ignored."""
    monkeypatch.setattr(files_writer, "FULL_EVERY", 3)
    sink = FilesSink(ms.Files(tmp_path / "out"))
    zombie = opened(sink)
    zombie.write("one", 1, [staged(sink, n=[1])])
    successor = opened(sink, epoch=2)
    for batch in range(2, 12):
        successor.write(f"intent {batch}", batch, [staged(sink, n=[batch])])
    before = sorted(path.name for path in tmp_path.rglob("*") if "draft" not in path.name)
    assert not (tmp_path / "out" / "_millstream" / "0000000003.json").exists()
    with pytest.raises(Fenced):
        zombie.write("two", 2, [staged(sink, n=[2])])
    after = sorted(path.name for path in tmp_path.rglob("*") if "draft" not in path.name)
    assert after == before


def test_a_run_suspended_after_listing_the_records_removes_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zombie, successor = records(tmp_path, 1), records(tmp_path, 2)
    zombie.claim()
    successor.claim()
    for _ in range(5):
        successor.append(kind="batch", full={})
    successor.remove_before(successor.number)
    looks = iter([zombie.number])
    newest = Records._newest
    monkeypatch.setattr(Records, "_newest", lambda self: next(looks, None) or newest(self))
    with pytest.raises(Fenced):
        zombie.append(kind="batch")
    assert [path.name for path in zombie.folder.iterdir()] == ["0000000007.json"]
