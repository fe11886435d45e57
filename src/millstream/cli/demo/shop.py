"""The shop of the demo: produces page views in the background at a constant rate."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from millstream.cli.demo.views import shop_records
from millstream.errors import MillstreamError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.kafka.clients.producing.producer import Producer
    from millstream.kafka.settings import Cluster

TOPIC, PARTITIONS = "shop.views", 3
_TICK = 0.05


class Shop:
    """Produces page views during `with shop.open()`; it can be closed and reopened meanwhile."""

    def __init__(self, cluster: Cluster, *, seed: int, rate: float) -> None:
        self._cluster, self._rate = cluster, rate
        self._records = shop_records(seed, rate)
        self._stopping, self._open = threading.Event(), threading.Event()
        self._open.set()
        self._flushed = threading.Event()
        self.sent = self.late = self.broken = 0
        self.problem: MillstreamError | None = None

    @contextmanager
    def open(self) -> Iterator[None]:
        """Produce during the block."""
        thread = threading.Thread(target=self._send, name="shop")
        thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            thread.join()

    def toggle(self) -> bool:
        """Close or reopen the shop; return whether it is open now.

        A closed shop has flushed everything it produced.
        """
        if self._open.is_set():
            self._flushed.clear()
            self._open.clear()
            self._flushed.wait()
            return False
        self._open.set()
        return True

    def _send(self) -> None:
        from millstream.kafka.clients.producing.producer import Producer

        try:
            with Producer(self._cluster) as producer:
                last, due = time.monotonic(), 0.0
                while not self._stopping.wait(_TICK):
                    now = time.monotonic()
                    due, last = due + (now - last) * self._rate, now
                    if not self._open.is_set():
                        producer.flush()
                        self._flushed.set()
                        due = 0.0
                    for _ in range(int(due)):
                        self._send_one(producer)
                    due -= int(due)
        except MillstreamError as problem:
            self.problem = problem
        finally:
            self._flushed.set()

    def _send_one(self, producer: Producer) -> None:
        record = next(self._records)
        producer.send(TOPIC, record.value(datetime.now(UTC)), key=record.key())
        self.late += record.late
        self.broken += record.broken
        self.sent += 1
