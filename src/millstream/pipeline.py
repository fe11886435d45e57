"""Stream and Pipeline: what users touch.

Both are plain values. Building them runs nothing and needs no Spark and no Kafka;
every mistake that can be seen while building raises there, at the user's line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from millstream.duration import Duration, micros, positive_micros
from millstream.errors import InvalidSpec
from millstream.plan import sql
from millstream.plan.graph import (
    Aggregated,
    Deduplicated,
    Drop,
    EventTime,
    Explode,
    Node,
    Output,
    Read,
    Select,
    Stateful,
    Transform,
    Union,
    Where,
    WithColumns,
    ancestry,
)
from millstream.plan.names import check_pipeline_name, unique
from millstream.schema import check_names
from millstream.sinks.spec import Discard, Sink
from millstream.sources.spec import HIDDEN, Source
from millstream.sources.topic import Topic
from millstream.steps.distinct import Distinct
from millstream.windows.aggregates import Aggregate
from millstream.windows.spec import Tumbling

if TYPE_CHECKING:
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
        if time not in names:
            raise sql.unknown_column(time, names, step="read(time=…)")
        if schema[time].type.name != "timestamp":
            raise InvalidSpec(f"read(time={time!r}) needs a timestamp column",
                              got=schema[time].type.ddl())  # fmt: skip
    return Stream(
        Read(
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
        return Stream(Where(self.node.columns, self.node.time, self.node, condition))

    def select(self, *expressions: str) -> Stream:
        """These SQL expressions as the new columns: `select("auction", "price * 0.9 as euros")`."""
        if not expressions:
            raise InvalidSpec("select needs at least one expression", got="none")
        items: list[tuple[str, str]] = []
        for text in expressions:
            if text == "*" and self.columns is not None:
                items += [(name, f"`{name}`") for name in self.columns]
                continue
            self._check(text, "select")
            items.append(sql.alias(text, step="select"))
        names = tuple(name for name, _ in items)
        unique(names, "column of select", "write … as another_name")
        check_names([name for name, text in items if sql.renamed(text) != name], "select")
        return Stream(Select(names, _followed(self.node.time, items), self.node, tuple(items)))

    def with_columns(self, **expressions: str) -> Stream:
        """More columns beside those there are, or in the place of one."""
        for name, text in expressions.items():
            self._check(text, f"with_columns({name}=…)")
            if self.node.time is not None and name == self.node.time.column:
                raise InvalidSpec(f"with_columns needs another name than {name!r}",
                                  got="the column that holds the event time")  # fmt: skip
        check_names(tuple(expressions), "with_columns")
        columns = self.columns
        if columns is not None:
            columns = (*columns, *(name for name in expressions if name not in columns))
        return Stream(WithColumns(columns, self.node.time, self.node, tuple(expressions.items())))

    def drop(self, *names: str) -> Stream:
        """All columns but these."""
        for name in names:
            self._known(name, "drop")
        columns = None if self.columns is None else tuple(c for c in self.columns if c not in names)
        if columns == ():
            raise InvalidSpec("drop needs to leave a column", got="all of them")
        time = self.node.time if self.node.time and self.node.time.column not in names else None
        return Stream(Drop(columns, time, self.node, names))

    def explode(self, column: str) -> Stream:
        """One row per element of an array column; no row where it is empty or null."""
        self._known(column, "explode")
        return Stream(Explode(self.columns, self.node.time, self.node, column))

    def transform(self, function: Callable[[Any], Any]) -> Stream:
        """The user's own stateless, row-wise, deterministic `DataFrame -> DataFrame` function.

        It must keep the column `_origin` (`df.withColumn(…)`, `df.select("*", …)` do);
        shuffles, aggregates and `rand()` are refused when the plan is analysed.
        """
        if not callable(function):
            raise InvalidSpec("transform needs a DataFrame -> DataFrame function",
                              got=repr(function))  # fmt: skip
        return Stream(Transform(None, self.node.time, self.node, function))

    def union(self, other: Stream) -> Stream:
        """The rows of both; the watermark is the slower one's."""
        if not isinstance(other, Stream):
            raise InvalidSpec("union needs a Stream", got=repr(other))
        if self.columns is not None and other.columns is not None:
            missing = set(self.columns) ^ set(other.columns)
            if missing:
                raise InvalidSpec("union needs two streams with the same columns",
                                  got=f"{', '.join(sorted(missing))} on one side only",
                                  do="select the same columns on both")  # fmt: skip
        time = self.node.time if self.node.time == other.node.time else None
        return Stream(Union(self.columns, time, (self.node, other.node)))

    def split(self, **conditions: str) -> dict[str, Stream]:
        """One stream per condition, the first true one wins; `"rest"` has the others."""
        if "rest" in conditions:
            raise InvalidSpec("split needs another name than 'rest'", got="rest=…",
                              do="'rest' is what no condition takes")  # fmt: skip
        earlier: list[str] = []
        parts = {}
        for name, condition in conditions.items():
            self._check(condition, f"split({name}=…)")
            parts[name] = self.where(" and ".join([*earlier, f"({condition})"]))
            earlier.append(f"not coalesce(({condition}), false)")
        parts["rest"] = self.where(" and ".join(earlier)) if earlier else self
        return parts

    def by(self, *keys: str) -> Grouped:
        """The rows grouped by these columns, for a window."""
        if not keys:
            raise InvalidSpec("by needs at least one column", got="none")
        for key in keys:
            self._known(key, "by")
        if len(set(keys)) < len(keys):
            raise InvalidSpec("by needs each column once", got=", ".join(keys))
        return Grouped(self, keys)

    def distinct(
        self,
        by: str | Sequence[str],
        within: Duration | None = None,
        rest: Rest = None,
        name: str | None = None,
    ) -> Stream:
        """The first row of each key, for ever or within a time.

        State: one entry per key; with `within`, only as long as a row may still repeat it.
        Emits: each first row at once; rows with time + within behind the watermark go to `rest`.
        """
        keys = (by,) if isinstance(by, str) else tuple(by)
        for key in keys:
            self._known(key, "distinct(by=…)")
        length = None if within is None else positive_micros(within, what="within")
        if length is not None:
            self._timed("distinct(within=…)")
        node = Deduplicated(self.columns, self.node.time, self.node,
                            name or f"distinct({', '.join(keys)})", _rest(rest),
                            Distinct(keys, length))  # fmt: skip
        return Stream(node)

    def to(self, sink: Sink, name: str | None = None) -> Output:
        """These rows on their way to a sink: an output for a Pipeline."""
        if not isinstance(sink, Sink) or isinstance(sink, Discard):
            raise InvalidSpec("to needs a sink", got=repr(sink), do='write ms.Topic("name")')
        keys: tuple[str, ...] = ()
        if isinstance(sink, Topic):
            keys = sink.keys or _operator_keys(self.node)
            for key in keys:
                self._known(key, f"Topic({sink.name!r}, key=…)")
        return Output(self.node, sink, name or sink.name, keys)

    def _check(self, text: str, step: str) -> None:
        columns = self.columns
        if columns is not None and isinstance(self.node, Read):
            columns = (*columns, *HIDDEN)
        sql.check(text, columns, step=step)

    def _known(self, name: str, step: str) -> None:
        if self.columns is not None and name not in self.columns:
            raise sql.unknown_column(name, self.columns, step=step)

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

    def late(self, rest: Rest) -> Windowed:
        """Where rows go whose window has left: a topic, or `ms.discard`."""
        if rest is None:
            raise InvalidSpec("late(rest=…) needs a topic or ms.discard", got="None")
        return Windowed(self.grouped, self.cut, rest)

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
        check_names((*keys, *aggregates), "agg")
        node = Aggregated(
            (*keys, "window_start", "window_end", *aggregates),
            EventTime("window_end", -1),
            stream.node,
            name or f"{type(self.cut).__name__.lower()}({', '.join(keys)})",
            _rest(self.rest),
            keys,
            self.cut,
            tuple(aggregates.items()),
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
        if buckets < 1 or buckets & (buckets - 1) or buckets > 65536:
            raise InvalidSpec("buckets needs a power of two up to 65536", got=repr(buckets))
        unique([output.name for output in outputs], "output", "give .to(sink, name=…)")
        unique([node.label for node in ancestry(outputs) if isinstance(node, Stateful)
                and "(" not in node.label], "step", "give each step a name of its own")  # fmt: skip
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
        raise InvalidSpec("rest needs a topic or ms.discard", got=repr(rest))
    return rest


def _followed(time: EventTime | None, items: list[tuple[str, str]]) -> EventTime | None:
    """The event time after a select: it follows its column, also under a new name."""
    if time is None:
        return None
    for name, text in items:
        if sql.renamed(text) == time.column:
            return EventTime(name, time.shift)
    return None


def _operator_keys(node: Node) -> tuple[str, ...]:
    """The keys of the operator these rows come from, as far as they are still columns."""
    while not isinstance(node, Stateful):
        if len(node.inputs) != 1:
            return ()
        node = node.inputs[0]
    keys = node.keys if isinstance(node, Aggregated) else ()
    keys = node.spec.by if isinstance(node, Deduplicated) else keys
    return keys
