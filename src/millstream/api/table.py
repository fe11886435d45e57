"""Table: what is true now, per key, and what follows from it.

A plain value, as a Stream is. Its rows are set and deleted; whatever follows it sees each
change as the old row taken back and the new one given.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from millstream.api.rows import selected_items
from millstream.api.windowed import check_aggregates
from millstream.duration import Duration, not_negative_micros
from millstream.errors import InvalidSpec
from millstream.operators.aggregates.spec import First, Last
from millstream.operators.joins.table_table.spec import How, table_join
from millstream.operators.tables.spec import (
    CHANGE,
    CHANGED_AT,
    ChangeLog,
    ChangesAre,
    Current,
    key_names,
)
from millstream.plan import columns as columns_of
from millstream.plan import graph
from millstream.plan.graph import HIDDEN_TIME, EventTime, Node, Output
from millstream.plan.join_graph import joined_tables
from millstream.plan.names import check_given_name
from millstream.plan.sink_checks import watched
from millstream.plan.table_graph import KeptWhere, Tallied, Told, Upheld, is_table_of_changes
from millstream.schema import Scalar, check_names
from millstream.sinks.keys import Keyed, accepts_retractions
from millstream.sinks.spec import Discard, Sink
from millstream.sources.kafka.topic import Topic
from millstream.sources.spec import Source
from millstream.sql import columns as sql

if TYPE_CHECKING:
    from millstream.api.stream import Stream
    from millstream.operators.aggregates.spec import Aggregate
    from millstream.operators.joins.on import On
    from millstream.operators.tables.spec import Keys

IDLE, AHEAD = 30_000_000, 86_400_000_000


def table(
    source: Source,
    key: Keys,
    changes: ChangesAre = "upsert",
    time: str | None = None,
    watermark: Duration = "0 seconds",
) -> Table:
    """The table that a log of changes describes, one row per `key`.

    With `upsert`, as in a compacted topic, a record is the row of its key and one without a
    value deletes it, by the record's key: JSON with the key columns or, for one column, the
    value itself or plain text. With `debezium`, records are Debezium's events. A change takes
    effect at `time`, else at its record's timestamp (Debezium: `source.ts_ms`); `watermark` is
    how far behind its partition a change may be. `Files` and `Memory` have no timestamps: without
    `time` their rows have no times of their own, and `as_of` refuses them.

    >>> users = table(Topic("users", schema="id long, name string"), key="id")
    >>> users.key, users.columns
    (('id',), ('id', 'name'))
    """
    if not isinstance(source, Source):
        raise InvalidSpec("table needs a source", got=repr(source),
                          do='write ms.Topic("name", schema="…")')  # fmt: skip
    schema = source.row_schema()
    names = tuple(schema.names)
    check_names(names, f"the schema of {source.name!r}")
    keys = key_names(key, step="table(key=…)")
    for name in (*keys, *((time,) if time is not None else ())):
        columns_of.known(name, names, step="table(…)")
    if time is not None and schema[time].type != Scalar("timestamp"):
        raise InvalidSpec(f"table(time={time!r}) needs a timestamp column",
                          got=schema[time].type.ddl(),
                          do=f"write {time} timestamp in the schema")  # fmt: skip
    log = ChangeLog(keys, changes, time)
    if log.kind == "debezium":
        _check_debezium(source, time)
    node = graph.Read(
        columns=names,
        time=HIDDEN_TIME,
        source=source,
        name=source.name,
        delay=not_negative_micros(watermark, what="watermark"),
        idle=IDLE,
        ahead=AHEAD,
        changes=log,
    )
    return Table(node, keys)


@dataclass(frozen=True, eq=False)
class Table:
    """What is true now, per key: rows that are set, changed and deleted."""

    node: Node
    key: tuple[str, ...]
    _upheld: dict[bool, Node] = field(default_factory=dict, init=False, repr=False)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns there are, the key among them."""
        assert self.node.columns is not None
        return self.node.columns

    def where(self, condition: str) -> Table:
        """The rows for which the SQL is true; a row that is so no longer is deleted here."""
        self._check(condition, "where")
        node = self._changing()
        if is_table_of_changes(node):
            return Table(KeptWhere(self.columns, node.time, node, condition, self.key), self.key)
        return Table(graph.Where(self.columns, node.time, node, condition), self.key)

    def select(self, *expressions: str) -> Table:
        """These SQL expressions as the new columns, the key among them, also under new names."""
        for text in expressions:
            if text != columns_of.EVERY:
                self._check(text, "select", named=True)
        items = selected_items(expressions, self.columns)
        node = self._changing()
        made = graph.Select(tuple(name for name, _ in items), node.time, node, tuple(items))
        return self._rekeyed(made, "select")

    def with_columns(self, **expressions: str) -> Table:
        """More columns beside those there are, or in the place of one that is not the key."""
        if not expressions:
            raise InvalidSpec("with_columns needs at least one column", got="none",
                              do='write with_columns(euros="price * 0.9")')  # fmt: skip
        for name, text in expressions.items():
            self._check(text, f"with_columns({name}=…)")
        check_names(tuple(expressions), "with_columns")
        columns = columns_of.replaced(self.columns, tuple(expressions))
        node = self._changing()
        made = graph.WithColumns(columns, node.time, node, tuple(expressions.items()))
        return self._rekeyed(made, "with_columns")

    def by(self, *keys: str) -> GroupedTable:
        """The rows grouped by these columns, for aggregates."""
        names = key_names(keys, step="by")
        for name in names:
            columns_of.known(name, self.columns, step="by")
        return GroupedTable(self, names)

    def changes(self, name: str | None = None) -> Stream:
        """The changes as events: the columns, `change` and, with an event time, `changed_at`.

        `change` is `insert` or `update`, with the new row, or `delete`, with the row as it was.
        A log of changes gives every one, other tables what each batch changes in all.
        """
        from millstream.api.stream import Stream

        taken = {CHANGE, CHANGED_AT} & {column.lower() for column in self.columns}
        if taken:
            raise InvalidSpec(f"changes needs the names {CHANGE} and {CHANGED_AT} free",
                              got=", ".join(sorted(taken)),
                              do='rename it: .select("…", "change as old_change")')  # fmt: skip
        check_given_name(name, "changes")
        node = self.current(each=True)
        time = EventTime(CHANGED_AT) if node.time is not None else None
        columns = (*self.columns, CHANGE, *((CHANGED_AT,) if time else ()))
        return Stream(Told(columns, time, node, name or f"changes({', '.join(self.key)})", None,
                           self.key, given=name is not None))  # fmt: skip

    def join(
        self,
        other: Table,
        *,
        on: On,
        how: How = "inner",
        suffix: str | None = None,
        name: str | None = None,
    ) -> Table:
        """The rows of both tables that agree in `on`: a Table, kept as both change.

        `on` may name keys, a foreign key, or any columns. The result has the key of the side of
        which no row matches twice; where rows may match several, or rows of the other side may
        be there alone, the keys of both. `suffix` is added to names of the right that the left
        has, too; without it they raise.

        State: the rows of both tables.
        Emits: what changes, per batch: the old row taken back, the new one given.
        """
        if not isinstance(other, Table):
            raise InvalidSpec("table.join needs another table", got=f"a {type(other).__name__}",
                              do="use stream.as_of(table) or stream.lookup(table)")  # fmt: skip
        spec = table_join(on, self.key, other.key, how, suffix)
        check_given_name(name, "join")
        node = joined_tables(self.current(), other.current(), spec, name)
        return Table(node, node.by)

    def to(self, sink: Sink, name: str | None = None) -> Output:
        """The table on its way to a sink that holds one row per key: an output for a Pipeline.

        A deleted row is deleted there; in a topic it leaves a record without a value.
        """
        if not isinstance(sink, Sink) or isinstance(sink, Discard):
            raise InvalidSpec("to needs a sink", got=repr(sink), do='write ms.Topic("name")')
        keys = (sink.keys if isinstance(sink, Keyed | Topic) else None) or ()
        keys = watched(sink, keys, self.key, self.columns)
        if isinstance(sink, Topic):
            keys = keys or self.key
        elif not accepts_retractions(sink):
            raise InvalidSpec(f"{type(sink).__name__}({sink.name!r}) needs rows that stay",
                              got="a table, whose rows change",
                              do=f"use a sink with key={list(self.key)!r}, or write "
                              "table.changes().to(…) for a row per change")  # fmt: skip
        if keys and not set(self.key) <= set(keys):
            raise InvalidSpec(f"{type(sink).__name__}({sink.name!r}, key=…) needs the table's key",
                              got=", ".join(keys), do=f"write key={list(self.key)!r}")  # fmt: skip
        for column in keys:
            columns_of.known(column, self.columns, step=f"{type(sink).__name__}({sink.name!r}, …)")
        check_given_name(name, "an output")
        return Output(self.current(), sink, name or sink.name, keys, table=True)

    def current(self, *, each: bool = False) -> Node:
        """The node that gives this table's rows and takes them back.

        Sets and deletes become that by the row that counts per key; with `each`, every change
        of it, not only what a batch changes in all.
        """
        if not is_table_of_changes(self.node):
            return self.node
        each = each or self._in_a_database()
        if each not in self._upheld:
            self._upheld[each] = Upheld(
                self.columns, self.node.time, self.node, f"current({', '.join(self.key)})", None,
                Current(self.key, each=each, database=self._in_a_database()),
            )  # fmt: skip
        return self._upheld[each]

    def versions(self) -> Node:
        """The node whose rows say which row a key has from when on, in whatever order."""
        return self._changing()

    def _changing(self) -> Node:
        """What row-wise steps follow: sets and deletes, where each of them is whole."""
        return self.current() if self._in_a_database() else self.node

    def _in_a_database(self) -> bool:
        log = self.node.changes if isinstance(self.node, graph.Read) else None
        return log is not None and log.kind == "debezium"

    def _rekeyed(self, node: Node, step: str) -> Table:
        """The table of a further step, with its key under the names it has there."""
        names = [columns_of.name_here(node, key) for key in self.key]
        lost = [key for key, name in zip(self.key, names, strict=True) if name is None]
        if lost:
            raise InvalidSpec(f"{step} of a table needs to keep its key", got=f"no {lost[0]} as it "
                              "was", do=f'add "{lost[0]}", or "{lost[0]} as …"')  # fmt: skip
        return Table(node, tuple(name for name in names if name is not None))

    def _check(self, text: str, step: str, *, named: bool = False) -> None:
        sql.check(text, self.columns, step=step)
        if not named:
            sql.check_unnamed(text, step)
        if sql.at_clock(text, 0) != text:
            raise InvalidSpec(f"{step} of a table needs an answer that stays while the row does",
                              got=f"{text!r}, which depends on the clock",
                              do="compare times in a stream: table.changes()")  # fmt: skip


@dataclass(frozen=True, eq=False)
class GroupedTable:
    """The rows of a table grouped by columns, waiting for aggregates."""

    table: Table
    keys: tuple[str, ...]

    def agg(self, name: str | Aggregate | None = None, **aggregates: Aggregate) -> Table:
        """Aggregates per group, of the rows that are in it now.

        State: one row of partial aggregates per group.
        Emits: what changes, per batch: a group's old answer taken back, the new one given.
        """
        return tallied(self.table.current(), self.keys, name, aggregates, of=self.table.key)


def tallied(
    node: Node,
    keys: tuple[str, ...],
    name: str | Aggregate | None,
    aggregates: dict[str, Aggregate],
    *,
    of: tuple[str, ...] = (),
) -> Table:
    """The table of aggregates per key over all rows of a node, those of a table with key `of`."""
    if name is not None and not isinstance(name, str):
        aggregates, name = {"name": name, **aggregates}, None
    check_aggregates(node, keys, aggregates)
    for column, aggregate in aggregates.items():
        if of and isinstance(aggregate, First | Last):
            raise InvalidSpec(f"agg({column}=…) needs rows in an order",
                              got=f"{aggregate.kind} over a table, whose rows have none",
                              do="use min, max, largest or smallest")  # fmt: skip
    check_given_name(name, "agg")
    time = HIDDEN_TIME if node.time is not None else None
    made = Tallied((*keys, *aggregates), time, node, name or f"agg({', '.join(keys)})", None,
                   keys, tuple(aggregates.items()), of, given=name is not None)  # fmt: skip
    return Table(made, keys)


def _check_debezium(source: Source, time: str | None) -> None:
    if not isinstance(source, Topic) or source.format != "json":
        raise InvalidSpec('table(changes="debezium") needs a topic of JSON records',
                          got=repr(source),
                          do='write ms.Topic("server.public.users", schema="…")')  # fmt: skip
    if time is not None:
        raise InvalidSpec('table(changes="debezium") needs no time=', got=repr(time),
                          do="leave it out: a change takes effect at source.ts_ms")  # fmt: skip
