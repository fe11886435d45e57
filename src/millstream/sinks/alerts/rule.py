"""The state machine of an alert's key: a pure function from observations to transitions.

    (no state) ── raised ──▶ pending ── held for `for_` ──▶ firing ── cleared ──▶ resolved
                                └── not held ──▶ (no state)

Times are those of the rows, in microseconds: the same rows give the same episodes, however they
are cut into batches. An episode is identified by the time of the row that raised it; an episode
that would begin at the same time as the previous one begins a microsecond later.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

State = Literal["pending", "firing", "resolved"]
Kind = Literal["firing", "resolved"]


@dataclass(frozen=True, slots=True)
class Rule:
    """When an alert fires; durations in microseconds.

    After an episode, the key's next one fires after `hold` at the earliest. With `level` (rows of
    a table) a row is true until the next one; otherwise each row is a sample, and a single sample
    lasts no time.
    """

    for_: int = 0
    hold: int = 0
    level: bool = False


@dataclass(frozen=True, slots=True)
class Observation:
    """One row of a key, or its deletion.

    A row with `clears` ends an episode; one that neither raises nor clears leaves a firing alert
    unchanged. Without further rows it is valid up to the time `until` (None: forever). A
    `provisional` row (an early pane) can only raise. A `correction` (a late pane) changes the
    current state but never starts an episode.
    """

    time: int
    raises: bool
    clears: bool
    until: int | None = None
    provisional: bool = False
    correction: bool = False


@dataclass(frozen=True, slots=True)
class KeyState:
    """The state of a key: `time` of its newest row, `begun` as the start of its episode,
    `resolved` as the end of its last episode."""

    state: State
    time: int
    begun: int
    until: int | None = None
    resolved: int | None = None

    def due(self, rule: Rule) -> int | None:
        """Return the time after which the state changes without another row."""
        if self.state == "resolved":
            return None
        ends = [self.until] if self.until is not None else []
        if self.state == "pending" and rule.level:
            ends.append(self.earliest(rule))
        return min(ends, default=None)

    def earliest(self, rule: Rule) -> int:
        """Return when a pending episode may fire."""
        held = self.begun + rule.for_
        return held if self.resolved is None else max(held, self.resolved + rule.hold)


@dataclass(frozen=True, slots=True)
class Transition:
    """A change to notify: what happened, when, in the episode that began at `begun`."""

    kind: Kind
    at: int
    begun: int


Update = tuple[KeyState | None, list[Transition]]


def observe(state: KeyState | None, row: Observation, rule: Rule) -> Update:
    """Return the state after a row. Rows older than the newest one are ignored."""
    if state is None and (row.correction or not row.raises):
        return None, []
    if state is not None and row.time < state.time:
        return state, []
    if row.provisional and not row.raises:
        return state, []
    state, transitions = advance(state, row.time, rule)
    after, more = _raise(state, row, rule) if row.raises else _clear(state, row)
    return after, transitions + more


def advance(state: KeyState | None, clock: int, rule: Rule) -> Update:
    """Return the state once time has passed `clock` without another row."""
    transitions: list[Transition] = []
    while state is not None:
        due = state.due(rule)
        if due is None or due >= clock:
            break
        if state.until is not None and due == state.until:
            state, more = _end(state, due)
            transitions += more
        else:
            state = replace(state, state="firing")
            transitions.append(Transition("firing", due, state.begun))
    return state, transitions


def _raise(state: KeyState | None, row: Observation, rule: Rule) -> Update:
    if state is None:
        state = KeyState("pending", row.time, row.time, row.until)
    elif state.state == "resolved":
        begun = max(row.time, state.begun + 1)
        state = KeyState("pending", row.time, begun, row.until, state.resolved)
    else:
        state = replace(state, time=row.time, until=row.until)
    at = max(row.time, state.begun)
    if state.state == "pending" and at >= state.earliest(rule):
        return replace(state, state="firing"), [Transition("firing", at, state.begun)]
    return state, []


def _clear(state: KeyState | None, row: Observation) -> Update:
    if state is None:
        return None, []
    state = replace(state, time=row.time, until=row.until)
    if state.state == "resolved" or (state.state == "firing" and not row.clears):
        return state, []
    return _end(state, row.time)


def _end(state: KeyState, at: int) -> Update:
    """End an episode; one that never fired leaves only the previous resolved one, if any."""
    if state.state == "pending":
        if state.resolved is None:
            return None, []
        return replace(state, state="resolved", until=None), []
    at = max(at, state.begun)
    ended = replace(state, state="resolved", until=None, resolved=at)
    return ended, [Transition("resolved", at, state.begun)]
