"""A call into a client library that may never come back, with an end to the waiting."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def bounded(call: Callable[[], Any], seconds: float) -> Any:
    """What the call returns or raises, or TimeoutError after so many seconds.

    A call that does not come back keeps its thread and what it holds; the caller lets go
    of the client it hangs in.
    """
    outcome: list[tuple[bool, Any]] = []

    def run() -> None:
        try:
            outcome.append((True, call()))
        except BaseException as error:
            outcome.append((False, error))

    thread = threading.Thread(target=run, name="bounded-call", daemon=True)
    thread.start()
    thread.join(seconds)
    if not outcome:
        raise TimeoutError(f"no answer in {seconds:.0f} s")
    came_back, value = outcome[0]
    if not came_back:
        raise value
    return value
