"""Notice that the reader of stdout is gone, even while there is nothing to write."""

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

_POLL_MS = 200


@contextmanager
def watch_stdout(on_closed: Callable[[], None]) -> Iterator[None]:
    """Call `on_closed` once when the reader at the other end of stdout's pipe is gone."""
    descriptor = _pipe()
    if descriptor is None:
        yield
        return
    done = threading.Event()
    watcher = threading.Thread(target=_watch, args=(descriptor, done, on_closed), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


def _watch(descriptor: int, done: threading.Event, on_closed: Callable[[], None]) -> None:
    poll = select.poll()
    poll.register(descriptor, 0)  # POLLERR and POLLHUP are always reported
    while not done.is_set():
        if poll.poll(_POLL_MS):
            on_closed()
            return


def _pipe() -> int | None:
    try:
        descriptor = sys.stdout.fileno()
        return descriptor if stat.S_ISFIFO(fstat(descriptor).st_mode) else None
    except (OSError, ValueError):
        return None
