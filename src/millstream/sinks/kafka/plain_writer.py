"""Writes to Kafka without transactions, for `delivery="at_least_once"`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from millstream.sinks.kafka.writer import TopicWriter, open_sender

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.sinks.kafka.sender import Sender
    from millstream.sinks.spec import Staged


class PlainTopicWriter(TopicWriter):
    """One cluster, opened for one run; a batch is written when all replicas acknowledge it."""

    _error: Any = None
    _failing_since: float | None = None

    def recover(self, expected: str | None) -> str | None:
        """Connect. There is no ledger: trust the last commit and fence no one."""
        self._opening.check_owned()
        self._connect()
        return expected

    def refresh(self) -> None:
        """There is no ledger that could expire."""

    def _open_sender(self, job: str) -> Sender:
        return open_sender(self._cluster, None)

    def post(self, outputs: Sequence[Staged]) -> None:
        """Send rows without waiting for acknowledgements; `flush` waits."""
        from confluent_kafka import KafkaException

        self._error = None
        try:
            self._current_sender().begin()
            self._send(self._current_sender(), outputs)
        except KafkaException as raised:
            self._error = raised

    def flush(self) -> bool:
        """Wait for acknowledgements; False if the rows must be posted again.

        Raises:
            Unavailable: all attempts have failed for two minutes.
        """
        from confluent_kafka import KafkaException

        error, self._error = self._error, None
        try:
            if error is None:
                self._current_sender().commit()
        except KafkaException as raised:
            error = raised
        if error is None:
            self._failing_since = None
            self._answered()
            return True
        self._failing_since = self._failing_since or time.monotonic()
        self._replace_sender(error, ())
        if time.monotonic() - self._failing_since > self._opening.patience:
            raise self._no_success("a chunk of rows")
        return False

    def write(self, intent: str, batch: int, outputs: Sequence[Staged]) -> None:
        """Send the rows of a batch; if one of them fails, send all of them again."""
        self._create_topics_of(outputs)
        self._retry(intent, batch, outputs)

    def _attempt(self, intent: str, batch: int, outputs: Sequence[Staged]) -> bool:
        from confluent_kafka import KafkaException

        try:
            sender = self._current_sender()
            sender.begin()
            self._send(sender, outputs)
            self._opening.on_step("before a sink's commit")
            sender.commit()
        except KafkaException as raised:
            self._replace_sender(raised, outputs)
            return False
        self._opening.on_step("after a sink's commit")
        self._answered()
        return True

    def _replace_sender(self, raised: Any, outputs: Sequence[Staged]) -> None:
        """Replace a failed sender; a record that is too large stops the job."""
        from confluent_kafka import KafkaError

        error = raised.args[0]
        self._reason = error.str()
        if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            raise self._too_large(outputs) from raised
        self._wait_for(self._reason)
        self._connect()
