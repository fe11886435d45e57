"""The folders of Millstream, and the errors if they cannot be written to."""

from __future__ import annotations

import errno
import stat
import sys
from typing import TYPE_CHECKING

import pytest

from millstream.errors import SetupFailed
from millstream.toolchain.folders import cache_folder, home_folder, unwritable, written_in

if TYPE_CHECKING:
    from pathlib import Path


def test_only_the_owner_can_access_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILLSTREAM_HOME", str(tmp_path / "deep" / "home"))

    assert home_folder() == tmp_path / "deep" / "home"
    assert stat.S_IMODE(home_folder().stat().st_mode) == 0o700


def test_by_default_they_are_folders_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MILLSTREAM_HOME", "MILLSTREAM_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    cache = "Library/Caches" if sys.platform == "darwin" else ".cache"

    assert home_folder() == tmp_path / ".millstream"
    assert cache_folder() == tmp_path / cache / "millstream"


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_each_platform_has_its_own_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, platform: str
) -> None:
    monkeypatch.delenv("MILLSTREAM_CACHE", raising=False)
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))

    expected = {"linux": tmp_path / "xdg", "darwin": tmp_path / "Library" / "Caches"}[platform]
    assert cache_folder() == expected / "millstream"


def test_a_relative_cache_home_is_ignored_as_the_xdg_standard_requires(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MILLSTREAM_CACHE", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", "somewhere")

    assert cache_folder() == tmp_path / ".cache" / "millstream"


def test_a_tilde_in_the_variable_is_the_users_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("MILLSTREAM_CACHE", "~/jars")

    assert cache_folder() == tmp_path / "jars"


def test_a_file_instead_of_the_folder_is_reported_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MILLSTREAM_CACHE", str(tmp_path / "file" / "cache"))

    with pytest.raises(SetupFailed) as failed:
        cache_folder()

    assert str(failed.value) == (
        f"Millstream needs to write in {tmp_path / 'file' / 'cache'}; got Not a directory; "
        "make the folder writable or set MILLSTREAM_CACHE to one that is"
    )


def test_no_space_and_no_permission_have_different_messages(tmp_path: Path) -> None:
    full = unwritable(tmp_path, OSError(errno.ENOSPC, "No space left on device"))
    closed = unwritable(tmp_path, OSError(errno.EACCES, "Permission denied"), "MILLSTREAM_HOME")

    assert str(full) == (
        f"Millstream needs space on the disk of {tmp_path}; got No space left on device; "
        "free some space there or set MILLSTREAM_CACHE to a folder on another disk"
    )
    assert str(closed).endswith("or set MILLSTREAM_HOME to one that is")


def test_only_disk_errors_are_explained(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), written_in(tmp_path):
        _ = 1 / 0
    with pytest.raises(SetupFailed), written_in(tmp_path):
        (tmp_path / "absent" / "file").write_text("")
