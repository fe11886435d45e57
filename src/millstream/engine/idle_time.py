"""For how long a run has had nothing to do: that no row comes means something only then."""

from __future__ import annotations

import time

_FRESH = 2.0


class IdleTime:
    """Told by the run after each look for work; asked from any thread.

    A run that does not come round to look, because a batch is long or a system is down, is not
    calm: slow reading is no silence.
    """

    def __init__(self) -> None:
        self._looks: tuple[float, float] | None = None

    def looked(self, *, found: bool) -> None:
        """The run has looked for work."""
        now = time.monotonic()
        self._looks = None if found else (self._looks[0] if self._looks else now, now)

    def seconds(self) -> float:
        """Since when nothing was to be done; 0 while that is not so."""
        looks = self._looks
        if looks is None or time.monotonic() - looks[1] > _FRESH:
            return 0.0
        return looks[1] - looks[0]
