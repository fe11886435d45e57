"""The stateless, row-wise operators of a stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from millstream.errors import InvalidSpec
from millstream.plan import columns as columns_of
from millstream.plan import graph
from millstream.plan.explain.explain import step_text
from millstream.schema import check_names
from millstream.sources.spec import HIDDEN
from millstream.sql import columns as sql

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.plan.graph import EventTime, Node


@dataclass(frozen=True, eq=False)
class RowWise:
    """Rows with stateless operators; each returns a value of the same class."""

    node: Node

    @property
    def columns(self) -> tuple[str, ...] | None:
        """The columns; None after `transform`, where only Spark knows them."""
        return self.node.columns

    def where(self, condition: str) -> Self:
        """The rows for which the SQL is true."""
        self.check(condition, "where")
        sql.check_unnamed(condition, "where")
        return self.then(graph.Where(self.node.columns, self.node.time, self.node, condition))

    def select(self, *expressions: str) -> Self:
        """These SQL expressions as the new columns: `select("auction", "price * 0.9 as euros")`.

        `"*"` selects all columns.
        """
        for text in expressions:
            if text != columns_of.EVERY:
                self.check(text, "select")
        items = selected_items(expressions, self.columns)
        names = tuple(name for name, _ in items)
        time = columns_of.time_after_select(self.node.time, items)
        known = None if columns_of.EVERY in names else names
        return self.then(graph.Select(known, time, self.node, tuple(items)))

    def with_columns(self, **expressions: str) -> Self:
        """Columns added or replaced."""
        if not expressions:
            raise InvalidSpec("with_columns needs at least one column", got="none",
                              do='write with_columns(euros="price * 0.9")')  # fmt: skip
        time = self.node.time
        for name, text in expressions.items():
            self.check(text, f"with_columns({name}=…)")
            sql.check_unnamed(text, f"with_columns({name}=…)")
            if time is not None and name.lower() == time.column.lower():
                raise InvalidSpec(f"with_columns needs another name than {name!r}",
                                  got="the column that holds the event time",
                                  do="choose another name for the new column")  # fmt: skip
        check_names(tuple(expressions), "with_columns")
        columns = columns_of.after_with_columns(self.columns, tuple(expressions))
        return self.then(graph.WithColumns(columns, time, self.node, tuple(expressions.items())))

    def drop(self, *names: str) -> Self:
        """All columns except these; dropping the event time's column drops the event time."""
        if not names:
            raise InvalidSpec("drop needs at least one column", got="none",
                              do='write drop("price")')  # fmt: skip
        for name in names:
            self.need_column(name, "drop")
        columns = None if self.columns is None else tuple(c for c in self.columns if c not in names)
        if columns == ():
            raise InvalidSpec("drop needs to leave a column", got="all of them",
                              do="keep one of them")  # fmt: skip
        time = self.node.time if self.node.time and self.node.time.column not in names else None
        return self.then(graph.Drop(columns, time, self.node, names))

    def explode(self, column: str) -> Self:
        """One row per element of an array column; no row where it is empty or null."""
        self.need_column(column, "explode")
        columns_of.check_array(self.node, column)
        return self.then(graph.Explode(self.columns, self.node.time, self.node, column))

    def transform(self, function: Callable[[Any], Any]) -> Self:
        """A user's stateless, row-wise, deterministic `DataFrame -> DataFrame` function.

        It must keep the column `_origin` and the event time's column unchanged
        (`df.withColumn(…)`, `df.select("*", …)` do). Functions that are not row-wise (shuffles,
        aggregates, `explode`) or not deterministic (`rand()`) are refused when the plan is
        analysed, before the first batch.
        """
        if not callable(function):
            raise InvalidSpec("transform needs a DataFrame -> DataFrame function",
                              got=repr(function),
                              do='write transform(lambda df: df.withColumn(…))')  # fmt: skip
        return self.then(graph.Transform(None, self.node.time, self.node, function))

    def union(self, other: Self) -> Self:
        """The rows of both; the watermark is the slower one's."""
        if not isinstance(other, type(self)):
            raise InvalidSpec(f"union needs a {type(self).__name__}", got=repr(other),
                              do="write one_stream.union(other_stream)")  # fmt: skip
        if self.columns is not None and other.columns is not None:
            missing = set(self.columns) ^ set(other.columns)
            if missing:
                raise InvalidSpec("union needs two streams with the same columns",
                                  got=f"{', '.join(sorted(missing))} on one side only",
                                  do="select the same columns on both")  # fmt: skip
        time = columns_of.time_of_union(self.node.time, other.node.time)
        columns = self.columns if other.columns is not None else None
        return self.then(graph.Union(columns, time, (self.node, other.node)))

    def split(self, **conditions: str) -> dict[str, Self]:
        """One stream per condition; a row goes to the first that is true, else to `"rest"`."""
        if not conditions or "rest" in conditions:
            raise InvalidSpec("split needs conditions under other names than 'rest'",
                              got="rest=…" if conditions else "none",
                              do="write split(cheap=\"price < 10\"); the remaining rows are "
                              "under 'rest'")  # fmt: skip
        earlier: list[str] = []
        parts = {}
        for name, condition in conditions.items():
            self.check(condition, f"split({name}=…)")
            sql.check_unnamed(condition, f"split({name}=…)")
            inside = f"({condition}\n)" if "--" in condition else f"({condition})"
            parts[name] = self.where(" and ".join([*earlier, inside]))
            earlier.append(f"not coalesce({inside}, false)")
        parts["rest"] = self.where(" and ".join(earlier))
        return parts

    def check(self, text: str, step: str) -> None:
        """Refuse SQL with unknown columns."""
        hidden = HIDDEN if isinstance(self.node, graph.Read) else ()
        sql.check(text, self.columns, step=step, hidden=hidden)

    def need_column(self, name: str, step: str) -> None:
        """Refuse an unknown column."""
        columns_of.check_known(name, self.columns, step=step)

    def then(self, node: Node) -> Self:
        """The rows of the next step."""
        return type(self)(node)

    def need_settled(self, step: str) -> None:
        """Refuse rows that may be retracted later, for a step that cannot undo them."""
        if self.node.corrects:
            raise InvalidSpec(f"{step} needs rows that are never retracted",
                              got="a stream with corrections (late(keep=…))",
                              do="leave keep= out upstream, or put it after that step")  # fmt: skip

    def need_time_column(self, step: str) -> None:
        """Refuse rows whose event time is in a hidden column."""
        if self.node.time == graph.HIDDEN_TIME:
            raise InvalidSpec(f"{step} needs an event time that is in a column",
                              got="the results of everything(), which carry it beside them",
                              do="put it before that window")  # fmt: skip

    def need_time(self, step: str) -> EventTime:
        """Refuse a stream without an event time."""
        if self.node.time is None:
            end = _where_time_ends(self.node)
            until = "" if end is None else f": its event time ends at `{step_text(end)}` ({end.at})"
            raise InvalidSpec(f"{step} needs an event time", got=f"a stream without one{until}",
                              do='give read(…, time="column") and keep that column')  # fmt: skip
        return self.node.time


def _where_time_ends(node: Node) -> Node | None:
    """The step that drops the event time; None if there never was one."""
    below = node.inputs
    if any(one.time is not None for one in below):
        return node
    return _where_time_ends(below[0]) if len(below) == 1 else None


def selected_items(
    expressions: Sequence[str], columns: tuple[str, ...] | None
) -> list[tuple[str, str]]:
    """The (name, SQL) pairs of a `select`; `"*"` is replaced by the known columns."""
    if not expressions:
        raise InvalidSpec("select needs at least one expression", got="none",
                          do='write select("auction", "price * 0.9 as euros")')  # fmt: skip
    items: list[tuple[str, str]] = []
    for text in expressions:
        if text == columns_of.EVERY:
            every = columns or (columns_of.EVERY,)
            items += [(c, c if c == columns_of.EVERY else sql.quoted(c)) for c in every]
        else:
            items.append(sql.alias(text, step="select"))
    columns_of.check_select(items, hidden=HIDDEN)
    return items
