"""How far the event time of a node has come, from how far its sources have.

    source watermarks, results of earlier steps -- unions, inputs of a step --> a watermark per side

An idle source holds nobody back where there are others: a side of a union that is idle is
left out of the smallest, and so is an idle input of a step, which goes on with the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.event_time.batch_time import MIN_TIME
from millstream.plan.graph import HIDDEN_TIME, Node, Read, Stateful, Union

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@dataclass(frozen=True)
class Reach:
    """Watermarks of nodes: `source` gives those of reads, `given` those of what steps emit."""

    source: Callable[[Read], int]
    given: Callable[[Stateful], int]
    idle: Callable[[Read], bool]

    def of(self, node: Node) -> int:
        """The watermark of a node's rows."""
        if isinstance(node, Read):
            return self.source(node)
        if isinstance(node, Stateful):
            return self.given(node)
        if isinstance(node, Union):
            awake = [side for side in node.sides if not self.silent(side)]
            return min(self.of(side) for side in awake or node.sides)
        return self.of(node.inputs[0])

    def sides(self, trees: Sequence[Node], before: Sequence[int]) -> tuple[int, ...]:
        """The watermark of each input of a step: never behind the one it has had.

        An input that was idle may come back behind what the others have reached. A table, whose
        watermark follows the clock, carries no stream with it.
        """
        reached = [self.of(tree) for tree in trees]
        awake = [at for tree, at in zip(trees, reached, strict=True)
                 if not self.silent(tree) and tree.time != HIDDEN_TIME]  # fmt: skip
        least = min(awake, default=MIN_TIME)
        return tuple(
            max(had, at, least) if self.silent(tree) else max(had, at)
            for tree, at, had in zip(trees, reached, before, strict=True)
        )

    def silent(self, node: Node) -> bool:
        """Whether everything a node takes rows from is idle."""
        if isinstance(node, Read):
            return self.idle(node)
        return bool(node.inputs) and all(self.silent(below) for below in node.inputs)
