"""Archived state files are restored unchanged; files that no commit needs are deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.engine.checkpoint.records import archive as archive_module
from millstream.engine.checkpoint.records.archive import Archive
from millstream.errors import Damaged

if TYPE_CHECKING:
    from pathlib import Path


def files(folder: Path, first: int, count: int) -> dict[str, bytes]:
    """State files on disk, by their names."""
    found = {}
    for number in range(first, first + count):
        name = f"step/rows/{number:012d}-1-x.arrow"
        path = folder / "state" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        found[name] = f"state of {number} ".encode() * 50
        path.write_bytes(found[name])
    return found


def moved(folder: Path, archive: Archive, names: dict[str, bytes], needed: set[str]) -> None:
    for path in archive.add(set(names), needed):
        path.unlink()
    for name in names:
        (folder / "state" / name).unlink()


def test_archived_files_come_back_unchanged(tmp_path: Path) -> None:
    names = files(tmp_path, 1, 5)
    moved(tmp_path, Archive(tmp_path, 1), names, set(names))

    found = Archive(tmp_path)
    for name, content in names.items():
        assert found.restore(name)
        assert found.restore(name), "again changes nothing"
        assert (tmp_path / "state" / name).read_bytes() == content
    assert not found.restore("step/rows/000000000099-1-x.arrow")


def test_archives_stay_few_and_hold_no_more_than_twice_what_is_needed(tmp_path: Path) -> None:
    archive, kept = Archive(tmp_path, 1), dict[str, bytes]()
    for first in range(0, 400, 4):
        names = files(tmp_path, first, 4)
        kept = {**kept, **names}
        kept = dict(list(kept.items())[-40:])
        moved(tmp_path, archive, names, set(kept))

    packs = list((tmp_path / "archive").iterdir())
    assert len(packs) <= archive_module._MANY + 2
    assert sum(path.stat().st_size for path in packs) <= 3 * archive.size(kept) + 10_000
    found = Archive(tmp_path, 2)
    for name, content in kept.items():
        assert found.restore(name)
        assert (tmp_path / "state" / name).read_bytes() == content


def test_an_archive_that_was_cut_while_it_was_written_does_no_harm(tmp_path: Path) -> None:
    names = files(tmp_path, 1, 3)
    Archive(tmp_path, 1).add(set(names), set(names))
    (pack,) = (tmp_path / "archive").iterdir()
    pack.write_bytes(pack.read_bytes()[:-30])

    later = Archive(tmp_path, 2)
    later.add(set(), set(names))
    assert [name in later for name in names] == [True, True, False]
    moved(tmp_path, later, {"step/rows/000000000003-1-x.arrow": b""}, set(names))
    assert all(Archive(tmp_path).restore(name) for name in names)


def test_a_changed_copy_is_named(tmp_path: Path) -> None:
    names = files(tmp_path, 1, 1)
    moved(tmp_path, Archive(tmp_path, 1), names, set(names))
    (pack,) = (tmp_path / "archive").iterdir()
    whole = bytearray(pack.read_bytes())
    whole[-20] ^= 1
    pack.write_bytes(whole)

    found = Archive(tmp_path)
    assert not found.restore(next(iter(names))), "at its end, it was never whole"
    pack.write_bytes(bytes(whole) + bytes(pack_of(tmp_path)))
    with pytest.raises(Damaged, match=pack.name):
        Archive(tmp_path).restore(next(iter(names)))


def pack_of(folder: Path) -> bytes:
    """Another archive's bytes."""
    other = folder / "other"
    names = files(other, 9, 1)
    Archive(other, 1).add(set(names), set(names))
    (pack,) = (other / "archive").iterdir()
    return pack.read_bytes()
