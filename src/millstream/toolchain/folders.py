"""Where Millstream keeps things: the cache may be deleted at any time, the home may not."""

from __future__ import annotations

import errno
import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.errors import SetupFailed

if TYPE_CHECKING:
    from collections.abc import Iterator

_NO_ROOM = {errno.ENOSPC: "No space left on device", errno.EDQUOT: "Disk quota exceeded",
            errno.EFBIG: "File too large"}  # fmt: skip


def cache_folder() -> Path:
    """What can be fetched or made again: `MILLSTREAM_CACHE`, else the user's cache folder."""
    return _made("MILLSTREAM_CACHE", _user_cache() / "millstream")


def home_folder() -> Path:
    """What cannot be made again, brokers' data first: `MILLSTREAM_HOME`, else `~/.millstream`.

    Made for its owner alone (0700).
    """
    return _made("MILLSTREAM_HOME", Path("~/.millstream"))


@contextmanager
def written_in(folder: Path, variable: str = "MILLSTREAM_CACHE") -> Iterator[None]:
    """Run writes into `folder`, saying in one sentence why they failed: full, closed, absent.

    Raises:
        SetupFailed: in place of the `OSError` that writing met.
    """
    try:
        yield
    except OSError as error:
        raise unwritable(folder, error, variable) from error


def unwritable(folder: Path, error: OSError, variable: str = "MILLSTREAM_CACHE") -> SetupFailed:
    """The sentence for a folder that took no more: no room is told apart from no permission."""
    if error.errno in _NO_ROOM:
        return no_room(folder, _NO_ROOM[error.errno], variable)
    return SetupFailed(
        f"Millstream needs to write in {folder}",
        got=error.strerror or str(error),
        do=f"open the folder for writing or set {variable} to one you may write in",
    )


def no_room(folder: Path, cause: str, variable: str = "MILLSTREAM_CACHE") -> SetupFailed:
    """The sentence for a full disk, whoever met it: Python or a Java underneath."""
    return SetupFailed(
        f"Millstream needs room on the disk of {folder}",
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
            f"Millstream needs a folder to keep things in and finds none for {otherwise}",
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
