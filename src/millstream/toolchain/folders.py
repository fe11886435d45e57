"""Where Millstream stores files: the cache may be deleted at any time, the home may not."""

from __future__ import annotations

import errno
import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.errors import InvalidSpec, SetupFailed

if TYPE_CHECKING:
    from collections.abc import Iterator

_NO_ROOM = {errno.ENOSPC: "No space left on device", errno.EDQUOT: "Disk quota exceeded",
            errno.EFBIG: "File too large"}  # fmt: skip


def cache_folder() -> Path:
    """The folder for replaceable files: `MILLSTREAM_CACHE`, else the user's cache folder."""
    return _made("MILLSTREAM_CACHE", _user_cache() / "millstream")


def home_folder() -> Path:
    """The folder for permanent files (brokers' data): `MILLSTREAM_HOME`, else `~/.millstream`.

    Only its owner can access it (0700).
    """
    return _made("MILLSTREAM_HOME", Path("~/.millstream"))


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def written_in(folder: Path, variable: str = "MILLSTREAM_CACHE") -> Iterator[None]:
    """Run a block that writes to `folder`, and explain why writing failed.

    Raises:
        SetupFailed: replaces the `OSError` of a write.
    """
    try:
        yield
    except OSError as error:
        raise unwritable(folder, error, variable) from error


def refuse_file_above(path: Path, what: str) -> None:
    """Refuse a folder that can never be made.

    Raises:
        InvalidSpec: the path, or one above it, is a file.
    """
    for place in (path.absolute(), *path.absolute().parents):
        if place.is_dir():
            return
        if place.exists():
            where = "a file" if place == path.absolute() else f"the file {place} above it"
            raise InvalidSpec(
                f"{what} needs the folder {path}", got=where, do="choose another path"
            )


def unwritable(folder: Path, error: OSError, variable: str = "MILLSTREAM_CACHE") -> SetupFailed:
    """The error for a folder that cannot be written to: no space left, or no permission."""
    if error.errno in _NO_ROOM:
        return no_room(folder, _NO_ROOM[error.errno], variable)
    return SetupFailed(
        f"Millstream needs to write in {folder}",
        got=error.strerror or str(error),
        do=f"make the folder writable or set {variable} to one that is",
    )


def no_room(folder: Path, cause: str, variable: str = "MILLSTREAM_CACHE") -> SetupFailed:
    """The error for a full disk, detected by Python or by Java."""
    return SetupFailed(
        f"Millstream needs space on the disk of {folder}",
        got=cause,
        do=f"free some space there or set {variable} to a folder on another disk",
    )


def _made(variable: str, otherwise: Path) -> Path:
    named = os.environ.get(variable)
    folder = Path(named) if named else otherwise
    try:
        folder = folder.expanduser().absolute()
    except RuntimeError as error:
        raise SetupFailed(
            f"Millstream needs a folder for its files, and {otherwise} cannot be resolved",
            got=str(error),
            do=f"set HOME or {variable}",
        ) from error
    with written_in(folder, variable):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def _user_cache() -> Path:
    if sys.platform == "darwin":
        return Path("~/Library/Caches")
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return named if named.is_absolute() else Path("~/.cache")
