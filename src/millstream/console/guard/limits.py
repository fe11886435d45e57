"""How much anybody may ask of the console: sizes, rates, times, readers."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from ipaddress import IPv6Address
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_OTHERS = "others"
_FORGET = 1.0  # seconds


@dataclass(frozen=True)
class Limits:
    """What one console bears. A client is an address; requests with the token are counted apart."""

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
    """A bucket for each client; clients beyond the most share one.

    Buckets that are full again are forgotten, at most once a second.
    """

    def __init__(self, rate: float, burst: int, most: int = 1_000) -> None:
        self._rate, self._burst, self._most = rate, burst, most
        self._buckets: dict[str, Bucket] = {}
        self._forgot = -math.inf

    def refused(self, client: str, *, take: bool = True) -> int:
        """0, or in how many seconds this client may come again."""
        return self._bucket(network(client)).refused(take=take)

    def _bucket(self, client: str) -> Bucket:
        if client not in self._buckets and len(self._buckets) >= self._most - 1:
            self._forget()
            if len(self._buckets) >= self._most - 1:
                client = _OTHERS
        return self._buckets.setdefault(client, Bucket(self._rate, self._burst))

    def _forget(self) -> None:
        now = time.monotonic()
        if now - self._forgot >= _FORGET:
            self._forgot = now
            self._buckets = {name: one for name, one in self._buckets.items() if not one.full}


def network(client: str) -> str:
    """The address that counts as one client: for IPv6 the first 64 bits, which one host has.

    >>> network("2001:db8::5"), network("::ffff:10.0.0.1"), network("10.0.0.1")
    ('2001:db8::', '10.0.0.1', '10.0.0.1')
    """
    if ":" not in client:
        return client
    try:
        address = IPv6Address(client)
    except ValueError:
        return client
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(IPv6Address(int(address) >> 64 << 64))
