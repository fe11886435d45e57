"""The nodes of a pipeline: frozen values that point at what they take in.

Two nodes are the same only if they are the same object: a stream used twice is one
step with two readers.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import FrameType

    from millstream.event_time.clock_correction import ClockCorrection
    from millstream.operators.aggregates.spec import Aggregate
    from millstream.operators.distinct.spec import Distinct
    from millstream.operators.process.spec import Process
    from millstream.operators.tables.spec import ChangeLog
    from millstream.operators.top.spec import Top
    from millstream.operators.windows.by_rows.spec import Delta, Punctuated, Rows
    from millstream.operators.windows.sessions.spec import Session
    from millstream.operators.windows.sliding.spec import Sliding
    from millstream.operators.windows.spec import Everything, Hopping, Tumbling
    from millstream.operators.windows.trigger import Trigger
    from millstream.sinks.spec import Sink
    from millstream.sources.spec import Source

    Window = Tumbling | Hopping | Session | Sliding | Rows | Delta | Punctuated | Everything


Columns = tuple[str, ...] | None
PACKAGE = f"{Path(__file__).resolve().parent.parent}/"
_GENERATED = "<string>"  # the `__init__` that dataclasses write


@dataclass(frozen=True, slots=True)
class EventTime:
    """Where a stream's event time is: a column, and microseconds to add to it."""

    column: str
    shift: int = 0


@dataclass(frozen=True, slots=True)
class Policy:
    """When a window is shown beside on time, and how long it is kept for late rows.

    `keep` is in microseconds; `alert_above` the share of late rows that is worth a word.
    """

    trigger: Trigger | None = None
    keep: int = 0
    alert_above: float | None = None


def users_line() -> str | None:
    """Return `file:line` of the user's call into this package; errors name it much later."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if file != _GENERATED and not file.startswith(PACKAGE):
            return f"{file}:{frame.f_lineno}"
        frame = frame.f_back
    return None


@dataclass(frozen=True, eq=False)
class Node(ABC):
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

    @property
    def corrects(self) -> bool:
        """Whether rows it has given may be retracted later."""
        return any(below.corrects for below in self.inputs)


# Of tables and of everything(): beside the user's columns, whatever those are.
HIDDEN_TIME = EventTime("_time")


@dataclass(frozen=True, eq=False)
class Read(Node):
    """A source, and how its rows get a time; with `changes`, they are changes of a table."""

    source: Source
    name: str
    delay: int
    idle: int | None
    ahead: int | None
    correction: ClockCorrection | None = None
    changes: ChangeLog | None = None

    @property
    def corrects(self) -> bool:
        return self.changes is not None


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
    @abstractmethod
    def kind(self) -> str:
        """The operator's word in names and plans."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns it groups its rows by."""
        return ()

    @property
    def replaces_columns(self) -> bool:
        """Whether all its columns but the keys are its own, not those of its input."""
        return False

    def column_source(self, column: str) -> tuple[Node, str] | None:
        """The input that a column is taken from as it was, and its name there; None if none."""
        if self.replaces_columns and column not in self.keys:
            return None
        return self.input, column


@dataclass(frozen=True, eq=False)
class Aggregated(Stateful):
    """Aggregates per key and window.

    `policy` says when else than on time a window is shown and how long it is kept for late
    rows; None where users said neither, and their rows have no pane.
    """

    replaces_columns = True

    by: tuple[str, ...]
    window: Window
    aggregates: tuple[tuple[str, Aggregate], ...]
    policy: Policy | None = None

    @property
    def kind(self) -> str:
        return type(self.window).__name__.lower()

    @property
    def keys(self) -> tuple[str, ...]:
        return self.by

    @property
    def corrects(self) -> bool:
        return self.policy is not None and self.policy.keep > 0


@dataclass(frozen=True, eq=False)
class Deduplicated(Stateful):
    """The first row of each key."""

    kind = "distinct"

    spec: Distinct

    @property
    def keys(self) -> tuple[str, ...]:
        return self.spec.by


@dataclass(frozen=True, eq=False)
class Processed(Stateful):
    """A user's function per key, with state and timers."""

    kind = "process"
    replaces_columns = True

    spec: Process

    @property
    def keys(self) -> tuple[str, ...]:
        return self.spec.by


@dataclass(frozen=True, eq=False)
class Ranked(Stateful):
    """The largest rows of each window."""

    kind = "top"

    spec: Top


@dataclass(frozen=True, eq=False)
class InOrder(Stateful):
    """Rows in order of event time."""

    kind = "ordered"


@dataclass(frozen=True, eq=False)
class Output:
    """A stream on its way to a sink, under a name of its own; of a `table` its changes."""

    input: Node
    sink: Sink
    name: str
    keys: tuple[str, ...]
    table: bool = False


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
