"""Stream and Pipeline: what users touch.

Both are plain values. Building them runs nothing and needs no Spark and no Kafka;
every mistake that can be seen while building raises there, at the user's line.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from millstream.duration import Duration, micros, positive_micros
from millstream.errors import InvalidSpec
from millstream.plan import columns as columns_of
from millstream.plan import graph, sql
from millstream.plan.graph import EventTime, Node, Output
from millstream.plan.names import check_given_name, check_pipeline_name, step_names, unique
from millstream.schema import Scalar, check_names
from millstream.sinks.spec import Discard, Sink
from millstream.sources.spec import HIDDEN, Source
from millstream.sources.topic import Topic
from millstream.steps.distinct import distinct
from millstream.windows.aggregates import Aggregate, Mean, Sum
from millstream.windows.spec import Tumbling

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.runtime.job import Job

Rest = Sink | Discard | None


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
            delay=_not_negative(watermark, "watermark"),
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
        self._check(condition, "where")
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
            self._check(text, "select")
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
            self._check(text, f"with_columns({name}=…)")
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
            self._known(name, "drop")
        columns = None if self.columns is None else tuple(c for c in self.columns if c not in names)
        if columns == ():
            raise InvalidSpec("drop needs to leave a column", got="all of them",
                              do="keep one of them")  # fmt: skip
        time = self.node.time if self.node.time and self.node.time.column not in names else None
        return Stream(graph.Drop(columns, time, self.node, names))

    def explode(self, column: str) -> Stream:
        """One row per element of an array column; no row where it is empty or null."""
        self._known(column, "explode")
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
            self._check(condition, f"split({name}=…)")
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
            self._known(key, "by")
        if len(set(keys)) < len(keys):
            raise InvalidSpec("by needs each column once", got=", ".join(keys),
                              do="name it once")  # fmt: skip
        return Grouped(self, keys)

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
        spec = distinct(by if isinstance(by, str | list | tuple) else (by,), within)
        for key in spec.by:
            self._known(key, "distinct(by=…)")
        if spec.within is not None:
            self._timed("distinct(within=…)")
        check_given_name(name, "distinct")
        label = name or f"distinct({', '.join(spec.by)})"
        node = graph.Deduplicated(self.columns, self.node.time, self.node, label, _rest(rest),
                                  spec, given=name is not None)  # fmt: skip
        return Stream(node)

    def to(self, sink: Sink, name: str | None = None) -> Output:
        """These rows on their way to a sink: an output for a Pipeline."""
        if not isinstance(sink, Sink) or isinstance(sink, Discard):
            raise InvalidSpec("to needs a sink", got=repr(sink), do='write ms.Topic("name")')
        keys: tuple[str, ...] = ()
        if isinstance(sink, Topic):
            keys = sink.keys or columns_of.record_keys(self.node)
            for key in keys:
                self._known(key, f"Topic({sink.name!r}, key=…)")
        check_given_name(name, "an output")
        return Output(self.node, sink, name or sink.name, keys)

    def _check(self, text: str, step: str) -> None:
        hidden = HIDDEN if isinstance(self.node, graph.Read) else ()
        sql.check(text, self.columns, step=step, hidden=hidden)

    def _known(self, name: str, step: str) -> None:
        columns_of.known(name, self.columns, step=step)

    def _timed(self, step: str) -> EventTime:
        if self.node.time is None:
            raise InvalidSpec(f"{step} needs an event time", got="a stream without one",
                              do='give read(…, time="column") and keep that column')  # fmt: skip
        return self.node.time


@dataclass(frozen=True, eq=False)
class Grouped:
    """Rows grouped by key, waiting for a window."""

    stream: Stream
    keys: tuple[str, ...]

    def window(self, window: Tumbling) -> Windowed:
        """The groups cut by a window of event time."""
        if not isinstance(window, Tumbling):
            raise InvalidSpec("window needs a window", got=repr(window),
                              do='write ms.tumbling("10 seconds")')  # fmt: skip
        self.stream._timed(f"window({window})")
        return Windowed(self, window, None)


@dataclass(frozen=True, eq=False)
class Windowed:
    """Groups cut by a window, waiting for aggregates."""

    grouped: Grouped
    cut: Tumbling
    rest: Rest

    def late(self, *, rest: Rest) -> Windowed:
        """Where rows go whose window has left: a topic, or `ms.discard`."""
        if rest is None:
            raise InvalidSpec("late(rest=…) needs a topic or ms.discard", got="None",
                              do="leave late() out for the topic <pipeline>.late")  # fmt: skip
        return Windowed(self.grouped, self.cut, _rest(rest))

    def agg(self, name: str | Aggregate | None = None, **aggregates: Aggregate) -> Stream:
        """Aggregates per key and window, one row when the window closes.

        State: one row of partial aggregates per key and open window.
        Emits: keys, window_start, window_end, aggregates: once, at watermark ≥ end.
        """
        if isinstance(name, Aggregate):
            aggregates, name = {"name": name, **aggregates}, None
        if not aggregates:
            raise InvalidSpec("agg needs at least one aggregate", got="none",
                              do="write agg(n=ms.count())")  # fmt: skip
        stream, keys = self.grouped.stream, self.grouped.keys
        for column, aggregate in aggregates.items():
            if not isinstance(aggregate, Aggregate):
                raise InvalidSpec(f"agg({column}=…) needs an aggregate", got=repr(aggregate),
                                  do=f'write {column}=ms.sum("column")')  # fmt: skip
            if aggregate.column is not None:
                stream._known(aggregate.column, f"agg({column}=…)")
                if isinstance(aggregate, Sum | Mean):
                    columns_of.need_number(stream.node, aggregate.column, step=f"agg({column}=…)")
        check_names((*keys, *aggregates), "agg")
        check_given_name(name, "agg")
        node = graph.Aggregated(
            (*keys, "window_start", "window_end", *aggregates),
            EventTime("window_end", -1),
            stream.node,
            name or f"{type(self.cut).__name__.lower()}({', '.join(keys)})",
            self.rest,
            keys,
            self.cut,
            tuple(aggregates.items()),
            given=name is not None,
        )
        return Stream(node)


@dataclass(frozen=True, eq=False)
class Pipeline:
    """A name and its outputs.

    `batch` is how long a batch should take when there is much to read; `history` how
    far back the checkpoint can be rewound; `buckets` how many parts the state of a
    step has (a power of two, fixed at the first start).
    """

    name: str
    outputs: tuple[Output, ...]
    batch: int
    history: int
    buckets: int

    def __init__(
        self,
        name: str,
        *outputs: Output,
        batch: Duration = "1 second",
        history: Duration = "1 day",
        buckets: int = 256,
    ) -> None:
        check_pipeline_name(name)
        if not outputs or not all(isinstance(output, Output) for output in outputs):
            raise InvalidSpec(f"Pipeline({name!r}) needs outputs", got=repr(outputs),
                              do="write Pipeline(name, stream.to(ms.Topic(…)))")  # fmt: skip
        if type(buckets) is not int or not 1 <= buckets <= 65536 or buckets & (buckets - 1):
            raise InvalidSpec("buckets needs a power of two up to 65536", got=repr(buckets),
                              do="leave it at 256")  # fmt: skip
        unique([output.name for output in outputs], "output", "give .to(sink, name=…)")
        step_names(outputs)
        for field, value in (("name", name), ("outputs", outputs), ("buckets", buckets),
                             ("batch", positive_micros(batch, what="batch")),
                             ("history", _not_negative(history, "history"))):  # fmt: skip
            object.__setattr__(self, field, value)

    def run(self, until: Literal["caught_up", "finished"] | None = None, **options: Any) -> None:
        """Run here and now; see `millstream.runtime.job.run` for the options."""
        from millstream.runtime.job import run

        run(self, until=until, **options)

    def start(self, **options: Any) -> Job:
        """Run in the background of this process; the Job can be stopped and waited for."""
        from millstream.runtime.job import start

        return start(self, **options)

    def plan(self) -> str:
        """The logical plan and its stages, as text."""
        from millstream.plan.explain import explain

        return explain(self.name, self.outputs)


def _not_negative(value: Duration, what: str) -> int:
    length = micros(value, what=what)
    if length < 0:
        raise InvalidSpec(f"{what} needs a duration of zero or more", got=repr(value))
    return length


def _rest(rest: Rest) -> Sink | Discard | None:
    if rest is not None and not isinstance(rest, Sink):
        raise InvalidSpec("rest needs a topic or ms.discard", got=repr(rest),
                          do='write rest=ms.Topic("late-rows")')  # fmt: skip
    return rest
