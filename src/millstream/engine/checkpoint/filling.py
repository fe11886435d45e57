"""Warns of a disk that is filling, before it is full."""

from __future__ import annotations

import logging
import time
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.engine.checkpoint.cleaning import Sizes

LOG = logging.getLogger("millstream")
SHARE = 0.05  # of the disk; an operator needs time, and file systems slow down when nearly full
SPAN = 3600.0  # seconds that are looked back, and ahead
_AGAIN = 600.0
_LEAST = 60.0  # seconds between the first and the last look, for a trend


class Filling:
    """The free space beside a checkpoint: how much there is, and how fast it shrinks.

    It warns below a twentieth of the disk, or if the disk will be full within an hour, should it
    go on as in the last hour. The free space counts, not the checkpoint's own growth: the disk is
    shared with others.
    """

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()
        self._warned = float("-inf")
        self.warning: str | None = None

    def look(self, sizes: Sizes, now: float | None = None) -> None:
        """Take a sample; log the warning, at most every ten minutes."""
        at = time.monotonic() if now is None else now
        self._seen.append((at, sizes.free))
        while at - self._seen[0][0] > SPAN:
            self._seen.popleft()
        self.warning = self._warning(sizes)
        if self.warning is not None and at - self._warned >= _AGAIN:
            self._warned = at
            LOG.warning(self.warning)

    def _warning(self, sizes: Sizes) -> str | None:
        free = f"{sizes.free / 1e9:.1f} GB of {sizes.disk / 1e9:.0f} GB are free"
        if sizes.free < SHARE * sizes.disk:
            return f"the disk of the checkpoint is nearly full: {free}; free some space"
        (first, then), (last, now) = self._seen[0], self._seen[-1]
        if last - first < _LEAST or then <= now:
            return None
        left = now / ((then - now) / (last - first))
        if left > SPAN:
            return None
        minutes = f"about {left / 60:.0f} minutes"
        return f"the disk of the checkpoint will be full in {minutes}: {free}; free some space"
