"""Sinks that look into rows: the columns they name must be there, and mean something."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import InvalidSpec
from millstream.plan import columns as columns_of
from millstream.sinks.alerts.alert import Alert
from millstream.sinks.alerts.email import Email
from millstream.sinks.live.live import Chart, LiveTable
from millstream.sql.condition import check_condition

if TYPE_CHECKING:
    from millstream.plan.graph import Columns
    from millstream.sinks.spec import Sink


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
