"""The shop of the demo: sends its page views in the background, at a steady pace."""

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
    """A shop that sends for the length of a `with` block; it can close for a while meanwhile."""

    def __init__(self, cluster: Cluster, *, seed: int, rate: float) -> None:
        self._cluster, self._rate = cluster, rate
        self._records = shop_records(seed, rate)
        self._ending, self._open = threading.Event(), threading.Event()
        self._open.set()
        self._still = threading.Event()
        self.sent = self.late = self.broken = 0
        self.problem: MillstreamError | None = None

    @contextmanager
    def open(self) -> Iterator[None]:
        """Sends for the length of the block."""
        thread = threading.Thread(target=self._send, name="shop")
        thread.start()
        try:
            yield
        finally:
            self._ending.set()
            thread.join()

    def toggle(self) -> bool:
        """Close the shop, or open it again; whether it is open now.

        When it is closed, everything it has sent is in the log.
        """
        if self._open.is_set():
            self._still.clear()
            self._open.clear()
            self._still.wait()
            return False
        self._open.set()
        return True

    def _send(self) -> None:
        from millstream.kafka.clients.producing.producer import Producer

        try:
            with Producer(self._cluster) as producer:
                last, due = time.monotonic(), 0.0
                while not self._ending.wait(_TICK):
                    now = time.monotonic()
                    due, last = due + (now - last) * self._rate, now
                    if not self._open.is_set():
                        producer.flush()
                        self._still.set()
                        due = 0.0
                    for _ in range(int(due)):
                        self._send_one(producer)
                    due -= int(due)
        except MillstreamError as problem:
            self.problem = problem
        finally:
            self._still.set()

    def _send_one(self, producer: Producer) -> None:
        record = next(self._records)
        producer.send(TOPIC, record.value(datetime.now(UTC)), key=record.key())
        self.late += record.late
        self.broken += record.broken
        self.sent += 1
