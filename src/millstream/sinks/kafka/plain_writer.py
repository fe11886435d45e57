"""Kafka without transactions, for `delivery="at_least_once"`: faster, and a crash may repeat."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from millstream.sinks.kafka.writer import TopicWriter, open_sender

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.sinks.kafka.sender import Sender
    from millstream.sinks.spec import Staged


class PlainTopicWriter(TopicWriter):
    """One cluster opened for one run; a batch is there when every record is acknowledged by all."""

    _missed: Any = None
    _failing: float | None = None

    def recover(self, expected: str | None) -> str | None:
        """There is no ledger: what the last commit says is believed, and nobody is fenced."""
        self._owned()
        self._connect()
        return expected

    def refresh(self) -> None:
        """There is no ledger that could be forgotten."""

    def _made(self, job: str) -> Sender:
        return open_sender(self._cluster, None)

    def post(self, outputs: Sequence[Staged]) -> None:
        """Send rows without waiting until they are in; `posted` does."""
        from confluent_kafka import KafkaException

        self._missed = None
        try:
            self._opened_sender().begin()
            self._send(self._opened_sender(), outputs)
        except KafkaException as raised:
            self._missed = raised

    def posted(self) -> bool:
        """Whether all that was posted is in; if not, it has to be posted again.

        Raises:
            Unavailable: nothing has got through for two minutes.
        """
        from confluent_kafka import KafkaException

        missed, self._missed = self._missed, None
        try:
            if missed is None:
                self._opened_sender().commit()
        except KafkaException as raised:
            missed = raised
        if missed is None:
            self._failing = None
            return True
        self._failing = self._failing or time.monotonic()
        self._begin_anew(missed, ())
        if time.monotonic() - self._failing > self._patience:
            raise self._no_success("a piece of rows")
        return False

    def write(self, intent: str, batch: int, outputs: Sequence[Staged]) -> None:
        """Send a batch's rows, all of them again if one of them did not get through."""
        self._make_topics_of(outputs)
        self._put(intent, batch, outputs)

    def _attempt(self, intent: str, batch: int, outputs: Sequence[Staged]) -> bool:
        from confluent_kafka import KafkaException

        try:
            sending = self._opened_sender()
            sending.begin()
            self._send(sending, outputs)
            self._told("before a sink's commit")
            sending.commit()
        except KafkaException as raised:
            self._begin_anew(raised, outputs)
            return False
        self._told("after a sink's commit")
        return True

    def _begin_anew(self, raised: Any, outputs: Sequence[Staged]) -> None:
        """Another sender, for one that has failed; what is too large stays so."""
        from confluent_kafka import KafkaError

        error = raised.args[0]
        self._why = error.str()
        if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            raise self._too_large(outputs) from raised
        self._connect()
