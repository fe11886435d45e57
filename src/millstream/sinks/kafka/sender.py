"""How a batch's messages get into Kafka: two ways, one meaning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from millstream.kafka.protocol.transactions import GroupOffset
    from millstream.sinks.kafka.messages import Outgoing

TRANSACTION_MS = 60_000
CALL_SECONDS = 10.0


class Sender(Protocol):
    """One producer; with a transactional id what it sends appears with `commit`, or never.

    Every failure is a `KafkaException`. After one, the sender is opened again or let go; what
    it had begun is then ended as if it had never been.
    """

    def open(self) -> None:
        """Shut out who had this transactional id before, and end what they had begun."""

    def begin(self) -> None:
        """From here on everything belongs together."""

    def send(self, topic: str, some: Outgoing, most: int | None = None) -> None:
        """Append these messages; those with equal keys to one partition, in their order.

        `most` is how many bytes at once the topic takes, where it is known.
        """

    def sign(self, offset: GroupOffset) -> None:
        """Write an offset of a group that counts if the rest does."""

    def commit(self) -> None:
        """Return when all of it is in, on every replica in sync."""

    def lost_sight(self) -> bool:
        """Whether brokers were away since it was opened, so that it is better made anew."""

    def finish(self) -> None:
        """Close it, once readers can see what was committed: that comes a moment later."""

    def close(self) -> None:
        """Let go of connections; a transaction that is open stays so until it is fenced."""
