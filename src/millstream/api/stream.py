"""Stream: events that happened, and what follows from them.

A plain value: building runs nothing and needs no Spark and no Kafka; every mistake that
can be seen while building raises there, at the user's line.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from millstream.api.rows import RowWise
from millstream.api.table import Table
from millstream.api.windowed import Grouped, Rest, checked_rest
from millstream.duration import Duration, not_negative_micros, positive_micros
from millstream.errors import InvalidSpec
from millstream.event_time.clock_correction import FLAG, OFFSET, ClockCorrection
from millstream.operators.distinct.spec import distinct
from millstream.operators.joins.interval.spec import How, Within, interval
from millstream.operators.joins.on import On, need_whole_key
from millstream.operators.joins.stream_table.spec import AsOf, Lookup, Plan, as_of, lookup
from millstream.operators.joins.stream_table.spec import How as EitherHow
from millstream.operators.process.spec import Function, Process
from millstream.operators.tables.spec import Current, Fold, Keys, folded, key_names
from millstream.operators.top.spec import Top
from millstream.plan import columns as columns_of
from millstream.plan import graph
from millstream.plan.graph import HIDDEN_TIME, EventTime, Output
from millstream.plan.join_graph import enriched, joined
from millstream.plan.names import check_given_name
from millstream.plan.sink_checks import refuse_unmarked, watched
from millstream.plan.table_graph import FoldedRows, Upheld
from millstream.schema import Scalar, Schema, check_names
from millstream.sinks.files.files import FilesSink
from millstream.sinks.keys import Keyed
from millstream.sinks.spec import Discard, Sink
from millstream.sources.files.files import Files
from millstream.sources.kafka.topic import Topic
from millstream.sources.spec import Source

if TYPE_CHECKING:
    from collections.abc import Mapping


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
class Stream(RowWise):
    """Events that happened: append-only, with an event time when `time=` was given."""

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
        self.need_time_column("top")
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

    def latest(self, *, by: Keys, name: str | None = None) -> Table:
        """The last row of each key, in order of origin: a Table.

        State: one row per key, for ever.
        Emits: what changes, per batch: the old row taken back, the new one given.
        """
        self.need_settled("latest")
        keys = self._keys(by, "latest(by=…)")
        check_given_name(name, "latest")
        time = None if self.node.time is None else HIDDEN_TIME
        node = Upheld(self._known_columns("latest"), time, self.node,
                      name or f"latest({', '.join(keys)})", None, Current(keys, "origin"),
                      given=name is not None)  # fmt: skip
        return Table(node, keys)

    def fold(
        self,
        *,
        by: Keys,
        start: Mapping[str, Any],
        step: Fold,
        gives: str | None = None,
        name: str | None = None,
    ) -> Table:
        """What a function makes of each key's rows, one after the other: a Table.

        `step(state, row)` returns the next state, a dict; a key begins with `start`. `gives`
        are the columns of the state in SQL text, where the values of `start` do not show them.

        State: the last state of each key, for ever.
        Emits: what changes, per batch: the old state taken back, the new one given.
        """
        self.need_settled("fold")
        spec = folded(self._keys(by, "fold(by=…)"), start, step, gives)
        check_given_name(name, "fold")
        time = None if self.node.time is None else HIDDEN_TIME
        node = FoldedRows((*spec.by, *spec.gives.names), time, self.node,
                          name or f"fold({', '.join(spec.by)})", None, spec,
                          given=name is not None)  # fmt: skip
        return Table(node, spec.by)

    def join(
        self,
        other: Stream,
        *,
        on: On,
        within: Within | None = None,
        how: How = "inner",
        suffix: str | None = None,
        rest: Rest = None,
        name: str | None = None,
    ) -> Stream:
        """Pairs of rows with equal keys that are at most `within` apart in event time.

        `within` is a duration to either side, or a pair such as `("-5 minutes", "1 hour")`: from
        so long before the left row to so long after it, both included. The columns of both sides
        stay as they were; the pair's event time, the later of the two, is in a new column,
        `event_time`. `suffix` is added to names of the right that the left has, too; without it
        they raise.

        State: rows of both sides as long as they may match; without `within` for ever.
        Emits: each pair once; of an outer join also rows alone, when the watermarks prove that
        nothing can match them. Rows that can match nothing go to `rest`.
        """
        if not isinstance(other, Stream):
            raise InvalidSpec("join needs another stream", got=f"a {type(other).__name__}",
                              do="use as_of or lookup for a table")  # fmt: skip
        spec = interval(on, within, how, suffix)
        for side in (self, other):
            side.need_settled("join")
            side.need_time_column("join")
            if spec.within is not None:
                side.need_time("join(within=…)")
        check_given_name(name, "join")
        return Stream(joined(self.node, other.node, spec, checked_rest(rest), name))

    def as_of(
        self,
        table: Table,
        *,
        on: On,
        how: EitherHow = "inner",
        plan: Plan | None = None,
        suffix: str | None = None,
        rest: Rest = None,
        name: str | None = None,
    ) -> Stream:
        """Each event with the row its key had in the table at the event's own time.

        A small table is `replicated`: every task reads all of it, and no key makes one task
        slow; a large one and its events are `repartitioned` by key. `plan` forces either;
        `suffix` is as that of `join`. Tables of `Files` or `Memory` need their own `time=`.

        State: events the table's watermark has not passed; versions an event may still need.
        Emits: each event once the table's watermark has passed its time, with its own time;
        events behind both watermarks go to `rest`.
        """
        spec = as_of(on, how, plan, suffix)
        self.need_time("as_of")
        return self._enriched(table, spec, "as_of", rest, name)

    def lookup(
        self,
        table: Table,
        *,
        on: On,
        how: EitherHow = "inner",
        plan: Plan | None = None,
        suffix: str | None = None,
        name: str | None = None,
    ) -> Stream:
        """Each event with the row its key has in the table now.

        The table is read first, to the end its source had at the job's first start; until then
        events stay unread. What an event meets after that depends on when its batch runs: a
        replay may give other answers. `plan` and `suffix` are as those of `as_of`.

        State: one row per key of the table.
        Emits: each event at once, with its own time.
        """
        return self._enriched(table, lookup(on, how, plan, suffix), "lookup", None, name)

    def _enriched(
        self, table: Table, spec: AsOf | Lookup, step: str, rest: Rest, name: str | None
    ) -> Stream:
        if not isinstance(table, Table):
            raise InvalidSpec(f"{step} needs a table", got=f"a {type(table).__name__}",
                              do="use join for two streams, or make a table of one: "
                              ".latest(by=…)")  # fmt: skip
        self.need_settled(step)
        need_whole_key(spec.on, table.key, step=step)
        other = table.versions() if isinstance(spec, AsOf) else table.current()
        check_given_name(name, step)
        return Stream(enriched(self.node, other, spec, checked_rest(rest), name))

    def _keys(self, by: Keys, step: str) -> tuple[str, ...]:
        keys = key_names(by, step=step)
        for key in keys:
            self.need_column(key, step)
        return keys

    def _known_columns(self, step: str) -> tuple[str, ...]:
        if self.columns is None:
            raise InvalidSpec(f"{step} needs to know its columns",
                              got="a stream whose columns only Spark can tell",
                              do="name them after transform: .select(…)")  # fmt: skip
        return self.columns

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
        keys = watched(sink, keys, columns_of.record_keys(self.node), self.columns)
        refuse_unmarked(self.node, sink, self.columns)
        check_given_name(name, "an output")
        return Output(self.node, sink, name or sink.name, keys)
