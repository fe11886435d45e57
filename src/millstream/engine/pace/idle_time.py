"""How long a run has been idle: since when every look for work found none."""

from __future__ import annotations

import time

_FRESH = 2.0


class IdleTime:
    """Updated by the run after each look for work; read from any thread.

    A run that has not looked for a while, because a batch is long or a system is down, is busy and
    not idle.
    """

    def __init__(self) -> None:
        self._looks: tuple[float, float] | None = None

    def looked(self, *, found: bool) -> None:
        """The run has looked for work."""
        now = time.monotonic()
        self._looks = None if found else (self._looks[0] if self._looks else now, now)

    def seconds(self) -> float:
        """How long there has been nothing to do; 0 if the run is busy."""
        looks = self._looks
        if looks is None or time.monotonic() - looks[1] > _FRESH:
            return 0.0
        return looks[1] - looks[0]
