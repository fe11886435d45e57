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

_RETRY_SECONDS = 30.0
_CALL_SECONDS = 1.0


class Transactions:
    """The transactions of one producer, one after another."""

    def __init__(self, client: Producer, link: Link) -> None:
        self._client, self._link = client, link
        self._initialised = False
        self.begun = False

    def begin(self) -> None:
        """Begin one; the first call aborts a transaction that an earlier producer left open."""
        if self.begun:
            raise InvalidInput(
                "a transaction needs the previous one to have ended", got="a nested one"
            )
        if self._link.fatal is not None:
            raise self._link.failure(self._link.fatal, "beginning a transaction")
        if not self._initialised:
            self._link.ping()
            self._retry("initialising the transactional id", self._client.init_transactions)
            self._initialised = True
        try:
            self._client.begin_transaction()
        except KafkaException as failed:
            raise self._link.failure(failed, "beginning a transaction") from None
        self.begun = True

    def commit(self) -> None:
        """Commit; if that fails, abort and raise."""
        try:
            self._retry("committing the transaction", self._client.commit_transaction)
        except MillstreamError:
            if self._link.fatal is None:
                self.abort()
            raise
        finally:
            self.begun = False

    def abort(self) -> None:
        """Abort: readers of committed records never see its records."""
        self.begun = False
        self._retry("aborting the transaction", self._client.abort_transaction)

    def add_offsets(self, positions: Mapping[Slot, int], group: Any) -> None:
        """Commit these offsets of a group with the transaction."""
        offsets = [TopicPartition(*slot, offset) for slot, offset in positions.items()]
        self._retry(
            "sending offsets",
            lambda wait: self._client.send_offsets_to_transaction(offsets, group, wait),
        )

    def _retry(self, doing: str, call: Callable[[float], None]) -> None:
        until = time.monotonic() + _RETRY_SECONDS
        while True:
            try:
                return call(_CALL_SECONDS)
            except KafkaException as failed:
                if not failed.args[0].retriable() or time.monotonic() > until:
                    raise self._link.failure(failed, doing) from None
