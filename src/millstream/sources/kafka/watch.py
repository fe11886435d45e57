"""Waits for new records of a topic: while it is idle, that costs a request per second."""

from __future__ import annotations

import select
import time
from typing import TYPE_CHECKING

from millstream.kafka.protocol.connection import TIMEOUT
from millstream.kafka.protocol.fetch import parse_fetch_response
from millstream.kafka.protocol.messages import ProtocolError
from millstream.sources.kafka.wire_fetch import WireFetcher

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.kafka.protocol.connection import Address

_WATCH_MS = 1000


class TopicWatch(WireFetcher):
    """Holds a fetch of one byte at the end of a topic, on its own connections."""

    def wait(self, ends: Mapping[int, int]) -> bool:
        """As `Watch.wait`; committed records only.

        Raises:
            OSError: no answer, or an error; a retry may succeed.
        """
        try:
            return self._any_records(self._send(dict(ends), time.monotonic(), most=1,
                                                wait_ms=_WATCH_MS))  # fmt: skip
        except OSError:
            self.close()
            raise

    def _any_records(self, sent: dict[Address, list[int]]) -> bool:
        """Whether one of these responses has records; those after it are not waited for."""
        left = {self._connections[leader]: partitions for leader, partitions in sent.items()}
        while left:
            for connection in select.select(list(left), [], [], TIMEOUT)[0]:
                response = connection.receive()
                parts = parse_fetch_response(response, self._topic, left.pop(connection))
                if code := next((part.error for part in parts if part.error), 0):
                    raise ProtocolError(f"error {code}")
                if any(part.records for part in parts):
                    if left:
                        self.close()
                    return True
        return False

    def interrupt(self) -> None:
        """End a wait for responses in another thread, with an error there."""
        for connection in tuple(self._connections.values()):
            connection.interrupt()
