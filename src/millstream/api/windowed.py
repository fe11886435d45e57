"""Windows of a stream: `.by(…).window(…).trigger(…).late(…).agg(…)`, as plain values."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from millstream.duration import Duration, not_negative_micros
from millstream.errors import InvalidSpec
from millstream.operators.aggregates.spec import Aggregate
from millstream.operators.windows.by_rows.spec import PUNCTUATION, Delta, Punctuated, Rows
from millstream.operators.windows.sessions.spec import Session
from millstream.operators.windows.sliding.spec import Sliding
from millstream.operators.windows.spec import Everything, Hopping, Tumbling
from millstream.operators.windows.trigger import Firing, Panes, conditions, trigger
from millstream.plan import columns as columns_of
from millstream.plan import graph
from millstream.plan.graph import HIDDEN_TIME, EventTime, Node, Policy
from millstream.plan.names import check_given_name
from millstream.plan.side_outputs import check_side_output
from millstream.schema import check_names
from millstream.sinks.spec import Discard, Sink
from millstream.sql import columns as sql
from millstream.sql.condition import check_condition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.api.stream import Stream
    from millstream.plan.graph import Window

Rest = Sink | Discard | None

_WINDOWS = (Tumbling, Hopping, Session, Sliding, Rows, Delta, Punctuated, Everything)
_BY_ROWS = (Rows, Delta, Punctuated)


@dataclass(frozen=True, eq=False)
class Windowed:
    """Groups divided into windows."""

    stream: Stream
    keys: tuple[str, ...]
    cut: Window
    rest: Rest = None
    policy: Policy | None = None

    def trigger(
        self,
        early: Firing | None = None,
        late: Firing | None = None,
        panes: Panes = "accumulating",
    ) -> Windowed:
        """When panes are emitted besides the on-time one, and what each pane contains."""
        spec = trigger(early, late, panes)
        if isinstance(self.cut, Sliding):
            raise InvalidSpec("trigger needs a window that stays open", got=str(self.cut),
                              do="leave it out: a sliding window is emitted once per row, "
                              "when the watermark has passed the row")  # fmt: skip
        if spec.late is not None:
            self._refuse_late("trigger(late=…)")
        return replace(self, policy=replace(self.policy or Policy(), trigger=spec))

    def late(
        self,
        *,
        keep: Duration = "0 seconds",
        rest: Rest = None,
        alert_above: float | None = None,
    ) -> Windowed:
        """How long an emitted window is kept for late rows, and where rows after that go.

        `keep` is event time; `rest` is any sink, or `ms.discard` (the default is the topic
        `<pipeline>.late`, or files in the checkpoint if a pipeline uses no Kafka);
        `alert_above` is the share of late rows per minute that causes a warning.
        """
        kept = not_negative_micros(keep, what="late(keep=…)")
        if isinstance(self.cut, _BY_ROWS):
            self._refuse_late("late")
        if kept:
            self._refuse_kept("late(keep=…)")
        if alert_above is not None and not 0 <= _number(alert_above) <= 1:
            raise InvalidSpec("late(alert_above=…) needs a share from 0 to 1",
                              got=repr(alert_above), do="write alert_above=0.01")  # fmt: skip
        policy = replace(self.policy or Policy(), keep=kept, alert_above=alert_above)
        return replace(self, rest=checked_rest(rest), policy=policy)

    def agg(self, name: str | Aggregate | None = None, **aggregates: Aggregate) -> Stream:
        """Aggregates per key and window, one row when the window closes.

        State: one row of partial aggregates per key and open window.
        Emits: keys, window_start, window_end, aggregates: once, when the window closes; with
        a trigger or late policy also `pane` and `pane_index`, once per pane.
        """
        if isinstance(name, Aggregate):
            aggregates, name = {"name": name, **aggregates}, None
        check_aggregates(self.stream.node, self.keys, aggregates)
        check_given_name(name, "agg")
        self._check_trigger(tuple(aggregates))
        return self.stream.then(self._node(name, aggregates))

    def _node(self, name: str | None, aggregates: dict[str, Aggregate]) -> Node:
        keys = self.keys
        kind = type(self.cut).__name__.lower()
        return graph.Aggregated(
            (*keys, "window_start", "window_end", *aggregates, *_pane_columns(self.policy)),
            self._time(),
            self._input(),
            name or f"{kind}({', '.join(keys)})",
            self.rest,
            keys,
            self.cut,
            tuple(aggregates.items()),
            self.policy,
            given=name is not None,
        )

    def _input(self) -> Node:
        node = self.stream.node
        if not isinstance(self.cut, Punctuated):
            return node
        columns = None if node.columns is None else (*node.columns, PUNCTUATION)
        return graph.WithColumns(columns, node.time, node, ((PUNCTUATION, self.cut.sql),))

    def _time(self) -> EventTime | None:
        """The event time of the results, which depends on the kind of window."""
        cut, given = self.cut, self.stream.node.time
        if isinstance(cut, Everything):
            return None if given is None else HIDDEN_TIME
        if not (_is_timed(cut) or (isinstance(cut, _BY_ROWS) and given)):
            return None
        return EventTime("window_end", 0 if isinstance(cut, (Sliding, *_BY_ROWS)) else -1)

    def _check_trigger(self, names: tuple[str, ...]) -> None:
        spec = self.policy.trigger if self.policy else None
        for firing in (spec.early, spec.late) if spec else ():
            for condition in conditions(firing):
                check_condition(condition, names)

    def _refuse_late(self, word: str) -> None:
        if isinstance(self.cut, _BY_ROWS):
            raise InvalidSpec(f"{word} needs a window that rows can be late for",
                              got=str(self.cut),
                              do="leave it out: such a window takes rows in log order, whatever "
                              "their time")  # fmt: skip

    def _refuse_kept(self, word: str) -> None:
        if isinstance(self.cut, Sliding):
            raise InvalidSpec(f"{word} needs a window that can be corrected", got=str(self.cut),
                              do="leave it out and set rest=…, where rows behind the watermark "
                              "go")  # fmt: skip
        if getattr(self.cut, "clock", "event") == "processing":
            raise InvalidSpec(f"{word} needs an event-time window", got=str(self.cut),
                              do="leave it out: no row is late by the batch clock")  # fmt: skip


def windowed(stream: Stream, keys: tuple[str, ...], window: Window) -> Windowed:
    """A stream's groups, divided into windows.

    Raises:
        InvalidSpec: it is not a window, or the stream lacks what the window needs.
    """
    if not isinstance(window, _WINDOWS):
        raise InvalidSpec("window needs a window", got=repr(window),
                          do='write ms.tumbling("10 seconds")')  # fmt: skip
    step = f"window({window})"
    if _is_timed(window):
        stream.need_time(step)
    if isinstance(window, (*_BY_ROWS, Sliding)):
        stream.need_settled(step)
    if isinstance(window, Delta):
        stream.need_column(window.column, step)
    if isinstance(window, Punctuated):
        stream.check(window.sql, step)
        sql.check_unnamed(window.sql, step)
    return Windowed(stream, keys, window)


def check_aggregates(
    node: Node, keys: tuple[str, ...], aggregates: Mapping[str, Aggregate]
) -> None:
    """Refuse an empty list of aggregates, and aggregates that do not fit the rows of a node."""
    if not aggregates:
        raise InvalidSpec("agg needs at least one aggregate", got="none",
                          do="write agg(n=ms.count())")  # fmt: skip
    for column, aggregate in aggregates.items():
        _check_aggregate(node, column, aggregate)
    check_names((*keys, *aggregates), "agg")


def _check_aggregate(node: Node, column: str, aggregate: object) -> None:
    step = f"agg({column}=…)"
    if not isinstance(aggregate, Aggregate):
        raise InvalidSpec(f"{step} needs an aggregate", got=repr(aggregate),
                          do=f'write {column}=ms.sum("column")')  # fmt: skip
    for read in aggregate.columns:
        columns_of.check_known(read, node.columns, step=step)
        if aggregate.of_numbers:
            columns_of.check_number(node, read, step=step)
    if node.corrects and not aggregate.can_retract:
        raise InvalidSpec(f"{step} needs rows that are never retracted",
                          got="a table, or a stream with corrections (late(keep=…))",
                          do=f"use an exact aggregate instead of {aggregate.kind}")  # fmt: skip


def checked_rest(rest: Rest) -> Rest:
    """The sink for late rows, after a check that it can hold them."""
    check_side_output(rest, "late")
    return rest


def _is_timed(window: Window) -> bool:
    """Whether a window needs event time."""
    if isinstance(window, Tumbling | Hopping):
        return window.clock == "event"
    return isinstance(window, Session | Sliding)


def _pane_columns(policy: Policy | None) -> tuple[str, ...]:
    if policy is None:
        return ()
    retracting = policy.trigger is not None and policy.trigger.panes == "retracting"
    return ("pane", "pane_index", "retract") if retracting else ("pane", "pane_index")


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else -1.0
