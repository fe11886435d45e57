"""Removes a temporary server and its folder after the process that started it has ended.

`watched` runs `python -m millstream.testing.watchdog OWNER FOLDER KIND`, with a pipe from the owner
as stdin. The pipe closes when the owner ends, unless a fork of the owner keeps it open: so the
watchdog also checks that the owner is still its parent.
"""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Kind = Literal["broker", "brokers", "postgres"]
_LOOK = 0.5
_PATIENCE = 10.0


@contextmanager
def watched(folder: Path, kind: Kind) -> Iterator[None]:
    """Remove the folder and its server at the end of the block or of this process.

    A second process waits for the end of a pipe that this one holds open, and checks that this one
    is still its parent. That needs no signal handler and no thread, and works for SIGKILL and on
    every POSIX system.
    """
    watchdog = subprocess.Popen(
        [sys.executable, "-m", "millstream.testing.watchdog", str(os.getpid()), str(folder), kind],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        try:
            _end_of(kind)(folder)
            shutil.rmtree(folder)
        finally:
            assert watchdog.stdin is not None
            watchdog.stdin.close()
            watchdog.wait()


def watch(owner: int, folder: Path, kind: Kind) -> None:
    """Wait for the owner's end, then remove its server and folder."""
    while os.getppid() == owner and not select.select([sys.stdin], [], [], _LOOK)[0]:
        pass
    end = _end_of(kind)
    until = time.monotonic() + _PATIENCE
    while folder.exists() and time.monotonic() < until:
        end(folder)
        shutil.rmtree(folder, ignore_errors=True)  # a server that is starting may still write
        time.sleep(0.05)


def _end_of(kind: Kind) -> Callable[[Path], object]:
    if kind == "broker":
        from millstream.kafka.local import broker

        return broker.kill
    if kind == "brokers":
        from millstream.kafka.local import cluster

        return cluster.kill
    from millstream.testing import postgres_process

    return postgres_process.end


if __name__ == "__main__":
    assert sys.argv[3] in ("broker", "brokers", "postgres")
    watch(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])  # type: ignore[arg-type]
