"""What joins remember, emit and promise, in words for `millstream plan`."""

from __future__ import annotations

from typing import Any

from millstream.duration import text as duration
from millstream.operators.joins.stream_table.spec import SMALL, AsOf
from millstream.plan.join_graph import Enriched, Join, Joined, JoinedTables

Facts = dict[str, Any]

_PLANS = {
    "replicated": "the table is replicated, as plan= says; events stay evenly spread",
    "repartitioned": "both sides are repartitioned by their keys, as plan= says",
    None: f"the table is replicated as long as it takes at most {SMALL >> 20} MB, then both sides "
    "are repartitioned by their keys",
}
_SAME = "does not matter: the same results under any batch cuts"


def joining(node: Join, rest: str) -> Facts:
    """A join's keys, state, results, late rows and order."""
    facts: Facts = {"keys": list(node.keys)}
    if isinstance(node, Joined):
        return facts | {"join": str(node.spec)} | _joined(node, rest)
    if isinstance(node, JoinedTables):
        return facts | {
            "join": str(node.spec),
            "plan": "both sides are repartitioned by what they are joined on",
            "state": "the rows of both tables",
            "emits": f"{_columns(node)}: what a batch changes, the old row taken back and the "
            "new one given",
            "late": "none: a change behind the watermark is applied, and counted",
            "order": _SAME,
        }
    assert isinstance(node, Enriched)
    return facts | {"join": str(node.spec)} | _enriched(node, rest)


def _joined(node: Joined, rest: str) -> Facts:
    within = node.spec.within
    facts: Facts = {"plan": "both sides are repartitioned by their keys"}
    if within is None:
        return facts | {
            "state": "every row of both sides, for ever",
            "warning": "without `within` the state only grows: give the join a within= if pairs "
            "are near each other in time",
            "emits": f"{_columns(node)}: each pair, when its second row comes",
            "late": "none: every row is joined, however old",
            "order": _SAME,
        }
    alone = {"inner": "", "left": "left", "right": "right", "full": "either"}[node.spec.how]
    emits = f"{_columns(node)}: each pair, when its second row comes"
    if alone:
        emits += f"; a row of the {alone} side alone, when nothing can match it any more"
    return facts | {
        "state": "rows of each side, until the other's watermark is beyond what they could match",
        "emits": emits,
        "late": f"rows that can match nothing that is kept or still to come → {rest}",
        "order": f"{_SAME}, as long as no row is later than the watermark allows",
        "within": _within(*within),
    }


def _within(lower: int, upper: int) -> str:
    if lower == -upper:
        return f"{duration(upper)} before or after"
    return f"from {duration(lower)} to {duration(upper)} after the left row"


def _enriched(node: Enriched, rest: str) -> Facts:
    left = node.spec.how == "left"
    missing = "nulls if there is none" if left else "events without one do not leave"
    plan = {"plan": _PLANS[node.spec.plan]}
    if isinstance(node.spec, AsOf):
        return plan | {
            "state": "events the table's watermark has not passed; the rows a key has had, as "
            "long as an event may need them",
            "emits": f"{_columns(node)}: each event when the table's watermark has passed its "
            f"time, with the row of that time; {missing}",
            "late": f"events behind both watermarks → {rest}",
            "order": f"{_SAME}, as long as no row is later than the watermark allows",
        }
    return plan | {
        "state": "one row per key of the table",
        "emits": f"{_columns(node)}: each event at once, with the row its key has now; {missing}",
        "late": "none: every event is looked up, however old",
        "order": "exempt: which row an event meets depends on when its batch ran",
    }


def _columns(node: Join) -> str:
    return ", ".join(node.columns or ()) or "the columns of both sides"
