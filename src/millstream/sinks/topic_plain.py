"""Kafka without transactions, for `delivery="at_least_once"`: faster, and a crash may repeat."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.sinks.topic_writer import TopicWriter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.sinks.spec import Staged

_FLUSH_SECONDS = 30.0


class PlainTopicWriter(TopicWriter):
    """One cluster opened for one run; a batch is there when every record is acknowledged by all."""

    def recover(self, expected: str | None) -> str | None:
        """There is no ledger: what the last commit says is believed, and nobody is fenced."""
        self._owned()
        self._connect()
        return expected

    def refresh(self) -> None:
        """There is no ledger that could be forgotten."""

    def _kind(self, job: str) -> dict[str, str]:
        return {"enable.idempotence": "true", "acks": "all"}

    def _extras(self) -> dict[str, Any]:
        return {**super()._extras(), "on_delivery": self._hear_of,
                "delivery.report.only.error": True}  # fmt: skip

    def _hear_of(self, error: Any, message: Any) -> None:
        """Only told of what was not delivered."""
        self._refused.append(error)

    def _connect(self) -> None:
        self._refused: list[Any] = []
        self._producer = self._made(self._job)

    def write(self, intent: str, batch: int, outputs: Sequence[Staged]) -> None:
        """Send a batch's rows, all of them again if one of them did not get through."""
        self._make_topics({staged.sink.name for staged in outputs})
        self._put(intent, batch, outputs)

    def _attempt(self, intent: str, batch: int, outputs: Sequence[Staged]) -> bool:
        from confluent_kafka import KafkaException

        try:
            for staged in outputs:
                self._send(staged)
            self._told("before a sink's commit")
            left = self._producer.flush(_FLUSH_SECONDS)
        except KafkaException as raised:
            self._refused.append(raised.args[0])
            left = len(self._producer)
        if left or self._refused:
            self._give_up(left)
            return False
        self._told("after a sink's commit")
        return True

    def _give_up(self, left: int) -> None:
        """Let go of the producer; what it still holds would arrive out of order."""
        from confluent_kafka import KafkaError

        refused = self._refused[0] if self._refused else None
        self._why = f"{left} records without an answer" if refused is None else refused.str()
        self._producer.purge()
        self._connect()
        if refused is not None and refused.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            raise self._too_large()
