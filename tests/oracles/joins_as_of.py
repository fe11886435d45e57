"""Joins with a table said again in plain Python, event by event, from DESIGN §3 alone.

`as_of`: an event waits until the table's watermark is beyond its time, then takes the version
with the largest (time, position, offset) that is not after it; a deleted key matches nothing. It
is late when both watermarks were beyond its time before it came. `lookup`: the newest version of
all that have come, at once. The oracle forgets nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.oracles.joins import beyond, sane

Row = dict[str, Any]


@dataclass
class Batch:
    """Events, changes (`_sign` −1 deletes), and each side's watermark before and after."""

    events: list[Row]
    changes: list[Row]
    marks: tuple[tuple[int, int], tuple[int, int]]


@dataclass
class Left:
    """What must leave in one batch: events with their version (None: no match), late events."""

    pairs: list[tuple[Row, Row | None]] = field(default_factory=list)
    late: list[Row] = field(default_factory=list)


def as_of(batches: list[Batch], *, on: list[tuple[str, str]], how: str) -> list[Left]:
    """Everything that leaves, batch by batch."""
    waiting: list[Row] = []
    changes: list[Row] = []
    lefts = []
    for batch in batches:
        left = Left()
        changes += batch.changes
        for event in batch.events:
            if all(beyond(before, event["_time"]) for before, _ in batch.marks):
                left.late.append(event)
            else:
                waiting.append(event)
        ready = [event for event in waiting if goes(event, on, batch.marks[1][1])]
        waiting = [event for event in waiting if not any(event is gone for gone in ready)]
        for event in ready:
            version = newest([c for c in changes if c["_time"] <= event["_time"]], event, on)
            if version is not None or how == "left":
                left.pairs.append((event, version))
        lefts.append(left)
    return lefts


def lookup(batches: list[Batch], *, on: list[tuple[str, str]], how: str) -> list[Left]:
    """Each event at once, with the newest row of its key."""
    changes: list[Row] = []
    lefts = []
    for batch in batches:
        left = Left()
        changes += batch.changes
        for event in batch.events:
            version = newest(changes, event, on)
            if version is not None or how == "left":
                left.pairs.append((event, version))
        lefts.append(left)
    return lefts


def goes(event: Row, on: list[tuple[str, str]], watermark: int) -> bool:
    """Whether an event waits no longer; one without a key never does."""
    return any(event[name] is None for name, _ in on) or beyond(watermark, event["_time"])


def newest(changes: list[Row], event: Row, on: list[tuple[str, str]]) -> Row | None:
    """The last of these changes for the event's key, unless it deletes it."""
    if any(event[name] is None for name, _ in on):
        return None
    mine = [c for c in changes if all(sane(event[a]) == sane(c[b]) for a, b in on)]
    if not mine:
        return None
    last = max(mine, key=place)
    return last if last.get("_sign", 1) > 0 else None


def place(change: Row) -> tuple[Any, ...]:
    """What tells which of two changes counts."""
    position = change.get("_position")
    at = (position is not None, position or 0)
    return (change["_time"], at, change["_offset"], change["_partition"], change.get("_sign", 1))
