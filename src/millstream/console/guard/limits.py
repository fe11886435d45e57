"""Limits of the console: sizes, rates, timeouts, readers."""

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
    """Limits of one console. A client is an address; requests with the token count separately."""

    body: int = 4_096  # bytes of a request's body
    headers: int = 16_384  # bytes of a request's line and headers
    seconds: float = 10.0  # for a request to arrive completely
    stalled: float = 30.0  # for a client to read what is sent to it
    rate: float = 50.0  # requests a second of one client,
    burst: int = 400  # after a burst of this many
    guesses: float = 1.0  # wrong tokens a second of one client,
    guessing: int = 60  # after a burst of this many
    readers: int = 200  # open event streams
    scans: int = 8  # concurrent scans of topics
    rewinds: int = 4  # concurrent rewinds
    log: int = 4_000_000  # characters of a log in one response
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
        """Take a token and return 0; or return after how many seconds to retry."""
        now = self.clock()
        self._left = min(float(self.burst), self._left + (now - self._at) * self.rate)
        self._at = now
        if self._left < 1.0:
            return max(1, math.ceil((1.0 - self._left) / self.rate))
        self._left -= take
        return 0

    @property
    def full(self) -> bool:
        """Whether it is full again, so that a new one would behave the same."""
        return self._left + (self.clock() - self._at) * self.rate >= self.burst


class Buckets:
    """A bucket for each client; beyond `most` clients, the rest share one.

    Full buckets are removed, at most once a second.
    """

    def __init__(self, rate: float, burst: int, most: int = 1_000) -> None:
        self._rate, self._burst, self._most = rate, burst, most
        self._buckets: dict[str, Bucket] = {}
        self._forgot = -math.inf

    def refused(self, client: str, *, take: bool = True) -> int:
        """0, or after how many seconds this client may retry."""
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
    """The address that counts as one client: for IPv6 the /64 prefix, which one host owns.

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
