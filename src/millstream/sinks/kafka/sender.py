"""The protocol of senders, which write messages to Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from millstream.kafka.protocol.transactions import GroupOffset
    from millstream.sinks.kafka.messages import Outgoing

TRANSACTION_MS = 60_000
CALL_SECONDS = 10.0


class Sender(Protocol):
    """One producer; with a transactional id, messages become visible with `commit` or never.

    Every failure is a `KafkaException`. After one, the sender must be opened again or closed,
    which aborts the transaction.
    """

    def open(self) -> None:
        """Fence earlier producers with this transactional id, and abort their transactions."""

    def begin(self) -> None:
        """Begin a transaction."""

    def send(self, topic: str, chunk: Outgoing, limit: int | None = None) -> None:
        """Append messages; messages with equal keys go to one partition in order.

        `limit` is the topic's limit for a record batch in bytes, if known.
        """

    def commit_offset(self, offset: GroupOffset) -> None:
        """Commit a group's offset as part of the transaction."""

    def commit(self) -> None:
        """Commit; return when all in-sync replicas have the messages."""

    def disconnected(self) -> bool:
        """Whether brokers became unreachable since it was opened, so that it should be replaced."""

    def finish(self) -> None:
        """Wait until readers can see the committed messages, then close."""

    def close(self) -> None:
        """Close all connections; an open transaction remains open until it is fenced."""
