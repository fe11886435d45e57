"""Files nobody names are deleted; files that may still be written, or are not ours, stay."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.state.runs.orphans import collect
from millstream.state.runs.runs import file_name

if TYPE_CHECKING:
    from pathlib import Path


def test_only_old_unnamed_state_files_are_deleted(tmp_path: Path) -> None:
    kept, old, older, new = (file_name(batch, "i", "0") for batch in (3, 4, 2, 9))
    for name in (kept, old, older, new, "README", "12-notes.txt", "x.arrow"):
        (tmp_path / name).touch()
    assert collect(tmp_path, {kept}, batch_below=9) == [older, old]
    left = {kept, new, "README", "12-notes.txt", "x.arrow"}
    assert {path.name for path in tmp_path.iterdir()} == left
    assert collect(tmp_path, {kept}, batch_below=None) == [new]


def test_collecting_twice_deletes_nothing_more(tmp_path: Path) -> None:
    (tmp_path / file_name(1, "i")).touch()
    assert len(collect(tmp_path, set(), batch_below=5)) == 1
    assert collect(tmp_path, set(), batch_below=5) == []
