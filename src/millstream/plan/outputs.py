"""Outputs: a stream or table and the sink it is written to, checked against each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import InvalidSpec
from millstream.plan import columns as columns_of
from millstream.plan.graph import Output, Stateful
from millstream.plan.names import check_given_name
from millstream.sinks.alerts.alert import Alert
from millstream.sinks.alerts.email import Email
from millstream.sinks.files.files import FilesSink
from millstream.sinks.keys import Keyed, accepts_retractions
from millstream.sinks.live.live import Chart, LiveTable
from millstream.sinks.spec import Discard, Sink
from millstream.sources.files.files import Files
from millstream.sources.kafka.topic import Topic
from millstream.sql.condition import check_condition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.plan.graph import Columns, Node

RETRACT = "retract"


def stream_output(node: Node, sink: Sink, name: str | None) -> Output:
    """The rows of a stream, written to a sink.

    Raises:
        InvalidSpec: the sink lacks a column it needs, or cannot apply the stream's retractions.
    """
    _check_sink(sink)
    own = columns_of.record_keys(node)
    keys: tuple[str, ...] = ()
    if isinstance(sink, Topic):
        keys = sink.keys or own
    elif isinstance(sink, Files):
        FilesSink(sink)
    elif isinstance(sink, Keyed):
        keys = sink.keys
    for key in keys:
        columns_of.check_known(key, node.columns, step=f"{_words(sink)}, key=…)")
    keys = watched_keys(sink, keys, own, node.columns)
    refuse_unmarked(node, sink, node.columns)
    check_given_name(name, "an output")
    return Output(node, sink, name or sink.name, keys)


def table_output(node: Node, key: tuple[str, ...], sink: Sink, name: str | None) -> Output:
    """The rows of a table, written to a sink that replaces and deletes rows by key.

    Raises:
        InvalidSpec: the sink only appends, or its key is not that of the table.
    """
    _check_sink(sink)
    keys = (sink.keys if isinstance(sink, Keyed | Topic) else None) or ()
    keys = watched_keys(sink, keys, key, node.columns)
    if isinstance(sink, Topic):
        keys = keys or key
    elif not accepts_retractions(sink):
        raise InvalidSpec(f"{_words(sink)}) needs rows that stay",
                          got="a table, whose rows change",
                          do=f"use a sink with key={list(key)!r}, or write "
                          "table.changes().to(…) for a row per change")  # fmt: skip
    if keys and not set(key) <= set(keys):
        raise InvalidSpec(f"{_words(sink)}, key=…) needs the table's key",
                          got=", ".join(keys), do=f"write key={list(key)!r}")  # fmt: skip
    for column in keys:
        columns_of.check_known(column, node.columns, step=f"{_words(sink)}, …)")
    check_given_name(name, "an output")
    return Output(node, sink, name or sink.name, keys, table=True)


def _check_sink(sink: object) -> None:
    if not isinstance(sink, Sink) or isinstance(sink, Discard):
        raise InvalidSpec("to needs a sink", got=repr(sink), do='write ms.Topic("name")')


def _words(sink: Sink) -> str:
    """The call that made a sink, up to its name."""
    return f"{type(sink).__name__}({sink.name!r}"


def refuse_unmarked(node: Node, sink: Sink, columns: Columns | Sequence[str]) -> None:
    """Refuse a stream with retractions for a sink that would append each of them as a row.

    The panes of a window are results. A later step receives the on-time results and then
    corrections: the old row retracted, and the new one. Only a sink that finds the old row by its
    key, or a reader of the column `retract`, can apply them. Where only Spark knows the columns
    (None), the check is repeated once the plan is analysed.

    Raises:
        InvalidSpec: the sink only appends, and no column marks retractions.
    """
    if isinstance(node, Stateful) or not node.corrects or accepts_retractions(sink):
        return
    if columns is not None and RETRACT not in columns:
        raise InvalidSpec(
            f"{_words(sink)}) needs rows that are never retracted, or the column {RETRACT!r} "
            "that marks retractions",
            got="a stream with corrections (late(keep=…)), without that column",
            do='write .trigger(panes="retracting") and keep that column, or use a sink with '
            "key=, or leave keep= out",
        )


def watched_keys(
    sink: Sink, keys: tuple[str, ...], own: tuple[str, ...], columns: Columns
) -> tuple[str, ...]:
    """The keys of an output; for an alert the keys it watches: `by`, by default the operator's
    `own`.

    Raises:
        InvalidSpec: the sink names an unknown column, or a condition that depends on more than
            the row.
    """
    step = f"{_words(sink)}, …)"
    if isinstance(sink, Alert):
        keys = own if sink.by is None else sink.by
        if not set(own) <= set(keys):
            raise InvalidSpec(
                f"{step} needs to watch each key of its rows separately: {', '.join(own)}",
                got=f"by={list(keys)!r}", do="leave by= out, or aggregate over the keys before it",
            )  # fmt: skip
        for sql in sink.conditions if columns is not None else ():
            check_condition(sql, tuple(columns or ()), of=f"columns of {step}")
    named = sink.columns if isinstance(sink, Chart | LiveTable | Email) else ()
    for column in (*named, *(keys if isinstance(sink, Alert) else ())):
        columns_of.check_known(column, columns, step=step)
    return keys
