"""Metrics per instance of an operator, from a job's run log: totals, and current rates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from millstream.jobs.reports.run_log import BatchEntry

_BETWEEN = "\x1f"
COUNTS = ("in", "out", "late", "dead", "seconds")
KINDS = ("steps", "sources")
SHOWN = 64  # instances of one operator that are reported

Totals = Mapping[str, Mapping[str, float]]
Counts = dict[str, float]


def instance_counts(facts: Mapping[str, Any]) -> Iterator[tuple[str, str, float]]:
    """Yield what a batch adds to the totals of each instance: metric, part, value."""
    for kind in KINDS:
        for operator, instances in facts.get(kind, {}).items():
            for one in instances.get("instances", ()):
                for count in COUNTS:
                    if one[count]:
                        yield f"{kind}_{count}", part_of(operator, one["instance"]), one[count]


def part_of(operator: str, instance: str) -> str:
    """Return the name of an operator's instance in the totals."""
    return f"{operator}{_BETWEEN}{instance}"


def totals_by_instance(totals: Totals, kind: str) -> dict[tuple[str, str], Counts]:
    """Return the totals of every instance so far, by operator and instance."""
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
    """Return the instances of an operator with their totals and current rates.

    Rates and busy shares cover the `window` seconds after `since`. An instance that is in none
    of these batches no longer exists: a job that runs with other tasks has other instances.
    """
    summed = totals_by_instance(totals, kind)
    newest: dict[str, dict[str, Any]] = {}
    recent: dict[str, Counts] = {}
    for entry in batches:
        for one in _instances_in(entry, kind, operator):
            newest[one["instance"]] = one
            if entry.at > since:
                sums = recent.setdefault(one["instance"], dict.fromkeys(("in", "seconds"), 0.0))
                for count in sums:
                    sums[count] += one[count]
    watermark = _watermark_of(operator, kind, batches)
    return [
        _to_json(one, summed.get((operator, name), one), recent.get(name), window, watermark)
        for name, one in sorted(newest.items(), key=lambda item: _sort_key(item[0]))[:SHOWN]
    ]


def _instances_in(entry: BatchEntry, kind: str, operator: str) -> Iterable[dict[str, Any]]:
    instances: Iterable[dict[str, Any]] = entry.facts.get(kind, {}).get(operator, {}).get(
        "instances", ()
    )  # fmt: skip
    return instances


def _watermark_of(operator: str, kind: str, batches: Sequence[BatchEntry]) -> str | None:
    """Return the watermark of a step, which all its instances share."""
    for entry in reversed(batches):
        step = entry.facts.get(kind, {}).get(operator)
        if step is not None:
            found: str | None = step.get("watermark")
            return found
    return None


def _to_json(
    one: Mapping[str, Any], total: Mapping[str, float], recent: Counts | None, window: float,
    watermark: str | None,
) -> dict[str, Any]:  # fmt: skip
    recent = recent or {"in": 0.0, "seconds": 0.0}
    instances = {
        "instance": one["instance"],
        "where": one["where"],
        "in": int(total["in"]),
        "out": int(total["out"]),
        "rows_per_second": round(recent["in"] / window, 1),
        "busy": round(min(1.0, recent["seconds"] / window), 3),
        "watermark": one.get("watermark", watermark),
        "state_rows": one.get("state_rows"),
        "state_bytes": one.get("state_bytes"),
        "late": int(total["late"]),
        "dead": int(total["dead"]),
    }
    return {**instances, "idle": one["idle"]} if "idle" in one else instances


def _sort_key(name: str) -> tuple[str, int]:
    """Sort numbers in names as numbers: 2 before 10."""
    words, _, number = name.rpartition(" ")
    first = number.partition("-")[0]
    return words, int(first) if first.isdecimal() else -1
