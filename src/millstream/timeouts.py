"""Timeouts for calls of client libraries that may never return."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def bounded(call: Callable[[], Any], seconds: float) -> Any:
    """Return what the call returns, or raise what it raises; TimeoutError after `seconds`.

    A call that does not return keeps its thread and resources; the caller drops the client
    in which it hangs.
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
