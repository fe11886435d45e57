"""The nodes of joins, which have two inputs, and their columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.errors import InvalidSpec
from millstream.operators.joins.result_columns import EVENT_TIME, result_columns
from millstream.operators.joins.stream_table.spec import AsOf, Lookup
from millstream.plan import columns as columns_of
from millstream.plan.graph import HIDDEN_TIME, EventTime, Node, Read, Stateful
from millstream.schema import Scalar, check_names
from millstream.sources.files.files import Files
from millstream.sources.memory import Memory
from millstream.sources.spark.spark import Spark

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from millstream.operators.joins.interval.spec import Interval
    from millstream.operators.joins.on import Pairs
    from millstream.operators.joins.result_columns import Column
    from millstream.operators.joins.table_table.spec import TableJoin
    from millstream.plan.graph import Columns
    from millstream.schema import Type
    from millstream.sinks.spec import Sink
    from millstream.sources.spec import Source

    Spec = Interval | AsOf | Lookup | TableJoin
    Waits = dict[Read, tuple[Read, ...]]

_WIDE = {"byte": "long", "short": "long", "int": "long", "float": "double"}


@dataclass(frozen=True, eq=False)
class Join(Stateful):
    """A join of two inputs by key: `input` is the left, `other` the right.

    `parts` are the columns that come from either; None where only Spark knows them.
    """

    corrects = False

    other: Node
    parts: tuple[Column, ...] | None

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input, self.other)

    def column_source(self, column: str) -> tuple[Node, str] | None:
        return next(((self.inputs[side], own) for name, side, own in self.parts or ()
                     if name == column), None)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Joined(Join):
    """Rows of two streams, near each other in time."""

    kind = "join"

    spec: Interval

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(left for left, _ in self.spec.on)


@dataclass(frozen=True, eq=False)
class Enriched(Join):
    """Events of a stream, each with a row of a table: as of its own time, or as it is now."""

    spec: AsOf | Lookup

    @property
    def kind(self) -> str:
        return "as_of" if isinstance(self.spec, AsOf) else "lookup"

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(left for left, _ in self.spec.on)


@dataclass(frozen=True, eq=False)
class JoinedTables(Join):
    """The join of two tables, updated as either changes."""

    kind = "join"
    corrects = True

    spec: TableJoin
    by: tuple[str, ...]

    @property
    def keys(self) -> tuple[str, ...]:
        return self.by


def of_events(node: Node) -> Sequence[Node]:
    """The inputs whose rows a step emits: not the table of an enrichment."""
    return (node.input,) if isinstance(node, Enriched) else node.inputs


def _check_table_times(table: Node) -> None:
    """Refuse a table whose rows have no event times."""
    if table.time is None:
        raise InvalidSpec("as_of needs a table with an event time", got="one without",
                          do="give read(…) a time=, or use lookup")  # fmt: skip
    timeless = _without_times(table)
    if timeless is not None:
        raise InvalidSpec("as_of needs a table whose rows have event times",
                          got=f"{timeless.source!r} without time=",
                          do='write ms.table(…, time="column"), or use lookup for the table as it '
                          "is now")  # fmt: skip


def _without_times(node: Node) -> Read | None:
    """The source of a table whose changes have no event times, if there is one."""
    if isinstance(node, Read):
        log = node.changes
        timeless = log is not None and log.time is None and _is_timeless(node.source)
        return node if timeless else None
    return next(filter(None, map(_without_times, of_events(node))), None)


def _is_timeless(source: Source) -> bool:
    """Whether the records of a source have no timestamps that say when a row changed."""
    return isinstance(source, Files | Memory | Spark)


def joined(left: Node, right: Node, spec: Interval, rest: Sink | None, name: str | None) -> Joined:
    """The join of two streams; its time is the later of the two, if both have one."""
    timed = left.time is not None and right.time is not None
    parts = joined_columns(left, right, spec, step="join", timed=timed)
    columns = _names(parts)
    if timed and columns is not None:
        columns = (*columns, EVENT_TIME)
    return Joined(columns, EventTime(EVENT_TIME) if timed else None, left,
                  _label("join", spec.on, name), rest, right, parts, spec,
                  given=name is not None)  # fmt: skip


def enriched(
    stream: Node, table: Node, spec: AsOf | Lookup, rest: Sink | None, name: str | None
) -> Enriched:
    """The join of a stream with a table; its time is the stream's."""
    if isinstance(spec, AsOf):
        _check_table_times(table)
    step = "as_of" if isinstance(spec, AsOf) else "lookup"
    parts = joined_columns(stream, table, spec, step=step)
    return Enriched(_names(parts), stream.time, stream, _label(step, spec.on, name), rest, table,
                    parts, spec, given=name is not None)  # fmt: skip


def joined_tables(left: Node, right: Node, spec: TableJoin, name: str | None) -> JoinedTables:
    """The join of two tables."""
    parts = joined_columns(left, right, spec, step="table.join")
    assert parts is not None, "tables know their columns"
    time = HIDDEN_TIME if left.time is not None and right.time is not None else None
    named = {(side, own): name for name, side, own in parts}
    key = tuple(named.get(column, column[1]) for column in spec.key)
    return JoinedTables(_names(parts), time, left, _label("join", spec.on, name), None, right,
                        parts, spec, key, given=name is not None)  # fmt: skip


def _names(parts: Sequence[Column] | None) -> Columns:
    return None if parts is None else tuple(part.name for part in parts)


def _label(step: str, on: Pairs, name: str | None) -> str:
    return name or f"{step}({', '.join(left for left, _ in on)})"


def joined_columns(
    left: Node, right: Node, spec: Spec, *, step: str, timed: bool = False
) -> tuple[Column, ...] | None:
    """The columns of a join's results (None: only Spark knows them).

    Raises:
        InvalidSpec: a column that does not exist, a name that both sides have, or keys of
            different types.
    """
    on = spec.on
    for place, node in enumerate((left, right)):
        for pair in on:
            columns_of.check_known(pair[place], node.columns, step=f"{step}(on=…)")
    for ours, theirs in on:
        kinds = columns_of.type_of(left, ours), columns_of.type_of(right, theirs)
        if None not in kinds and _wide(kinds[0]) != _wide(kinds[1]):
            raise InvalidSpec(
                f"{step} needs keys of the same type",
                got=" and ".join(f"{name} {kind.ddl()}" for name, kind in
                                 zip((ours, theirs), kinds, strict=True) if kind),
                do=f'cast one of them: .with_columns({ours}="cast({ours} as …)")',
            )  # fmt: skip
    if left.columns is None or right.columns is None:
        return None
    found = result_columns(left.columns, right.columns, on, suffix=spec.suffix, timed=timed,
                           step=step)  # fmt: skip
    check_names([part.name for part in found if part.name != part.own], f"{step}(suffix=…)")
    return found


def _wide(kind: Type | None) -> Type | None:
    return Scalar(_WIDE.get(kind.name, kind.name)) if isinstance(kind, Scalar) else kind


def waits(nodes: Iterable[Node]) -> Waits:
    """For each source that waits, the tables that are read before it."""
    every: dict[Read, dict[Read, None]] = {}
    for node in nodes:
        if isinstance(node, Enriched) and isinstance(node.spec, Lookup):
            tables = dict.fromkeys(_reads(node.other, lambda below: below.inputs))
            for source in _reads(node.input, of_events):
                every.setdefault(source, {}).update(tables)
    kept = {
        source: tuple(table for table in tables if source not in _with_predecessors(table, every))
        for source, tables in every.items()
    }
    return {source: tables for source, tables in kept.items() if tables}


def _reads(node: Node, inputs: Callable[[Node], Sequence[Node]]) -> list[Read]:
    """The sources a node depends on, each once."""
    found: dict[Read, None] = {}
    seen, stack = {node}, [node]
    while stack:
        below = stack.pop()
        if isinstance(below, Read):
            found[below] = None
        new = [one for one in inputs(below) if one not in seen]
        seen.update(new)
        stack += reversed(new)
    return list(found)


def _with_predecessors(source: Read, every: dict[Read, dict[Read, None]]) -> set[Read]:
    """A source and all sources that are read before it."""
    seen, stack = {source}, [source]
    while stack:
        new = [table for table in every.get(stack.pop(), ()) if table not in seen]
        seen.update(new)
        stack += new
    return seen
