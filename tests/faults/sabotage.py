"""Ways to hurt a run from inside its process: guards switched off, tasks that stumble.

Nothing here is in the product. A test names a guard in the driver's configuration, and
the verifier must then find something wrong: otherwise the guard is not needed, or the
test does not see what it guards.
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
    """Whether this is the first to come here, over all processes and attempts.

    The file then holds its process id.
    """
    try:
        with marker.open("x") as file:
            file.write(f"{os.getpid()}")
    except FileExistsError:
        return False
    return True


def stumble(how: str) -> None:
    """Come to harm in the middle of a task: it raises, its process dies, or it is slow."""
    if how == "raises":
        raise ValueError("a task that stumbles once")
    if how == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(8.0)


def no_ledger() -> None:
    """Believe that nothing has been written since the last commit."""
    from millstream.sinks.kafka.writer import TopicWriter

    recover = TopicWriter.recover

    def forgetful(self: TopicWriter, expected: str | None) -> str | None:
        recover(self, expected)
        return expected

    TopicWriter.recover = forgetful  # type: ignore[method-assign]


GUARDS: dict[str, Callable[[], None]] = {"ledger": no_ledger}
