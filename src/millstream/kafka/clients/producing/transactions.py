"""Transactions: records and offsets that become visible together or not at all."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException, Producer, TopicPartition

from millstream.errors import InvalidInput, MillstreamError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from millstream.kafka.librdkafka import Link
    from millstream.kafka.positions import Slot

_PATIENCE = 30.0
_STEP = 1.0


class Transactions:
    """The transactions of one producer, one after another."""

    def __init__(self, client: Producer, link: Link) -> None:
        self._client, self._link = client, link
        self._initialised = False
        self.begun = False

    def begin(self) -> None:
        """Open one; the first time, end what a predecessor with the same id left open."""
        if self.begun:
            raise InvalidInput(
                "a transaction needs the one before it to have ended", got="a nested one"
            )
        if self._link.fatal is not None:
            raise self._link.failure(self._link.fatal, "beginning a transaction")
        if not self._initialised:
            self._link.ping()
            self._insist("opening the transactional id", self._client.init_transactions)
            self._initialised = True
        try:
            self._client.begin_transaction()
        except KafkaException as failed:
            raise self._link.failure(failed, "beginning a transaction") from None
        self.begun = True

    def commit(self) -> None:
        """Make it visible; when that is impossible, take it back and raise."""
        try:
            self._insist("committing the transaction", self._client.commit_transaction)
        except MillstreamError:
            if self._link.fatal is None:
                self.abort()
            raise
        finally:
            self.begun = False

    def abort(self) -> None:
        """Take it back: readers of committed records never see it."""
        self.begun = False
        self._insist("aborting the transaction", self._client.abort_transaction)

    def add_offsets(self, positions: Mapping[Slot, int], group: Any) -> None:
        """Commit these positions of a group with the transaction."""
        places = [TopicPartition(*slot, offset) for slot, offset in positions.items()]
        self._insist(
            "sending offsets",
            lambda wait: self._client.send_offsets_to_transaction(places, group, wait),
        )

    def _insist(self, doing: str, act: Callable[[float], None]) -> None:
        until = time.monotonic() + _PATIENCE
        while True:
            try:
                return act(_STEP)
            except KafkaException as failed:
                if not failed.args[0].retriable() or time.monotonic() > until:
                    raise self._link.failure(failed, doing) from None
