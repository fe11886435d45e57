"""Kafka without transactions, for `delivery="at_least_once"`: faster, and a crash may repeat."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.sinks.topic_sender import sender
from millstream.sinks.topic_writer import TopicWriter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.sinks.spec import Staged
    from millstream.sinks.topic_sender import Sender


class PlainTopicWriter(TopicWriter):
    """One cluster opened for one run; a batch is there when every record is acknowledged by all."""

    def recover(self, expected: str | None) -> str | None:
        """There is no ledger: what the last commit says is believed, and nobody is fenced."""
        self._owned()
        self._connect()
        return expected

    def refresh(self) -> None:
        """There is no ledger that could be forgotten."""

    def _made(self, job: str) -> Sender:
        return sender(self._cluster, None)

    def write(self, intent: str, batch: int, outputs: Sequence[Staged]) -> None:
        """Send a batch's rows, all of them again if one of them did not get through."""
        self._make_topics({staged.sink.name for staged in outputs})
        self._put(intent, batch, outputs)

    def _attempt(self, intent: str, batch: int, outputs: Sequence[Staged]) -> bool:
        from confluent_kafka import KafkaError, KafkaException

        try:
            sending = self._opened_sender()
            sending.begin()
            self._send(sending, outputs)
            self._told("before a sink's commit")
            sending.commit()
        except KafkaException as raised:
            error = raised.args[0]
            self._why = error.str()
            if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
                raise self._too_large() from raised
            self._connect()
            return False
        self._told("after a sink's commit")
        return True
