"""Faults inside the process of a run: guards switched off, tasks that fail.

None of this is in the product. A test names a guard in the driver's configuration, and the
verifier must then find an error: otherwise the guard is not needed, or the test does not cover
it.
"""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def first(marker: Path) -> bool:
    """Whether this is the first call with this file, over all processes and attempts.

    The file then holds its process id.
    """
    try:
        with marker.open("x") as file:
            file.write(f"{os.getpid()}")
    except FileExistsError:
        return False
    return True


def fail_task(how: str) -> None:
    """Fail in the middle of a task: raise, kill its process, or be slow."""
    if how == "raises":
        raise ValueError("a task that fails once")
    if how == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(8.0)


def no_ledger() -> None:
    """Recover without reading the ledger."""
    from millstream.sinks.kafka.writer import TopicWriter

    recover = TopicWriter.recover

    def without_ledger(self: TopicWriter, expected: str | None) -> str | None:
        recover(self, expected)
        return expected

    TopicWriter.recover = without_ledger  # type: ignore[method-assign]


GUARDS: dict[str, Callable[[], None]] = {"ledger": no_ledger}
