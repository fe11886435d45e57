"""Checks of a stream against its sink: corrections it cannot apply, columns it needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import InvalidSpec
from millstream.plan import columns as columns_of
from millstream.plan.graph import Stateful
from millstream.sinks.alerts.alert import Alert
from millstream.sinks.alerts.email import Email
from millstream.sinks.keys import accepts_retractions
from millstream.sinks.live.live import Chart, LiveTable
from millstream.sql.condition import check_condition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.plan.graph import Columns, Node
    from millstream.sinks.spec import Sink


RETRACT = "retract"


def refuse_unmarked(node: Node, sink: Sink, columns: Columns | Sequence[str]) -> None:
    """Refuse a stream of corrections for a sink that would take each for a new row.

    What a window shows by itself are panes, each a result of its own. What flows through steps
    behind it are the on-time results and then changes: the old row taken back and the new one.
    Only a sink that finds the old row by its key, or readers who see the column `retract`, can
    make sense of them. Columns that only Spark can tell (None) are judged when it has told.

    Raises:
        InvalidSpec: the sink only appends, and the rows do not say which of them take back.
    """
    if isinstance(node, Stateful) or not node.corrects or accepts_retractions(sink):
        return
    if columns is not None and RETRACT not in columns:
        raise InvalidSpec(
            f"{type(sink).__name__}({sink.name!r}) needs rows that are never taken back, or the "
            f"column {RETRACT!r} that says which are",
            got="a stream that corrects what it has given (late(keep=…)), without it",
            do='write .trigger(panes="retracting") and keep that column, or use a sink with '
            "key=, or leave keep= out",
        )


def watched(
    sink: Sink, keys: tuple[str, ...], own: tuple[str, ...], columns: Columns
) -> tuple[str, ...]:
    """The keys of an output: those given, or of an alert what it watches (`own`, the operator's
    keys, unless it says otherwise).

    Raises:
        InvalidSpec: the sink names a column that is not there, or a condition that cannot be
            told from rows alone.
    """
    step = f"{type(sink).__name__}({sink.name!r}, …)"
    if isinstance(sink, Alert):
        keys = own if sink.by is None else sink.by
        if not set(own) <= set(keys):
            raise InvalidSpec(
                f"{step} needs to watch each key of its rows by itself: {', '.join(own)}",
                got=f"by={list(keys)!r}", do="leave by= out, or aggregate over the keys before it",
            )  # fmt: skip
        for sql in sink.conditions if columns is not None else ():
            check_condition(sql, tuple(columns or ()), of=f"columns of {step}")
    named = sink.columns if isinstance(sink, Chart | LiveTable | Email) else ()
    for column in (*named, *(keys if isinstance(sink, Alert) else ())):
        columns_of.known(column, columns, step=step)
    return keys
