"""Clears a throw-away broker and its folder when their owner is gone.

Run as `python -m millstream.testing.watchdog OWNER FOLDER` by `local_broker`, with stdin a pipe
from the owner. The pipe ends with the owner, unless a fork of the owner keeps it open: so the
watchdog also looks whether the owner, its parent, still is.
"""

from __future__ import annotations

import os
import select
import shutil
import sys
import time
from pathlib import Path

from millstream.log import broker

_LOOK = 0.5
_PATIENCE = 10.0


def watch(owner: int, folder: Path) -> None:
    """Wait for the owner's end, then clear away what it left behind."""
    while os.getppid() == owner and not select.select([sys.stdin], [], [], _LOOK)[0]:
        pass
    until = time.monotonic() + _PATIENCE
    while folder.exists() and time.monotonic() < until:
        broker.kill(folder)
        shutil.rmtree(folder, ignore_errors=True)  # a Java that formats may still be writing
        time.sleep(0.05)


if __name__ == "__main__":
    watch(int(sys.argv[1]), Path(sys.argv[2]))
