"""What a stateful step remembers, emits and promises, in words for `millstream plan`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.duration import text as duration
from millstream.operators.joins.stream_table.spec import SMALL, AsOf
from millstream.operators.windows.by_rows.spec import Delta, Punctuated, Rows
from millstream.operators.windows.sessions.spec import Session
from millstream.operators.windows.sliding.spec import Sliding
from millstream.operators.windows.spec import Everything, Hopping, Tumbling
from millstream.plan.graph import Aggregated, Deduplicated, Processed, Ranked, Stateful
from millstream.plan.join_graph import Enriched, Join, Joined, JoinedTables
from millstream.plan.table_graph import CurrentRows, FoldedRows, TableAggregated, TableChanges

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.plan.graph import Window


Facts = dict[str, Any]


def describe_step(node: Stateful, rest: str, places: Sequence[str]) -> Facts:
    """A step's keys, state, results, late rows and order; `places` are where its rows rest."""
    if isinstance(node, Aggregated):
        return _aggregated(node, rest, places)
    if isinstance(node, Deduplicated):
        return _deduplicated(node, rest, places)
    if isinstance(node, Processed):
        return {
            "keys": list(node.keys),
            "function": str(node.spec),
            "state": f"per key {node.spec.state.ddl()}, as the function leaves it; its timers",
            "emits": f"{', '.join(node.columns or ())}: the rows the function returns, at once",
            "late": "none: the function is given every row, however old",
            "order": _by_origin(", ".join(node.keys), places),
        }
    if isinstance(node, Join):
        return _join(node, rest)
    if isinstance(node, CurrentRows | TableAggregated | FoldedRows | TableChanges):
        return _table_step(node, _by_origin(", ".join(node.keys), places))
    if isinstance(node, Ranked):
        return {
            "keeps": str(node.spec),
            "state": f"the {node.spec.n} largest rows of each window that has not left",
            "emits": "them, the largest first, when the watermark has passed the window",
            "late": f"rows behind the watermark → {rest}",
            "order": "does not matter, but for rows of equal size: the first by origin",
        }
    return {
        "state": "rows whose time the watermark has not passed",
        "emits": "each row when the watermark has passed its time, in order of time, then origin",
        "late": f"rows behind the watermark → {rest}",
        "order": "event time: the same under any batch cuts",
    }


def _aggregated(node: Aggregated, rest: str, places: Sequence[str]) -> Facts:
    facts: Facts = {
        "keys": list(node.keys),
        "window": str(node.window),
        "gives": [f"{name} = {aggregate}" for name, aggregate in node.aggregates],
        "state": _state(node),
        "emits": f"{', '.join(node.columns or ())}: {_when(node.window)}",
    }
    if node.policy is not None:
        facts |= _shown(node)
    facts["late"] = _late(node, rest)
    facts["order"] = _window_order(node, places)
    kept = [
        name
        for name, aggregate in node.aggregates
        if aggregate.keeps_rows or (node.input.corrects and not aggregate.supports_retraction)
    ]
    if kept:
        facts["keeps rows"] = (
            f"{', '.join(kept)} cannot be added up: the values of every open window are kept"
        )
    return facts


def _state(node: Aggregated) -> str:
    window = node.window
    if isinstance(window, Sliding):
        return f"the rows of the last {duration(window.size)} and those ahead of the watermark"
    if isinstance(window, Everything):
        return "one row of partial aggregates per key, for ever"
    if isinstance(window, Hopping):
        return ("one row of partial aggregates per key and slice; "
                "gone when the last window over the slice has left")  # fmt: skip
    if isinstance(window, Rows | Delta | Punctuated):
        return "the open window of each key, for ever"
    keep = node.policy.keep if node.policy else 0
    gone = f"and {duration(keep)} have passed" if keep else "has left"
    gone = f"when the window has left {gone}" if keep else "when the window has left"
    return f"one row of partial aggregates per key and open window; gone {gone}"


def _when(window: Window) -> str:
    if isinstance(window, Sliding):
        return "once per row, when the watermark has passed its time"
    if isinstance(window, Session):
        return "once per key and session, when the watermark has passed window_end"
    if isinstance(window, Everything):
        return "when its trigger fires, and at the finish"
    if isinstance(window, Rows | Delta | Punctuated):
        return "once per key and window, when a row closes it; what is open, at the finish"
    if window.clock == "processing":
        return "once per key and window, when the batch clock reaches window_end"
    return "once per key and window, when the watermark reaches window_end"


def _shown(node: Aggregated) -> Facts:
    assert node.policy is not None
    trigger, facts = node.policy.trigger, {}
    if trigger is not None:
        facts["trigger"] = str(trigger)
    if node.policy.keep:
        facts["kept"] = f"{duration(node.policy.keep)}: a late row corrects what has left"
    if node.policy.alert_above is not None:
        facts["alert"] = f"more than {node.policy.alert_above:.2%} of a minute's rows late"
    return facts


def _late(node: Aggregated, rest: str) -> str:
    window = node.window
    if isinstance(window, Everything | Rows | Delta | Punctuated):
        return "none: every row is taken, however old"
    if isinstance(window, Tumbling | Hopping) and window.clock == "processing":
        return "none: a row's time is its batch's clock"
    if isinstance(window, Sliding):
        return f"rows behind the watermark → {rest}"
    gone = "is gone" if node.policy and node.policy.keep else "has left"
    return f"rows whose window {gone} → {rest}"


def _window_order(node: Aggregated, places: Sequence[str]) -> str:
    window = node.window
    if isinstance(window, Tumbling | Hopping) and window.clock == "processing":
        return "exempt: what a window holds depends on when batches ran"
    in_order = [name for name, aggregate in node.aggregates if aggregate.in_order]
    if isinstance(window, Rows | Delta | Punctuated) or in_order:
        return _by_origin(", ".join(node.keys), places)
    return ("does not matter: the same windows under any batch cuts, "
            "as long as no row is later than the watermark allows")  # fmt: skip


def _deduplicated(node: Deduplicated, rest: str, places: Sequence[str]) -> Facts:
    keys, within = node.spec.by, node.spec.within
    facts: Facts = {"keys": list(keys)}
    if within is None:
        facts["state"] = "every key ever seen: it only grows"
    else:
        facts["within"] = duration(within)
        facts["state"] = f"each key that passed, until {duration(2 * within)} behind the watermark"
    facts["emits"] = "the first row of each key at once, with its columns as they came"
    if within is None:
        facts["late"] = "none: every row is judged, however old"
    else:
        facts["late"] = f"rows more than {duration(within)} behind the watermark → {rest}"
    facts["order"] = _by_origin(", ".join(keys), places)
    return facts


def _by_origin(keys: str, places: Sequence[str]) -> str:
    """What the rows' order means to a step that takes them one after the other."""
    if len(places) > 1:
        return (
            f"rows come from {' and '.join(places)}: which row of a key is the first "
            "depends on how batches are cut, where a key is in more than one of them"
        )
    return (
        f"rows are taken as they stand in {places[0]}: the same under any batch cuts if each "
        f"{keys} lives in one partition"
    )


_PLANS = {
    "replicated": "the table is replicated, as plan= says; events stay evenly spread",
    "repartitioned": "both sides are repartitioned by their keys, as plan= says",
    None: f"the table is replicated as long as it takes at most {SMALL >> 20} MB, then both sides "
    "are repartitioned by their keys",
}
_SAME = "does not matter: the same results under any batch cuts"


def _join(node: Join, rest: str) -> Facts:
    """A join's keys, state, results, late rows and order."""
    facts: Facts = {"keys": list(node.keys)}
    if isinstance(node, Joined):
        return facts | {"join": str(node.spec)} | _joined(node, rest)
    if isinstance(node, JoinedTables):
        return facts | {
            "join": str(node.spec),
            "plan": "both sides are repartitioned by what they are joined on",
            "state": "the rows of both tables",
            "emits": f"{_columns(node)}: what a batch changes, the old row retracted and the "
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


TableStep = CurrentRows | TableAggregated | FoldedRows | TableChanges

_LATE_CHANGE = "a change behind the watermark is applied all the same, and counted as late"


def _table_step(node: TableStep, order: str) -> Facts:
    """A step's keys, state, results and order; `order` is what the rows' order means to it."""
    facts: Facts = {"keys": list(node.keys)}
    if isinstance(node, CurrentRows):
        return facts | _current_rows(node, order)
    if isinstance(node, TableChanges):
        return facts | {
            "state": "none",
            "emits": f"{', '.join(node.columns or ())}: each change once, at once",
            "late": _LATE_CHANGE,
            "order": "that of the table's own changes",
        }
    if isinstance(node, FoldedRows):
        return facts | {
            "function": str(node.spec),
            "state": f"per key {node.spec.gives.ddl()}, for ever",
            "emits": _table_emits(node),
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
        "emits": _table_emits(node),
        "late": "none: every row counts, however old",
        "order": order if in_order else "does not matter: the same answers under any batch cuts",
    }


def _current_rows(node: CurrentRows, order: str) -> Facts:
    by_time = node.spec.order == "time"
    return {
        "state": "one row per key; of a deleted one its key, until a day behind the watermark"
        if by_time
        else "one row per key, for ever",
        "emits": _table_emits(node),
        "late": _LATE_CHANGE if by_time else "none: every row counts, however old",
        "order": "by time, source position, offset: the largest counts, however changes arrive"
        if by_time
        else order,
    }


def _table_emits(node: TableStep) -> str:
    each = (
        "each change"
        if isinstance(node, CurrentRows) and node.spec.each
        else "what a batch changes"
    )
    return f"{', '.join(node.columns or ())}: {each}, the old row retracted and the new one added"
