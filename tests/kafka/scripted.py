"""A scripted client: rebalances happen in the calls where they could do harm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import Message, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Step = Callable[["ScriptedClient"], list[Message]]


def message(partition: int, offset: int, topic: str = "t") -> Message:
    """A record whose value is its partition and offset."""
    return Message(
        topic=topic,
        partition=partition,
        offset=offset,
        value=f"{partition}:{offset}".encode(),
        timestamp=(1, 0),
    )


class ScriptedClient:
    """Each call of `consume` is one step of the script; after the last, `ended` is called."""

    def __init__(self, *steps: Step, topic: str = "t") -> None:
        self._steps = list(steps)
        self._topic = topic
        self.ended: Callable[[], None] = lambda: None
        self._given: Any = None
        self._taken: Any = None
        self._lost: Any = None

    def give(self, *partitions: int) -> None:
        self._given(self, self._places(partitions))

    def take_away(self, *partitions: int) -> None:
        self._taken(self, self._places(partitions))

    def lose(self, *partitions: int) -> None:
        self._lost(self, self._places(partitions))

    def _places(self, partitions: Sequence[int]) -> list[TopicPartition]:
        return [TopicPartition(self._topic, partition) for partition in partitions]

    def consume(self, most: int, wait: float) -> list[Message]:
        if self._steps:
            return self._steps.pop(0)(self)
        self.ended()
        return []

    def subscribe(
        self, topics: Sequence[str], *, on_assign: Any, on_revoke: Any, on_lost: Any
    ) -> None:
        self._given, self._taken, self._lost = on_assign, on_revoke, on_lost

    def committed(self, wanted: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        return [TopicPartition(at.topic, at.partition, 0) for at in wanted]

    def incremental_assign(self, places: object) -> None: ...

    def incremental_unassign(self, places: object) -> None: ...

    def close(self) -> None: ...
