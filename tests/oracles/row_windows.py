"""Rows, delta and punctuated windows said again in plain Python, row by row, from DESIGN §3.

Rows are taken in order of origin within a batch. Each rule keeps, per key, the lists of rows
of its open windows, and says which of them a row closes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]
Window = tuple[Hashable, tuple[Row, ...]]
GREATEST = 2**63 - 1
ORIGIN = ("_source", "_partition", "_offset", "_sub")


@dataclass
class Expected:
    """Windows that left, batch by batch, and the smallest time an open one may still have."""

    left: list[list[Window]] = field(default_factory=list)
    held: list[int] = field(default_factory=list)
    unplaced: int = 0


@dataclass
class Counted:
    """Window j has rows j × every up to j × every + n of its key."""

    n: int
    every: int
    seen: dict[Hashable, int] = field(default_factory=dict)
    open: dict[Hashable, list[list[Row]]] = field(default_factory=dict)

    def take(self, key: Hashable, row: Row) -> list[Window]:
        """Add the row to its windows; give those that are full."""
        windows = self.open.setdefault(key, [])
        if self.seen.get(key, 0) % self.every == 0:
            windows.append([])
        self.seen[key] = self.seen.get(key, 0) + 1
        for window in windows:
            window.append(row)
        full = [(key, tuple(window)) for window in windows if len(window) == self.n]
        self.open[key] = [window for window in windows if len(window) < self.n]
        return full


@dataclass
class Moved:
    """A row `by` or more from the window's first value opens the next window."""

    column: str
    by: Any
    origin: dict[Hashable, Any] = field(default_factory=dict)
    open: dict[Hashable, list[list[Row]]] = field(default_factory=dict)

    def take(self, key: Hashable, row: Row) -> list[Window]:
        """Add the row to the open window, or close that and open the next with it."""
        value, closed = row[self.column], []
        if value is not None and not (isinstance(value, float) and math.isnan(value)):
            opened = self.origin.get(key)
            if opened is None:
                self.origin[key] = value
            elif abs(value - opened) >= self.by:
                closed = [(key, tuple(window)) for window in self.open.pop(key)]
                self.origin[key] = value
        self.open.setdefault(key, [[]])[0].append(row)
        return closed


@dataclass
class Punctuated:
    """A marked row closes its key's window, or those of all keys, as a member or not."""

    member: bool
    all_keys: bool
    open: dict[Hashable, list[list[Row]]] = field(default_factory=dict)
    unplaced: int = 0

    def take(self, key: Hashable, row: Row) -> list[Window]:
        """Add the row unless it is a mere marker; close what it marks."""
        marked = row["mark"] is True
        if self.member or not marked:
            self.open.setdefault(key, [[]])[0].append(row)
        else:
            self.unplaced += 1
        if not marked:
            return []
        ended = list(self.open) if self.all_keys else [key] * (key in self.open)
        return [(one, tuple(window)) for one in ended for window in self.open.pop(one)]


Rule = Counted | Moved | Punctuated


def windows(
    batches: list[list[Row]], rule: Rule, key: Callable[[Row], Hashable], *, finish: bool
) -> Expected:
    """What leaves in each batch, and, with `finish`, with the last one all that is open."""
    expected = Expected()
    for number, batch in enumerate(batches):
        left: list[Window] = []
        for row in sorted(batch, key=lambda row: tuple(row[name] for name in ORIGIN)):
            left += rule.take(key(row), row)
        if finish and number == len(batches) - 1:
            left += [(one, tuple(w)) for one, open_ in rule.open.items() for w in open_]
            rule.open.clear()
        times = [latest(w) for open_ in rule.open.values() for w in open_ if w]
        expected.left.append(left)
        expected.held.append(min((t for t in times if t is not None), default=GREATEST))
    if isinstance(rule, Punctuated):
        expected.unplaced = rule.unplaced
    return expected


def latest(window: list[Row] | tuple[Row, ...]) -> int | None:
    """The largest time inside, None without event time."""
    times = [row["_time"] for row in window if row.get("_time") is not None]
    return max(times, default=None)


def earliest(window: list[Row] | tuple[Row, ...]) -> int | None:
    """The smallest time inside, None without event time."""
    times = [row["_time"] for row in window if row.get("_time") is not None]
    return min(times, default=None)
