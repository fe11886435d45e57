"""The pace of a run: when the next batch may start.

rows come steadily     a batch every `latency`, with the rows that came meanwhile
more than fits a batch  at once
after a quiet time      at once, with the first row
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_LOOK_SECONDS = 0.5
_FASTEST, _SLOWEST = 0.02, 0.5  # looks of a run with nothing to do
_UNWATCHED = 0.05


class Pace:
    """Batches that took everything are `latency` seconds apart, from start to start.

    `wake` ends the waits of an idle run; set it when records arrive, and after
    `stop`.
    """

    def __init__(self, latency: float, stop: threading.Event) -> None:
        self._latency, self._stop, self.wake = latency, stop, threading.Event()
        self._began = 0.0

    def begin(self) -> None:
        """A batch starts, if there is something to do."""
        self._began = time.monotonic()

    def idle(self, *, watched: bool) -> None:
        """Wait until something may be there to do: records, if the sources are `watched`, or what
        the clock makes due."""
        slowest = _SLOWEST if watched else _UNWATCHED
        seconds = min(max(2 * self._latency, _FASTEST), slowest)
        if self.wake.wait(seconds) and not self._stop.is_set():
            self.wake.clear()

    def wait(self, full: Callable[[], bool]) -> None:
        """Wait until the next batch may start: when the time is over, as much waits as a batch may
        have, or the run is stopped."""
        end = self._began + self._latency
        while (left := end - time.monotonic()) > 0:
            if self._stop.wait(min(left, _LOOK_SECONDS)) or (left > _LOOK_SECONDS and full()):
                return
