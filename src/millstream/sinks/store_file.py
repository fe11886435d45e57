"""The file of a SQLite store, made for its owner alone."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_MAKING = threading.Lock()


def made(path: Path) -> None:
    """Make an empty file for its owner alone, if there is none.

    One that is there is never opened: by closing any descriptor of a file a process gives up
    every lock it holds on it. SQLite's locks would go with them, and the next process to close
    the store would take the write-ahead log from under the connections of this one.
    """
    with _MAKING, suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
