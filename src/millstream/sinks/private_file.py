"""Creates the file of a SQLite store so that only its owner can read it."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_CREATING = threading.Lock()


def create_private_file(path: Path) -> None:
    """Create an empty file with mode 0600 if the file does not exist.

    An existing file is never opened: closing any descriptor of a file releases all POSIX locks
    that the process holds on it. That would include SQLite's locks, and the next process that
    closes the store would delete the write-ahead log while this process still uses it.
    """
    with _CREATING, suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
