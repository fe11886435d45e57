"""Panes of windows that rows make, said again in plain Python from DESIGN §3.

Which rows make which windows is `row_windows`. Here stands when such a window is shown:

- Closing is the on-time pane, once per window; what is open at the finish leaves then.
- `every(d)`: at the end of the first batch whose clock is at or beyond the last firing (first:
  the window's first row) + d, if something is new. `each(n)`: when at least n rows have come
  since the last pane. `when`: over the aggregates of all rows so far, if something is new.
- Accumulating shows all so far, discarding what is new, retracting first the earlier row exactly
  as it left. Bounds are the smallest and the largest time inside the window so far.
- Into later operators flows the on-time pane, with all rows of the window.

A window is known by its first row: no two windows of a rule begin with the same one. Accumulating
panes replace the previous pane, which tables find by the window's start: a window whose start
has moved retracts its earlier row.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.oracles.row_windows import GREATEST, ORIGIN, Row, Rule, earliest, latest

Answers = tuple[Any, ...]
Answering = Callable[[Sequence[Row]], Answers]
Trigger = tuple[str, Any]


@dataclass(frozen=True)
class Batch:
    """Rows as they came, and the batch clock."""

    rows: Sequence[Row]
    clock: int


@dataclass(frozen=True)
class Pane:
    """One look at a window; `sign` is -1 where it takes an earlier one back."""

    key: Hashable
    start: int | None
    end: int | None
    values: Answers
    name: str
    index: int
    sign: int = 1


@dataclass
class Emitted:
    """What must leave in one batch.

    `wake` is the clock by which the next batch must come, `held` the smallest time an open
    window may still leave on time with.
    """

    panes: list[Pane] = field(default_factory=list)
    flow: list[Pane] = field(default_factory=list)
    wake: int = GREATEST
    held: int = GREATEST


@dataclass
class Story:
    """What a window has shown, and what it has not."""

    since: int
    panes: int = 0
    out: int = 0
    last: Pane | None = None


@dataclass
class Showing:
    """A trigger, a kind of panes and what the aggregates say of rows."""

    early: Trigger | None
    kind: str
    answers: Answering
    stories: dict[Any, Story] = field(default_factory=dict)

    def step(
        self, rule: Rule, batch: Batch, key: Callable[[Row], Hashable], *, finish: bool
    ) -> Emitted:
        """Take the rows of a batch; show what closes and what fires."""
        out = Emitted()
        closed: list[tuple[Hashable, Sequence[Row]]] = []
        for row in sorted(batch.rows, key=_origin):
            closed += rule.take(key(row), row)
        if finish:
            closed += [(one, window) for one, open_ in rule.open.items() for window in open_]
            rule.open.clear()
        for one, window in closed:
            self._show(out, one, window, "on_time", batch.clock)
        for one, open_ in rule.open.items():
            for window in open_:
                self._look(out, one, window, batch.clock)
                end = latest(window)
                out.held = out.held if end is None else min(out.held, end)
        return out

    def _look(self, out: Emitted, key: Hashable, window: Sequence[Row], clock: int) -> None:
        story = self._story(key, window, clock)
        new = len(window) - story.out
        if self.early is None or new == 0:
            return
        at = _fires_at(self.early, story, new, self.answers(window))
        if at <= clock:
            self._show(out, key, window, "early", clock)
        else:
            out.wake = min(out.wake, at)

    def _show(
        self, out: Emitted, key: Hashable, window: Sequence[Row], name: str, clock: int
    ) -> None:
        story = self._story(key, window, clock)
        rows = window[story.out :] if self.kind == "discarding" else window
        start, end = earliest(tuple(window)), latest(tuple(window))
        pane = Pane(key, start, end, self.answers(rows), name, story.panes)
        if story.last is not None and self._replaces(story.last, pane):
            out.panes.append(_taken_back(story.last))
        out.panes.append(pane)
        if name == "on_time":
            whole = Pane(key, start, end, self.answers(window), name, story.panes)
            out.flow.append(whole)
        story.panes, story.out, story.since, story.last = (
            story.panes + 1, len(window), clock, pane,
        )  # fmt: skip

    def _replaces(self, last: Pane, now: Pane) -> bool:
        moved = self.kind == "accumulating" and last.start != now.start
        return self.kind == "retracting" or moved

    def _story(self, key: Hashable, window: Sequence[Row], clock: int) -> Story:
        return self.stories.setdefault((key, _origin(window[0])), Story(since=clock))


def panes(
    batches: Sequence[Batch],
    rule: Rule,
    key: Callable[[Row], Hashable],
    showing: Showing,
    *,
    finish: bool,
) -> list[Emitted]:
    """What must leave in each batch; with `finish` the last one ends everything."""
    last = len(batches) - 1
    return [
        showing.step(rule, batch, key, finish=finish and place == last)
        for place, batch in enumerate(batches)
    ]


def _fires_at(trigger: Trigger, story: Story, new: int, values: Answers) -> int:
    """The clock from which it fires if no more rows come."""
    word, what = trigger
    if word == "every":
        return int(story.since + what)
    if word == "each":
        return -GREATEST if new >= what else GREATEST
    if word == "when":
        return -GREATEST if what(values) else GREATEST
    at = [_fires_at(one, story, new, values) for one in what]
    return min(at) if word == "any_of" else max(at)


def _taken_back(pane: Pane) -> Pane:
    return Pane(pane.key, pane.start, pane.end, pane.values, pane.name, pane.index, -1)


def _origin(row: Row) -> tuple[int, ...]:
    return tuple(row[name] for name in ORIGIN)
