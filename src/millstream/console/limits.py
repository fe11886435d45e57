"""How much anybody may ask of the console: sizes, rates, times, readers."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Limits:
    """What one console bears; a client is an address."""

    body: int = 4_096  # bytes of a request's body
    headers: int = 16_384  # bytes of a request's line and headers
    seconds: float = 10.0  # for a request to arrive whole
    stalled: float = 30.0  # for a reader to take what is sent to it
    rate: float = 50.0  # requests a second of one client …
    burst: int = 400  # … after so many at once
    guesses: float = 1.0  # wrong tokens a second of one client …
    guessing: int = 60  # … after so many at once
    readers: int = 200  # streams that are read at a time
    scans: int = 8  # topics that are looked through at a time
    rewinds: int = 4  # jobs that are rewound at a time
    log: int = 4_000_000  # characters of a log that are given at once
    connections: int = 500


@dataclass
class Bucket:
    """A token bucket: `burst` at once, and `rate` a second after that."""

    rate: float
    burst: int
    clock: Callable[[], float] = time.monotonic
    _left: float = field(init=False)
    _at: float = field(init=False)

    def __post_init__(self) -> None:
        self._left, self._at = float(self.burst), self.clock()

    def refused(self, *, take: bool = True) -> int:
        """0 and one less in the bucket; or in how many seconds there is one again."""
        now = self.clock()
        self._left = min(float(self.burst), self._left + (now - self._at) * self.rate)
        self._at = now
        if self._left < 1.0:
            return max(1, math.ceil((1.0 - self._left) / self.rate))
        self._left -= take
        return 0

    @property
    def full(self) -> bool:
        """Whether nothing is known of its owner that a new one would not know, too."""
        return self._left + (self.clock() - self._at) * self.rate >= self.burst


class Buckets:
    """A bucket for each client; those that are full again are forgotten."""

    def __init__(self, rate: float, burst: int, most: int = 1_000) -> None:
        self._rate, self._burst, self._most = rate, burst, most
        self._buckets: dict[str, Bucket] = {}

    def refused(self, client: str, *, take: bool = True) -> int:
        """0, or in how many seconds this client may come again."""
        if client not in self._buckets and len(self._buckets) >= self._most:
            self._forget()
        bucket = self._buckets.setdefault(client, Bucket(self._rate, self._burst))
        return bucket.refused(take=take)

    def _forget(self) -> None:
        self._buckets = {name: one for name, one in self._buckets.items() if not one.full}
        for name in list(self._buckets)[: max(0, len(self._buckets) - self._most + 1)]:
            del self._buckets[name]
