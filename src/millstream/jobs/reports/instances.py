"""Operators by instance, as a job's diary tells of them: totals, and how busy each is now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from millstream.jobs.reports.run_log import BatchEntry

_BETWEEN = "\x1f"
COUNTS = ("in", "out", "late", "dead", "seconds")
KINDS = ("steps", "sources")
SHOWN = 64  # instances of one operator that are told of

Totals = Mapping[str, Mapping[str, float]]
Counts = dict[str, float]


def counted(facts: Mapping[str, Any]) -> Iterator[tuple[str, str, float]]:
    """What a batch adds to the totals of each instance: metric, part, value."""
    for kind in KINDS:
        for operator, told in facts.get(kind, {}).items():
            for one in told.get("instances", ()):
                for count in COUNTS:
                    if one[count]:
                        yield f"{kind}_{count}", part_of(operator, one["instance"]), one[count]


def part_of(operator: str, instance: str) -> str:
    """How the totals call an instance of an operator."""
    return f"{operator}{_BETWEEN}{instance}"


def totals_by_instance(totals: Totals, kind: str) -> dict[tuple[str, str], Counts]:
    """The totals of every instance there has been, by operator and instance."""
    found: dict[tuple[str, str], Counts] = {}
    for count in COUNTS:
        for part, value in totals.get(f"{kind}_{count}", {}).items():
            operator, _, name = part.partition(_BETWEEN)
            found.setdefault((operator, name), dict.fromkeys(COUNTS, 0.0))[count] = value
    return found


def instances_of(
    operator: str, kind: str, totals: Totals, batches: Sequence[BatchEntry],
    *, since: float, window: float,
) -> list[dict[str, Any]]:  # fmt: skip
    """The instances of an operator: what each has done in all, and in the last seconds.

    Rates and busy shares are over the `window` seconds after `since`. Those that the shown
    batches do not tell of are gone: a job that runs with other tasks has other instances.
    """
    summed = totals_by_instance(totals, kind)
    newest: dict[str, dict[str, Any]] = {}
    recent: dict[str, Counts] = {}
    for entry in batches:
        for one in _told(entry, kind, operator):
            newest[one["instance"]] = one
            if entry.at > since:
                sums = recent.setdefault(one["instance"], dict.fromkeys(("in", "seconds"), 0.0))
                for count in sums:
                    sums[count] += one[count]
    marks = _watermark(operator, kind, batches)
    return [
        _shown(one, summed.get((operator, name), one), recent.get(name), window, marks)
        for name, one in sorted(newest.items(), key=lambda item: _place(item[0]))[:SHOWN]
    ]


def _told(entry: BatchEntry, kind: str, operator: str) -> Iterable[dict[str, Any]]:
    told: Iterable[dict[str, Any]] = entry.facts.get(kind, {}).get(operator, {}).get(
        "instances", ()
    )  # fmt: skip
    return told


def _watermark(operator: str, kind: str, batches: Sequence[BatchEntry]) -> str | None:
    """The watermark of a step, which all its instances share."""
    for entry in reversed(batches):
        step = entry.facts.get(kind, {}).get(operator)
        if step is not None:
            found: str | None = step.get("watermark")
            return found
    return None


def _shown(
    one: Mapping[str, Any], total: Mapping[str, float], now: Counts | None, window: float,
    watermark: str | None,
) -> dict[str, Any]:  # fmt: skip
    now = now or {"in": 0.0, "seconds": 0.0}
    told = {
        "instance": one["instance"],
        "where": one["where"],
        "in": int(total["in"]),
        "out": int(total["out"]),
        "rows_per_second": round(now["in"] / window, 1),
        "busy": round(min(1.0, now["seconds"] / window), 3),
        "watermark": one.get("watermark", watermark),
        "state_rows": one.get("state_rows"),
        "state_bytes": one.get("state_bytes"),
        "late": int(total["late"]),
        "dead": int(total["dead"]),
    }
    return {**told, "idle": one["idle"]} if "idle" in one else told


def _place(name: str) -> tuple[str, int]:
    """Names in the order people count: 2 before 10."""
    words, _, number = name.rpartition(" ")
    first = number.partition("-")[0]
    return words, int(first) if first.isdecimal() else -1
