"""What the steps of tables remember, emit and promise, in words for `millstream plan`."""

from __future__ import annotations

from typing import Any

from millstream.plan.table_graph import FoldedRows, Tallied, Told, Upheld

Facts = dict[str, Any]
TableStep = Upheld | Tallied | FoldedRows | Told

_LATE = "a change behind the watermark is applied all the same, and counted as late"


def upholding(node: TableStep, order: str) -> Facts:
    """A step's keys, state, results and order; `order` is what the rows' order means to it."""
    facts: Facts = {"keys": list(node.keys)}
    if isinstance(node, Upheld):
        return facts | _upheld(node, order)
    if isinstance(node, Told):
        return facts | {
            "state": "none",
            "emits": f"{', '.join(node.columns or ())}: each change once, at once",
            "late": _LATE,
            "order": "that of the table's own changes",
        }
    if isinstance(node, FoldedRows):
        return facts | {
            "function": str(node.spec),
            "state": f"per key {node.spec.gives.ddl()}, for ever",
            "emits": _when(node),
            "late": "none: the function is given every row, however old",
            "order": order,
        }
    in_order = any(aggregate.in_order for _, aggregate in node.aggregates)
    signed = node.input.corrects
    kept = [name for name, one in node.aggregates
            if one.keeps_rows or (signed and not one.supports_retraction)]  # fmt: skip
    if kept:
        facts["keeps rows"] = f"{', '.join(kept)} cannot be added up: all values are kept"
    return facts | {
        "gives": [f"{name} = {aggregate}" for name, aggregate in node.aggregates],
        "state": "one row of partial aggregates per key, for as long as it has rows",
        "emits": _when(node),
        "late": "none: every row counts, however old",
        "order": order if in_order else "does not matter: the same answers under any batch cuts",
    }


def _upheld(node: Upheld, order: str) -> Facts:
    by_time = node.spec.order == "time"
    return {
        "state": "one row per key; of a deleted one its key, until a day behind the watermark"
        if by_time
        else "one row per key, for ever",
        "emits": _when(node),
        "late": _LATE if by_time else "none: every row counts, however old",
        "order": "by time, source position, offset: the largest counts, however changes arrive"
        if by_time
        else order,
    }


def _when(node: TableStep) -> str:
    each = "each change" if isinstance(node, Upheld) and node.spec.each else "what a batch changes"
    return f"{', '.join(node.columns or ())}: {each}, the old row taken back and the new one given"
