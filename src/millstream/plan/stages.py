"""Stages: a pipeline cut at its shuffles, in the order a batch runs them.

A stage reads rows from sources or from the results of earlier stages in this batch, runs
its stateless steps, and ends in a stateful step or in outputs. An output directly after a
stateful step needs no separate stage: it writes what the step emits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.plan.graph import HIDDEN_TIME, Node, Output, Read, Stateful, ancestry
from millstream.plan.names import step_names

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


SIGN, TIME, POSITION = "_sign", "_time", "_position"


@dataclass(frozen=True, eq=False)
class Side:
    """One input of a stage: a tree of stateless steps, and where its rows come from."""

    tree: Node
    leaves: tuple[Read | Stateful, ...]

    @property
    def carried(self) -> tuple[str, ...]:
        """Extra columns besides the user's and the origin: the sign if rows may be retracted,
        the time of a change and its position in a database's log."""
        sign = [SIGN] if any(leaf.corrects for leaf in self.leaves) else []
        time = [TIME] if self.tree.time == HIDDEN_TIME else []
        logged = any(isinstance(leaf, Read) and leaf.changes for leaf in self.leaves)
        return (*sign, *time, *([POSITION] if logged else []))

    @property
    def bare(self) -> bool:
        """Whether the rows come from one source or step without any SQL."""
        return self.tree in self.leaves


@dataclass(frozen=True, eq=False)
class Stage:
    """The rows of its sides go into `step` or straight to outputs.

    A step has one side per input, outputs have one.
    """

    name: str
    sides: tuple[Side, ...]
    step: Stateful | None
    outputs: tuple[Output, ...]

    @property
    def leaves(self) -> tuple[Read | Stateful, ...]:
        """The sources and steps that rows come from, each once."""
        return tuple(dict.fromkeys(leaf for side in self.sides for leaf in side.leaves))

    @property
    def trees(self) -> tuple[Node, ...]:
        """The tree of each side."""
        return tuple(side.tree for side in self.sides)


@dataclass(frozen=True, eq=False)
class Stages:
    """A pipeline as stages, with the names of its reads and steps."""

    reads: dict[str, Read]
    steps: dict[str, Stateful]
    stages: tuple[Stage, ...]
    names: dict[Stateful | Read, str]

    def reporter(self, read: Read) -> Stage:
        """The stage that reports what was read from a source: the first that reads it."""
        return next(stage for stage in self.stages if read in stage.leaves)


def cut(outputs: Sequence[Output]) -> Stages:
    """Cut the graph of these outputs into stages."""
    names = step_names(outputs)
    stages: list[Stage] = []
    for node in ancestry(outputs):
        if isinstance(node, Stateful):
            direct = tuple(output for output in outputs if output.input is node)
            stages.append(Stage(names[node], _sides(*node.inputs), node, direct))
    indirect: dict[int, list[Output]] = {}
    for output in outputs:
        if not isinstance(output.input, Stateful):
            indirect.setdefault(id(output.input), []).append(output)
    for group in indirect.values():
        stages.append(Stage(group[0].name, _sides(group[0].input), None, tuple(group)))
    return Stages(
        reads={name: node for node, name in names.items() if isinstance(node, Read)},
        steps={name: node for node, name in names.items() if isinstance(node, Stateful)},
        stages=tuple(stages),
        names=names,
    )


def _sides(*trees: Node) -> tuple[Side, ...]:
    return tuple(Side(tree, tuple(leaves(tree))) for tree in trees)


def leaves(tree: Node) -> Iterator[Read | Stateful]:
    """The sources and steps that a tree of stateless steps reads from, each once."""
    seen: set[int] = set()
    stack = [tree]
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, Read | Stateful):
            yield node
        else:
            stack.extend(reversed(node.inputs))
