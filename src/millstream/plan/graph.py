"""The nodes of a pipeline: frozen values that point at what they take in.

Two nodes are the same only if they are the same object: a stream used twice is one
step with two readers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from millstream.plan.call_site import users_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from millstream.sinks.spec import Sink
    from millstream.sources.spec import Source
    from millstream.steps.distinct import Distinct
    from millstream.windows.aggregates import Aggregate
    from millstream.windows.spec import Tumbling

Columns = tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class EventTime:
    """Where a stream's event time is: a column, and microseconds to add to it."""

    column: str
    shift: int = 0


@dataclass(frozen=True, eq=False)
class Node:
    """One step. `columns` is None where only Spark can tell them (after `transform`).

    `at` is the line of the user's file that made it.
    """

    columns: Columns
    time: EventTime | None
    at: str | None = field(default_factory=users_line, repr=False, kw_only=True)

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The nodes this one takes rows from."""
        return ()


@dataclass(frozen=True, eq=False)
class Read(Node):
    """A source, and how its rows get a time."""

    source: Source
    name: str
    delay: int
    idle: int | None
    ahead: int | None


@dataclass(frozen=True, eq=False)
class Stateless(Node):
    """A row-wise step over one input."""

    input: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)


@dataclass(frozen=True, eq=False)
class Where(Stateless):
    """Rows for which the SQL is true."""

    sql: str


@dataclass(frozen=True, eq=False)
class Select(Stateless):
    """Named SQL expressions, replacing all columns; the item `*` stands for those there are."""

    items: tuple[tuple[str, str], ...]


@dataclass(frozen=True, eq=False)
class WithColumns(Stateless):
    """Named SQL expressions, beside the columns there are."""

    items: tuple[tuple[str, str], ...]


@dataclass(frozen=True, eq=False)
class Drop(Stateless):
    """All columns but these."""

    names: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Explode(Stateless):
    """One row per element of an array column."""

    column: str


@dataclass(frozen=True, eq=False)
class Transform(Stateless):
    """The user's own row-wise DataFrame function."""

    function: Callable[[Any], Any]


@dataclass(frozen=True, eq=False)
class Union(Node):
    """The rows of several streams with the same columns."""

    sides: tuple[Node, ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.sides


@dataclass(frozen=True, eq=False)
class Stateful(Node):
    """A step that remembers.

    `rest` takes the rows that come too late (None: the pipeline's own topic for them).
    `label` is its name, as its user gave it (`given`) or made from its kind and keys.
    """

    input: Node
    label: str
    rest: Sink | None
    given: bool = field(default=False, kw_only=True)

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    @property
    def kind(self) -> str:
        """The operator's word in names and plans."""
        raise NotImplementedError  # pragma: no cover


@dataclass(frozen=True, eq=False)
class Aggregated(Stateful):
    """Aggregates per key and window."""

    keys: tuple[str, ...]
    window: Tumbling
    aggregates: tuple[tuple[str, Aggregate], ...]

    @property
    def kind(self) -> str:
        return type(self.window).__name__.lower()


@dataclass(frozen=True, eq=False)
class Deduplicated(Stateful):
    """The first row of each key."""

    spec: Distinct

    @property
    def kind(self) -> str:
        return "distinct"


@dataclass(frozen=True, eq=False)
class Output:
    """A stream on its way to a sink, under a name of its own."""

    input: Node
    sink: Sink
    name: str
    keys: tuple[str, ...]


def ancestry(outputs: Sequence[Output]) -> Iterator[Node]:
    """Every node that feeds these outputs, once, inputs before what takes them in."""
    seen: set[int] = set()

    def visit(node: Node) -> Iterator[Node]:
        if id(node) in seen:
            return
        seen.add(id(node))
        for source in node.inputs:
            yield from visit(source)
        yield node

    for output in outputs:
        yield from visit(output.input)
