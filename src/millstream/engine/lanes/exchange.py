"""How partial results reach the kernels of a wide batch: between two jobs, by ranges of buckets.

    task that reads    send(parts)        -->  Exchanged, which it returns to the driver
    the driver         watermarks; which Exchanged the kernels get
    task with kernels  receive(exchanged) -->  the rows of its part, side by side

A task that runs twice sends twice; only what a finished task has returned is received.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Exchanged:
    """What one task has sent: the side of the step, and the number of record batches per part.

    `name` is how the exchange finds it. With `broadcast` there is one part, which every part of
    the state receives.
    """

    name: str
    side: int
    parts: tuple[int, ...]
    bytes: int
    broadcast: bool = False

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> Self:
        return cls(**{**body, "parts": tuple(body["parts"])})


class Exchange(Protocol):
    """One way from the tasks that read to those that run kernels; it is pickled with both."""

    def send(
        self, parts: Sequence[Sequence[pa.Table]], side: int, *, broadcast: bool = False
    ) -> Exchanged:
        """In a task: send the tables of every part of the state."""

    def receive(
        self, exchanged: Sequence[Exchanged], part: int, sides: int
    ) -> list[list[pa.Table]]:
        """In a task: the tables of one part of the state, by side of the step.

        Broadcast tables are one more side after them.
        """

    def remove(self, exchanged: Sequence[Exchanged]) -> None:
        """On the driver, after the batch: free what was sent."""
