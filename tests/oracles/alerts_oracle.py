"""What an alert should tell, from all its rows at once, in plain Python.

Each key is looked at by itself: its rows are cut into stretches in which it was raised, and each
stretch either was long enough to be told or was not. Rows of one time are taken in the order in
which they are given. Two stretches never begin at one time: the later is put one unit after.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """A row of a key: whether it raises the alert, whether it ends it, how long it speaks."""

    key: str
    time: int
    raises: bool
    clears: bool
    speaks: int | None


@dataclass(frozen=True)
class News:
    """A notification: of which key, what, when, and when its episode began."""

    key: str
    kind: str
    at: int
    begun: int


def told(rows: list[Row], *, for_: int, hold: int, level: bool) -> list[News]:
    """Everything that is told once all rows are in and time has come to the last of them."""
    end = max((row.time for row in rows), default=0)
    news: list[News] = []
    for key in {row.key for row in rows}:
        own = sorted((row for row in rows if row.key == key), key=lambda row: row.time)
        news += _of_key(own, end, for_, hold, level)
    return news


def _of_key(rows: list[Row], end: int, for_: int, hold: int, level: bool) -> list[News]:
    news: list[News] = []
    place, free, last = 0, None, None
    while place < len(rows):
        if not rows[place].raises:
            place += 1
            continue
        begun = rows[place].time if last is None else max(rows[place].time, last + 1)
        needed = begun + for_ if free is None else max(begun + for_, free)
        fired, over, place = _stretch(rows, place, begun, needed, end, level)
        if fired is not None:
            news.append(News(rows[0].key, "firing", fired, begun))
            if over is not None:
                news.append(News(rows[0].key, "resolved", max(over, begun), begun))
                free = max(over, begun) + hold
        if free is not None:
            last = begun
    return news


def _stretch(
    rows: list[Row], place: int, begun: int, needed: int, end: int, level: bool
) -> tuple[int | None, int | None, int]:
    """When a stretch fires, when it is over, and the place of the first row after it."""
    fired: int | None = None
    while True:
        row = rows[place]
        if row.raises and fired is None and max(row.time, begun) >= needed:
            fired = max(row.time, begun)
        following = rows[place + 1].time if place + 1 < len(rows) else end
        silent = None if row.speaks is None else row.time + row.speaks
        if fired is None and level and needed < following and (silent is None or needed < silent):
            fired = needed
        if silent is not None and silent < following:
            return fired, silent, place + 1
        place += 1
        if place == len(rows):
            return fired, None, place
        row = rows[place]
        ends = not row.raises if fired is None else row.clears and not row.raises
        if ends:
            return fired, row.time, place + 1
