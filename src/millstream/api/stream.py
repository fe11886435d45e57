"""Stream: a sequence of events, and the operators on it.

A plain value: building one runs nothing and needs neither Spark nor Kafka. Mistakes that can be
found while building raise there, at the user's line.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from millstream.api.rows import RowWise
from millstream.api.table import Table, aggregated_table
from millstream.api.windowed import Rest, Windowed, checked_rest, windowed
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
from millstream.plan.graph import HIDDEN_TIME
from millstream.plan.join_graph import enriched, joined
from millstream.plan.names import check_given_name
from millstream.plan.outputs import stream_output
from millstream.plan.table_graph import CurrentRows, FoldedRows
from millstream.schema import Scalar, Schema, check_names
from millstream.sinks.spec import Sink

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.duration import Duration
    from millstream.operators.aggregates.spec import Aggregate
    from millstream.plan.graph import Output, Window
    from millstream.sinks.spec import Sink


@dataclass(frozen=True, eq=False)
class Stream(RowWise):
    """Append-only events, with an event time if `time=` was given."""

    def by(self, *keys: str) -> Grouped:
        """The rows grouped by these columns, for windows or aggregates."""
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
        """The rows with a corrected event time: `event + (received - sent)`.

        `event` and `sent` were stamped by the same, possibly wrong clock, `received` by a correct
        one (the record's timestamp, or a column). If the stamps are inconsistent (`event` after
        `sent`, a null), the row keeps its time and `clock_flag` is true; `clock_offset` is the
        correction in microseconds. Watermarks use the corrected time.
        """
        read = self.node
        if not isinstance(read, graph.Read) or read.correction is not None:
            raise InvalidSpec("correct_clock needs to follow read(…) directly",
                              got="a stream with other steps in between",
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
        """The `n` rows with the largest `by` among the results of each window, over all keys.

        State: the largest rows of each open window.
        Emits: those rows, largest first, when the watermark has passed the window.
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
        """A user function per key and batch, with state and timers.

        It is called with a `Visit` (key, rows in order of origin, state, timers that are due) and
        returns the rows to emit, if any. `state` and `gives` are schemas in SQL text; without
        `gives` the function returns rows with the columns of its input.

        State: the declared columns and the timers of each key.
        Emits: the rows the function returns, immediately.
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
        declared, given = (
            Schema.parse(state),
            columns_of.output_schema(self.node, gives, step="process"),
        )
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

        State: the rows that the watermark has not passed.
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
        """The first row of each key: once, or once per `within` of event time.

        State: one entry per key; with `within`, only until the watermark passes time + within.
        Emits: each first row immediately; rows with time + within behind the watermark go to
        `rest`.
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
        """A Table of the last row of each key, in order of origin.

        State: one row per key, kept indefinitely.
        Emits: per batch, each change: the old row retracted, the new one added.
        """
        self.need_settled("latest")
        keys = self._keys(by, "latest(by=…)")
        check_given_name(name, "latest")
        time = None if self.node.time is None else HIDDEN_TIME
        node = CurrentRows(self._known_columns("latest"), time, self.node,
                      name or f"latest({', '.join(keys)})", None, Current(keys, "origin"),
                      given=name is not None)  # fmt: skip
        return Table(node, keys, Stream)

    def fold(
        self,
        *,
        by: Keys,
        start: Mapping[str, Any],
        step: Fold,
        gives: str | None = None,
        name: str | None = None,
    ) -> Table:
        """A Table of each key's rows, folded one after the other by a function.

        `step(state, row)` returns the next state, a dict; the first state is `start`. `gives`
        declares the columns of the state in SQL text, where the values of `start` do not show
        their types.

        State: the last state of each key, kept indefinitely.
        Emits: per batch, each change: the old state retracted, the new one added.
        """
        self.need_settled("fold")
        spec = folded(self._keys(by, "fold(by=…)"), start, step, gives)
        check_given_name(name, "fold")
        time = None if self.node.time is None else HIDDEN_TIME
        node = FoldedRows((*spec.by, *spec.gives.names), time, self.node,
                          name or f"fold({', '.join(spec.by)})", None, spec,
                          given=name is not None)  # fmt: skip
        return Table(node, spec.by, Stream)

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

        `within` is a duration in both directions, or a pair of bounds for the right row relative
        to the left one, such as `("-5 minutes", "1 hour")`, both inclusive. The columns of both
        sides are kept; the pair's event time, the later of the two, is in a new column,
        `event_time`. `suffix` is added to right-hand names that the left side has too; without
        it they raise.

        State: rows of both sides while they can match; without `within`, indefinitely.
        Emits: each pair once; for outer joins also unmatched rows, once the watermarks prove
        that nothing can match them. Late rows that can match nothing go to `rest`.
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
        """Each event with the row its key had in the table at the event's time.

        A small table is `replicated`: every task reads all of it, so skewed keys do no harm. A
        large table and its events are `repartitioned` by key. `plan` forces either; `suffix` is
        that of `join`. Tables of `Files` or `Memory` need their own `time=`.

        State: events that the table's watermark has not passed; versions they may still need.
        Emits: each event, with its own time, once the table's watermark has passed that time;
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

        The table is first read to the end its source had at the job's first start; until then
        events stay unread. Which row an event finds after that depends on when its batch runs: a
        replay may give different results. `plan` and `suffix` are those of `as_of`.

        State: one row per key of the table.
        Emits: each event immediately, with its own time.
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
                              got="a stream whose columns only Spark knows",
                              do="name them after transform: .select(…)")  # fmt: skip
        return self.columns

    def to(self, sink: Sink, name: str | None = None) -> Output:
        """An output for a Pipeline: these rows, written to a sink."""
        return stream_output(self.node, sink, name)


@dataclass(frozen=True, eq=False)
class Grouped:
    """Rows grouped by key."""

    stream: Stream
    keys: tuple[str, ...]

    def window(self, window: Window) -> Windowed:
        """The groups, divided into windows."""
        return windowed(self.stream, self.keys, window)

    def agg(self, name: str | Aggregate | None = None, **aggregates: Aggregate) -> Table:
        """A Table of aggregates per key over all rows so far.

        State: one row of partial aggregates per key, kept indefinitely.
        Emits: per batch, each change: a key's old answer retracted, the new one added.
        """
        return aggregated_table(self.stream.node, self.keys, name, aggregates,
                                stream=Stream)  # fmt: skip
