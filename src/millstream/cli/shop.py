"""The shop of the demo: sends its page views in the background, at a steady pace."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from millstream.cli.views import shop_records
from millstream.errors import MillstreamError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.log.settings import Cluster

TOPIC, PARTITIONS = "shop.views", 3
_TICK = 0.05


class Shop:
    """A shop that is open for the length of a `with` block, or until so many views are sent."""

    def __init__(self, cluster: Cluster, *, seed: int, rate: float, most: int | None) -> None:
        self._cluster, self._rate, self._most = cluster, rate, most
        self._records = shop_records(seed)
        self._closing = threading.Event()
        self.sent = self.late = self.broken = 0
        self.problem: MillstreamError | None = None

    @property
    def closed(self) -> bool:
        """Whether nothing more will come."""
        return self._closing.is_set() or self.problem is not None or self.sent == self._most

    @contextmanager
    def open(self) -> Iterator[None]:
        """Sends for the length of the block."""
        thread = threading.Thread(target=self._send, name="shop")
        thread.start()
        try:
            yield
        finally:
            self._closing.set()
            thread.join()

    def _send(self) -> None:
        from millstream.log.producer import Producer

        try:
            with Producer(self._cluster) as producer:
                opened = time.monotonic()
                while not self._closing.wait(_TICK) and self.sent != self._most:
                    due = int((time.monotonic() - opened) * self._rate)
                    for _ in range(min(due, self._most or due) - self.sent):
                        self._send_one(producer.send)
        except MillstreamError as problem:
            self.problem = problem

    def _send_one(self, send: object) -> None:
        assert callable(send)
        record = next(self._records)
        send(TOPIC, record.value(datetime.now(UTC)), key=record.key())
        self.late += record.late
        self.broken += record.broken
        self.sent += 1
