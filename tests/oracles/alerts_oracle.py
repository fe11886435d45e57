"""The notifications an alert should send, computed from all its rows at once in plain Python.

The rows of each key are cut into stretches in which it was raised; a stretch that is long enough
is an episode. Rows of the same time keep the given order. If two stretches would begin at the same
time, the later one begins one unit later.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """A row of a key: whether it raises or ends the alert, and how long it is valid."""

    key: str
    time: int
    raises: bool
    clears: bool
    valid_for: int | None


@dataclass(frozen=True)
class Notification:
    """A notification: of which key, what, when, and when its episode began."""

    key: str
    kind: str
    at: int
    begun: int


def expected_notifications(
    rows: list[Row], *, for_: int, hold: int, level: bool
) -> list[Notification]:
    """The notifications after all rows, at the time of the last one."""
    end = max((row.time for row in rows), default=0)
    found: list[Notification] = []
    for key in {row.key for row in rows}:
        own = sorted((row for row in rows if row.key == key), key=lambda row: row.time)
        found += _of_key(own, end, for_, hold, level)
    return found


def _of_key(rows: list[Row], end: int, for_: int, hold: int, level: bool) -> list[Notification]:
    found: list[Notification] = []
    index, free, last = 0, None, None
    while index < len(rows):
        if not rows[index].raises:
            index += 1
            continue
        begun = rows[index].time if last is None else max(rows[index].time, last + 1)
        needed = begun + for_ if free is None else max(begun + for_, free)
        fired, over, index = _stretch(rows, index, begun, needed, end, level)
        if fired is not None:
            found.append(Notification(rows[0].key, "firing", fired, begun))
            if over is not None:
                found.append(Notification(rows[0].key, "resolved", max(over, begun), begun))
                free = max(over, begun) + hold
        if free is not None:
            last = begun
    return found


def _stretch(
    rows: list[Row], index: int, begun: int, needed: int, end: int, level: bool
) -> tuple[int | None, int | None, int]:
    """When a stretch fires, when it ends, and the index of the first row after it."""
    fired: int | None = None
    while True:
        row = rows[index]
        if row.raises and fired is None and max(row.time, begun) >= needed:
            fired = max(row.time, begun)
        following = rows[index + 1].time if index + 1 < len(rows) else end
        silent = None if row.valid_for is None else row.time + row.valid_for
        if fired is None and level and needed < following and (silent is None or needed < silent):
            fired = needed
        if silent is not None and silent < following:
            return fired, silent, index + 1
        index += 1
        if index == len(rows):
            return fired, None, index
        row = rows[index]
        ends = not row.raises if fired is None else row.clears and not row.raises
        if ends:
            return fired, row.time, index + 1
