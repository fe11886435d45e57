"""The notes of sources are durable and ordered, and one note can replace all others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.sources.keeping import notes

from millstream.engine.checkpoint.source_notes import SourceNotes
from millstream.errors import Damaged, Fenced

if TYPE_CHECKING:
    from pathlib import Path


def test_a_later_run_reads_the_notes_in_order(tmp_path: Path) -> None:
    first = notes(tmp_path)
    assert first.all() == []
    assert all(first.add({"n": number}) for number in range(12))
    assert [note["n"] for note in notes(tmp_path).all()] == list(range(12))
    assert notes(tmp_path, "other").all() == []


def test_one_note_can_replace_all_earlier_ones(tmp_path: Path) -> None:
    kept = notes(tmp_path)
    for number in range(5):
        kept.add({"n": number})
    assert kept.replace({"n": "all"})
    kept.add({"n": 5})
    assert [note["n"] for note in kept.all()] == ["all", 5]
    assert len(list((tmp_path / "checkpoint" / "sources" / "bids").iterdir())) == 2
    assert kept.replace({"n": "more"})
    assert [note["n"] for note in kept.all()] == ["more"]


def test_a_crash_while_notes_are_replaced_loses_nothing(
    tmp_path: Path,
) -> None:
    kept = notes(tmp_path)
    for number in range(3):
        kept.add({"n": number})
    folder = tmp_path / "checkpoint" / "sources" / "bids"
    old = {path.name: path.read_bytes() for path in folder.iterdir()}
    kept.replace({"n": "all"})
    for name, content in old.items():
        (folder / name).write_bytes(content)
    assert [note["n"] for note in kept.all()] == ["all"]
    kept.add({"n": 3})
    assert [note["n"] for note in kept.all()] == ["all", 3]


def test_a_writer_uses_the_next_free_number(tmp_path: Path) -> None:
    one, other = notes(tmp_path), notes(tmp_path)
    one.add({"n": 0})
    folder = tmp_path / "checkpoint" / "sources" / "bids"
    (folder / f"{2:012d}").write_bytes((folder / f"{1:012d}").read_bytes())
    assert other.add({"n": 1})
    assert len(one.all()) == 3


def test_a_missing_or_changed_note_and_a_fenced_run_are_refused(tmp_path: Path) -> None:
    kept = notes(tmp_path)
    for number in range(3):
        kept.add({"n": number})
    folder = tmp_path / "checkpoint" / "sources" / "bids"
    (folder / f"{2:012d}").unlink()
    with pytest.raises(Damaged, match="000000000002 to be intact; got no such file"):
        kept.all()
    (folder / f"{2:012d}").write_text("{}\n{}\n")
    with pytest.raises(Damaged, match="a truncated or changed record"):
        kept.all()

    def lost() -> None:
        raise Fenced("another run has the job")

    with pytest.raises(Fenced):
        SourceNotes(tmp_path, "bids", lost).add({"n": 9})
