"""Stream: events that happened, and what can be said of them one by one.

A plain value: building runs nothing and needs no Spark and no Kafka; every mistake that
can be seen while building raises there, at the user's line.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from millstream.duration import Duration, not_negative_micros, positive_micros
from millstream.errors import InvalidSpec
from millstream.plan import columns as columns_of
from millstream.plan import graph, sql
from millstream.plan.graph import EventTime, Node, Output
from millstream.plan.names import check_given_name
from millstream.schema import Scalar, Schema, check_names
from millstream.sinks.files import FilesSink
from millstream.sinks.keys import Keyed
from millstream.sinks.live import Chart, LiveTable
from millstream.sinks.spec import Discard, Sink
from millstream.sources.clock import FLAG, OFFSET, ClockCorrection
from millstream.sources.files import Files
from millstream.sources.spec import HIDDEN, Source
from millstream.sources.topic import Topic
from millstream.steps.distinct import distinct
from millstream.steps.process import Function, Process
from millstream.steps.top import Top
from millstream.windowed import Grouped, Rest, checked_rest

if TYPE_CHECKING:
    from collections.abc import Callable


def read(
    source: Source,
    time: str | None = None,
    watermark: Duration = "0 seconds",
    idle: Duration | None = "30 seconds",
    ahead: Duration | None = "1 day",
) -> Stream:
    """The events of a source, with an event time when `time` names its column.

    `watermark` is how far behind its partition a row may be; `idle` how long a
    partition stays silent before it holds nobody back; `ahead` how far into the
    future a row's time may lie before the row is a bad one.

    >>> bids = read(Topic("bids", schema="auction long, ts timestamp"), time="ts")
    >>> bids.columns
    ('auction', 'ts')
    """
    if not isinstance(source, Source):
        raise InvalidSpec("read needs a source", got=repr(source),
                          do='write ms.Topic("name", schema="…")')  # fmt: skip
    schema = source.row_schema()
    names = tuple(schema.names)
    check_names(names, f"the schema of {source.name!r}")
    if time is not None:
        columns_of.known(time, names, step="read(time=…)")
        if schema[time].type != Scalar("timestamp"):
            raise InvalidSpec(f"read(time={time!r}) needs a timestamp column",
                              got=schema[time].type.ddl(),
                              do=f"write {time} timestamp in the schema")  # fmt: skip
    return Stream(
        graph.Read(
            columns=names,
            time=EventTime(time) if time else None,
            source=source,
            name=source.name,
            delay=not_negative_micros(watermark, what="watermark"),
            idle=None if idle is None else positive_micros(idle, what="idle"),
            ahead=None if ahead is None else positive_micros(ahead, what="ahead"),
        )
    )


@dataclass(frozen=True, eq=False)
class Stream:
    """Events that happened: append-only, with an event time when `time=` was given."""

    node: Node

    @property
    def columns(self) -> tuple[str, ...] | None:
        """The columns there are; None after `transform`, where only Spark can tell."""
        return self.node.columns

    def where(self, condition: str) -> Stream:
        """The rows for which the SQL is true."""
        self.check(condition, "where")
        sql.check_unnamed(condition, "where")
        return Stream(graph.Where(self.node.columns, self.node.time, self.node, condition))

    def select(self, *expressions: str) -> Stream:
        """These SQL expressions as the new columns: `select("auction", "price * 0.9 as euros")`.

        `"*"` stands for all the columns there are.
        """
        if not expressions:
            raise InvalidSpec("select needs at least one expression", got="none",
                              do='write select("auction", "price * 0.9 as euros")')  # fmt: skip
        items: list[tuple[str, str]] = []
        for text in expressions:
            if text == columns_of.EVERY:
                every = self.columns or (columns_of.EVERY,)
                items += [(c, c if c == columns_of.EVERY else sql.quoted(c)) for c in every]
                continue
            self.check(text, "select")
            items.append(sql.alias(text, step="select"))
        columns_of.selected(items, hidden=HIDDEN)
        names = tuple(name for name, _ in items)
        time = columns_of.followed(self.node.time, items)
        known = None if columns_of.EVERY in names else names
        return Stream(graph.Select(known, time, self.node, tuple(items)))

    def with_columns(self, **expressions: str) -> Stream:
        """More columns beside those there are, or in the place of one."""
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
                                  do="give the new column a name of its own")  # fmt: skip
        check_names(tuple(expressions), "with_columns")
        columns = columns_of.replaced(self.columns, tuple(expressions))
        return Stream(graph.WithColumns(columns, time, self.node, tuple(expressions.items())))

    def drop(self, *names: str) -> Stream:
        """All columns but these; dropping the one with the event time drops the event time."""
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
        return Stream(graph.Drop(columns, time, self.node, names))

    def explode(self, column: str) -> Stream:
        """One row per element of an array column; no row where it is empty or null."""
        self.need_column(column, "explode")
        columns_of.need_array(self.node, column)
        return Stream(graph.Explode(self.columns, self.node.time, self.node, column))

    def transform(self, function: Callable[[Any], Any]) -> Stream:
        """The user's own stateless, row-wise, deterministic `DataFrame -> DataFrame` function.

        It must keep the column `_origin` and the one with the event time as they are
        (`df.withColumn(…)`, `df.select("*", …)` do). What is not row-wise (shuffles,
        aggregates, `explode`) or not repeatable (`rand()`) is refused when the plan is
        analysed, before the first batch.
        """
        if not callable(function):
            raise InvalidSpec("transform needs a DataFrame -> DataFrame function",
                              got=repr(function),
                              do='write transform(lambda df: df.withColumn(…))')  # fmt: skip
        return Stream(graph.Transform(None, self.node.time, self.node, function))

    def union(self, other: Stream) -> Stream:
        """The rows of both; the watermark is the slower one's."""
        if not isinstance(other, Stream):
            raise InvalidSpec("union needs a Stream", got=repr(other),
                              do="write one_stream.union(other_stream)")  # fmt: skip
        if self.columns is not None and other.columns is not None:
            missing = set(self.columns) ^ set(other.columns)
            if missing:
                raise InvalidSpec("union needs two streams with the same columns",
                                  got=f"{', '.join(sorted(missing))} on one side only",
                                  do="select the same columns on both")  # fmt: skip
        time = columns_of.united(self.node.time, other.node.time)
        columns = self.columns if other.columns is not None else None
        return Stream(graph.Union(columns, time, (self.node, other.node)))

    def split(self, **conditions: str) -> dict[str, Stream]:
        """One stream per condition, the first true one wins; `"rest"` has the others."""
        if not conditions or "rest" in conditions:
            raise InvalidSpec("split needs conditions under other names than 'rest'",
                              got="rest=…" if conditions else "none",
                              do="write split(cheap=\"price < 10\"); what no condition takes "
                              "is under 'rest'")  # fmt: skip
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

    def by(self, *keys: str) -> Grouped:
        """The rows grouped by these columns, for a window."""
        if not keys:
            raise InvalidSpec("by needs at least one column", got="none",
                              do='write by("auction")')  # fmt: skip
        for key in keys:
            self.need_column(key, "by")
        if len(set(keys)) < len(keys):
            raise InvalidSpec("by needs each column once", got=", ".join(keys),
                              do="name it once")  # fmt: skip
        return Grouped(self, keys)

    def correct_clock(self, *, event: str, sent: str, received: str = "_timestamp") -> Stream:
        """The rows with the event time as it truly was: `event + (received - sent)`.

        `event` and `sent` were stamped by one clock that may be wrong, `received` by one
        that is right (the record's timestamp, or a column). Where they contradict each other
        (`event` after `sent`, a null) a row keeps its time and `clock_flag` is true;
        `clock_offset` is what was added, in microseconds. Watermarks follow the true time.
        """
        read = self.node
        if not isinstance(read, graph.Read) or read.correction is not None:
            raise InvalidSpec("correct_clock needs to follow read(…) at once",
                              got="a stream that other steps have worked on",
                              do="write read(…, time=…).correct_clock(…)")  # fmt: skip
        if read.time is None or read.time.column != event:
            raise InvalidSpec("correct_clock(event=…) needs the column of the event time",
                              got=repr(event),
                              do=f"write read(…, time={event!r})")  # fmt: skip
        schema = read.source.row_schema()
        for column in (sent, *(() if received == "_timestamp" else (received,))):
            self.need_column(column, "correct_clock(…)")
            if schema[column].type != Scalar("timestamp"):
                raise InvalidSpec("correct_clock needs timestamp columns",
                                  got=f"{column} {schema[column].type.ddl()}",
                                  do=f"write {column} timestamp in the schema")  # fmt: skip
        taken = {FLAG, OFFSET} & set(schema.names)
        if taken:
            raise InvalidSpec("correct_clock needs the names clock_flag and clock_offset free",
                              got=", ".join(sorted(taken)), do="rename it there")  # fmt: skip
        correction = ClockCorrection(event, sent, received)
        return Stream(replace(read, columns=(*schema.names, FLAG, OFFSET), correction=correction))

    def top(self, n: int, *, by: str, rest: Rest = None, name: str | None = None) -> Stream:
        """Of the results of each window, of all keys, the `n` rows with the largest `by`.

        State: the largest rows of each window that has not left.
        Emits: them, the largest first, when the watermark has passed the window.
        """
        spec = Top(n, by)
        self.need_settled("top")
        self.need_column(by, "top(by=…)")
        self.need_time("top")
        if self.columns is not None and not {"window_start", "window_end"} <= set(self.columns):
            raise InvalidSpec("top needs the results of a window",
                              got=", ".join(self.columns),
                              do="write by(…).window(…).agg(…).top(…)")  # fmt: skip
        check_given_name(name, "top")
        node = graph.Ranked(self.columns, self.node.time, self.node, name or f"top({by})",
                            checked_rest(rest), spec, given=name is not None)  # fmt: skip
        return Stream(node)

    def process(
        self,
        function: Function,
        *,
        by: str | list[str] | tuple[str, ...],
        state: str,
        gives: str | None = None,
        name: str | None = None,
    ) -> Stream:
        """A function of your own per key and batch, with state and timers.

        It is called with a `Visit` (key, rows in order of origin, state, timers that have
        come) and returns the rows to emit, if any. `state` and `gives` are schemas in SQL
        text; without `gives` it returns rows like those that come in.

        State: the declared columns per key, and its timers.
        Emits: what the function returns, at once.
        """
        keys = (by,) if isinstance(by, str) else tuple(by)
        self.need_settled("process")
        if not callable(function):
            raise InvalidSpec("process needs a function of one Visit", got=repr(function),
                              do="write def f(visit): …")  # fmt: skip
        for key in keys:
            self.need_column(key, "process(by=…)")
        if not keys or len(set(keys)) < len(keys):
            raise InvalidSpec("process(by=…) needs at least one column, each once",
                              got=", ".join(keys) or "none", do='write by="user"')  # fmt: skip
        declared, given = Schema.parse(state), columns_of.given(self.node, gives, step="process")
        check_names(declared.names, "process(state=…)")
        check_given_name(name, "process")
        if set(declared.names) & set(keys):
            raise InvalidSpec("process(state=…) needs other names than its keys",
                              got=", ".join(sorted(set(declared.names) & set(keys))),
                              do="rename it: the key is visit.key")  # fmt: skip
        time = self.node.time if self.node.time and self.node.time.column in given.names else None
        label = name or f"process({', '.join(keys)})"
        node = graph.Processed(given.names, time, self.node, label, None,
                               Process(keys, function, declared, given),
                               given=name is not None)  # fmt: skip
        return Stream(node)

    def ordered(self, rest: Rest = None, name: str | None = None) -> Stream:
        """The rows in order of event time, ties in order of origin.

        State: rows whose time the watermark has not passed.
        Emits: each row when the watermark has passed its time; rows behind it go to `rest`.
        """
        self.need_time("ordered()")
        self.need_settled("ordered()")
        check_given_name(name, "ordered")
        node = graph.InOrder(self.columns, self.node.time, self.node, name or "ordered",
                             checked_rest(rest), given=name is not None)  # fmt: skip
        return Stream(node)

    def distinct(
        self,
        by: str | list[str] | tuple[str, ...],
        within: Duration | None = None,
        rest: Rest = None,
        name: str | None = None,
    ) -> Stream:
        """The first row of each key, for ever or within a time.

        State: one entry per key; with `within`, only as long as a row may still repeat it.
        Emits: each first row at once; rows with time + within behind the watermark go to `rest`.
        """
        self.need_settled("distinct")
        spec = distinct(by if isinstance(by, str | list | tuple) else (by,), within)
        for key in spec.by:
            self.need_column(key, "distinct(by=…)")
        if spec.within is not None:
            self.need_time("distinct(within=…)")
        check_given_name(name, "distinct")
        label = name or f"distinct({', '.join(spec.by)})"
        node = graph.Deduplicated(self.columns, self.node.time, self.node, label,
                                  checked_rest(rest), spec, given=name is not None)  # fmt: skip
        return Stream(node)

    def to(self, sink: Sink, name: str | None = None) -> Output:
        """These rows on their way to a sink: an output for a Pipeline."""
        if not isinstance(sink, Sink) or isinstance(sink, Discard):
            raise InvalidSpec("to needs a sink", got=repr(sink), do='write ms.Topic("name")')
        keys: tuple[str, ...] = ()
        if isinstance(sink, Topic):
            keys = sink.keys or columns_of.record_keys(self.node)
            for key in keys:
                self.need_column(key, f"Topic({sink.name!r}, key=…)")
        elif isinstance(sink, Files):
            FilesSink(sink)
        elif isinstance(sink, Keyed):
            keys = sink.keys
            for key in keys:
                self.need_column(key, f"{type(sink).__name__}({sink.name!r}, key=…)")
        if isinstance(sink, Chart | LiveTable):
            for column in sink.columns:
                self.need_column(column, f"{type(sink).__name__}({sink.name!r}, …)")
        check_given_name(name, "an output")
        return Output(self.node, sink, name or sink.name, keys)

    def check(self, text: str, step: str) -> None:
        """Refuse SQL that names columns there are not."""
        hidden = HIDDEN if isinstance(self.node, graph.Read) else ()
        sql.check(text, self.columns, step=step, hidden=hidden)

    def need_column(self, name: str, step: str) -> None:
        """Refuse what is no column of this stream."""
        columns_of.known(name, self.columns, step=step)

    def then(self, node: Node) -> Stream:
        """The stream of a further step."""
        return Stream(node)

    def need_settled(self, step: str) -> None:
        """Refuse rows that may be taken back, for a step that could not forget them."""
        if self.node.corrects:
            raise InvalidSpec(f"{step} needs rows that are never taken back",
                              got="a stream that corrects what it has given (late(keep=…))",
                              do="leave keep= out upstream, or put it after that step")  # fmt: skip

    def need_time(self, step: str) -> EventTime:
        """Refuse a stream without an event time."""
        if self.node.time is None:
            raise InvalidSpec(f"{step} needs an event time", got="a stream without one",
                              do='give read(…, time="column") and keep that column')  # fmt: skip
        return self.node.time
