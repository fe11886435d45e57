"""Rows that take earlier ones back, on their way to a sink: where nobody could tell, refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import InvalidSpec
from millstream.plan.graph import Stateful
from millstream.sinks.keys import accepts_retractions

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
