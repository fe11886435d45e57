"""Noticing that nobody reads any more, even while there is nothing to write."""

from __future__ import annotations

import select
import stat
import sys
import threading
from contextlib import contextmanager
from os import fstat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_LOOK = 200  # milliseconds between two looks at whether to end


@contextmanager
def watched_stdout(left: Callable[[], None]) -> Iterator[None]:
    """Calls `left` once when the reader at the other end of stdout's pipe has gone away."""
    descriptor = _pipe()
    if descriptor is None:
        yield
        return
    done = threading.Event()
    watcher = threading.Thread(target=_watch, args=(descriptor, done, left), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


def _watch(descriptor: int, done: threading.Event, left: Callable[[], None]) -> None:
    poll = select.poll()
    poll.register(descriptor, 0)  # POLLERR and POLLHUP are always told
    while not done.is_set():
        if poll.poll(_LOOK):
            left()
            return


def _pipe() -> int | None:
    try:
        descriptor = sys.stdout.fileno()
        return descriptor if stat.S_ISFIFO(fstat(descriptor).st_mode) else None
    except (OSError, ValueError):
        return None
