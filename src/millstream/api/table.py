"""Table: the current row of each key, and the operators on it.

A plain value, like a Stream. Its rows are set and deleted; the steps after it receive each change
as the old row retracted and the new one added.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from millstream.api.rows import selected_items
from millstream.api.windowed import check_aggregates
from millstream.errors import InvalidSpec
from millstream.operators.aggregates.spec import First, Last
from millstream.operators.joins.table_table.spec import How, table_join
from millstream.operators.tables.spec import (
    CHANGE,
    CHANGED_AT,
    Current,
    key_names,
)
from millstream.plan import columns as columns_of
from millstream.plan import graph
from millstream.plan.graph import HIDDEN_TIME, EventTime, Node
from millstream.plan.join_graph import joined_tables
from millstream.plan.names import check_given_name
from millstream.plan.outputs import table_output
from millstream.plan.table_graph import (
    CurrentRows,
    TableAggregated,
    TableChanges,
    TableWhere,
    is_table_of_changes,
)
from millstream.schema import check_names
from millstream.sinks.spec import Sink
from millstream.sql import columns as sql

if TYPE_CHECKING:
    from millstream.api.stream import Stream
    from millstream.operators.aggregates.spec import Aggregate
    from millstream.operators.joins.on import On
    from millstream.plan.graph import Output
    from millstream.sinks.spec import Sink


@dataclass(frozen=True, eq=False)
class Table:
    """The current row of each key: rows are set, changed and deleted.

    `stream` is the class of the streams made from it: `Stream`, which is built on this class.
    """

    node: Node
    key: tuple[str, ...]
    stream: type[Stream] = field(repr=False)
    _current_rows: dict[bool, Node] = field(default_factory=dict, init=False, repr=False)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns, including the key."""
        assert self.node.columns is not None
        return self.node.columns

    def where(self, condition: str) -> Table:
        """The rows for which the SQL is true; a row that no longer matches is deleted."""
        self._check(condition, "where")
        node = self._changing()
        if is_table_of_changes(node):
            return self._then(TableWhere(self.columns, node.time, node, condition, self.key))
        return self._then(graph.Where(self.columns, node.time, node, condition))

    def select(self, *expressions: str) -> Table:
        """These SQL expressions as the new columns; the key must be kept, possibly renamed."""
        for text in expressions:
            if text != columns_of.EVERY:
                self._check(text, "select", named=True)
        items = selected_items(expressions, self.columns)
        node = self._changing()
        made = graph.Select(tuple(name for name, _ in items), node.time, node, tuple(items))
        return self._rekeyed(made, "select")

    def with_columns(self, **expressions: str) -> Table:
        """Columns added, or replaced if they are not in the key."""
        if not expressions:
            raise InvalidSpec("with_columns needs at least one column", got="none",
                              do='write with_columns(euros="price * 0.9")')  # fmt: skip
        for name, text in expressions.items():
            self._check(text, f"with_columns({name}=…)")
        check_names(tuple(expressions), "with_columns")
        columns = columns_of.after_with_columns(self.columns, tuple(expressions))
        node = self._changing()
        made = graph.WithColumns(columns, node.time, node, tuple(expressions.items()))
        return self._rekeyed(made, "with_columns")

    def by(self, *keys: str) -> GroupedTable:
        """The rows grouped by these columns, for aggregates."""
        names = key_names(keys, step="by")
        for name in names:
            columns_of.check_known(name, self.columns, step="by")
        return GroupedTable(self, names)

    def changes(self, name: str | None = None) -> Stream:
        """The changes as events: the columns, `change` and, with an event time, `changed_at`.

        `change` is `insert` or `update`, with the new row, or `delete`, with the deleted row. A
        table read from a changelog emits every change, other tables the net change per batch.
        """
        taken = {CHANGE, CHANGED_AT} & {column.lower() for column in self.columns}
        if taken:
            raise InvalidSpec(f"changes needs the names {CHANGE} and {CHANGED_AT} free",
                              got=", ".join(sorted(taken)),
                              do='rename it: .select("…", "change as old_change")')  # fmt: skip
        check_given_name(name, "changes")
        node = self.current(each=True)
        time = EventTime(CHANGED_AT) if node.time is not None else None
        columns = (*self.columns, CHANGE, *((CHANGED_AT,) if time else ()))
        label = name or f"changes({', '.join(self.key)})"
        return self.stream(TableChanges(columns, time, node, label, None, self.key,
                                given=name is not None))  # fmt: skip

    def join(
        self,
        other: Table,
        *,
        on: On,
        how: How = "inner",
        suffix: str | None = None,
        name: str | None = None,
    ) -> Table:
        """A Table of the rows of both tables that match in `on`, updated as either changes.

        `on` may name keys, a foreign key, or any columns. The key of the result is that of the
        side whose rows match at most once; it is the keys of both if either side's rows may match
        several, or if rows of the other side may be unmatched. `suffix` is added to right-hand
        names that the left side has too; without it they raise.

        State: the rows of both tables.
        Emits: per batch, each change: the old row retracted, the new one added.
        """
        if not isinstance(other, Table):
            raise InvalidSpec("table.join needs another table", got=f"a {type(other).__name__}",
                              do="use stream.as_of(table) or stream.lookup(table)")  # fmt: skip
        spec = table_join(on, self.key, other.key, how, suffix)
        check_given_name(name, "join")
        node = joined_tables(self.current(), other.current(), spec, name)
        return self._then(node, node.by)

    def to(self, sink: Sink, name: str | None = None) -> Output:
        """An output for a Pipeline: the table, written to a sink that holds one row per key.

        A deleted row is deleted in the sink; to a topic it is a record without a value.
        """
        return table_output(self.current(), self.key, sink, name)

    def current(self, *, each: bool = False) -> Node:
        """The node that adds and retracts this table's rows.

        A changelog becomes that through the current row of each key; with `each`, every change of
        it is emitted, not only the net change per batch.
        """
        if not is_table_of_changes(self.node):
            return self.node
        each = each or self._in_a_database()
        if each not in self._current_rows:
            self._current_rows[each] = CurrentRows(
                self.columns, self.node.time, self.node, f"current({', '.join(self.key)})", None,
                Current(self.key, each=each, database=self._in_a_database()),
            )  # fmt: skip
        return self._current_rows[each]

    def versions(self) -> Node:
        """The node whose rows are the versions of each key, in any order."""
        return self._changing()

    def _changing(self) -> Node:
        """The input of row-wise steps: sets and deletes, if each has the whole row."""
        return self.current() if self._in_a_database() else self.node

    def _in_a_database(self) -> bool:
        log = self.node.changes if isinstance(self.node, graph.Read) else None
        return log is not None and log.kind == "debezium"

    def _rekeyed(self, node: Node, step: str) -> Table:
        """The table after a step, with its key under its names there."""
        names = [columns_of.name_after(node, key) for key in self.key]
        lost = [key for key, name in zip(self.key, names, strict=True) if name is None]
        if lost:
            raise InvalidSpec(f"{step} of a table needs to keep its key",
                              got=f"no unchanged {lost[0]}",
                              do=f'add "{lost[0]}", or "{lost[0]} as …"')  # fmt: skip
        return self._then(node, tuple(name for name in names if name is not None))

    def _then(self, node: Node, key: tuple[str, ...] | None = None) -> Table:
        return Table(node, self.key if key is None else key, self.stream)

    def _check(self, text: str, step: str, *, named: bool = False) -> None:
        sql.check(text, self.columns, step=step)
        if not named:
            sql.check_unnamed(text, step)
        if sql.at_clock(text, 0) != text:
            raise InvalidSpec(f"{step} of a table needs SQL that depends on the row alone",
                              got=f"{text!r}, which depends on the clock",
                              do="compare times in a stream: table.changes()")  # fmt: skip


@dataclass(frozen=True, eq=False)
class GroupedTable:
    """The rows of a table, grouped by columns."""

    table: Table
    keys: tuple[str, ...]

    def agg(self, name: str | Aggregate | None = None, **aggregates: Aggregate) -> Table:
        """A Table of aggregates per group, over its current rows.

        State: one row of partial aggregates per group.
        Emits: per batch, each change: a group's old answer retracted, the new one added.
        """
        return aggregated_table(self.table.current(), self.keys, name, aggregates,
                                of=self.table.key, stream=self.table.stream)  # fmt: skip


def aggregated_table(
    node: Node,
    keys: tuple[str, ...],
    name: str | Aggregate | None,
    aggregates: dict[str, Aggregate],
    *,
    stream: type[Stream],
    of: tuple[str, ...] = (),
) -> Table:
    """The table of aggregates per key over all rows of a node.

    `of` is the key of the table whose rows they are; empty for a stream.
    """
    if name is not None and not isinstance(name, str):
        aggregates, name = {"name": name, **aggregates}, None
    check_aggregates(node, keys, aggregates)
    for column, aggregate in aggregates.items():
        if of and isinstance(aggregate, First | Last):
            raise InvalidSpec(f"agg({column}=…) needs rows in an order",
                              got=f"{aggregate.kind} over a table, whose rows are unordered",
                              do="use min, max, largest or smallest")  # fmt: skip
    check_given_name(name, "agg")
    time = HIDDEN_TIME if node.time is not None else None
    label = name or f"agg({', '.join(keys)})"
    made = TableAggregated((*keys, *aggregates), time, node, label, None,
                           keys, tuple(aggregates.items()), of, given=name is not None)  # fmt: skip
    return Table(made, keys, stream)
