"""How one key of an alert stands: a pure function from what was seen to what is to be told.

    (nothing) ── raised ──▶ pending ── held for `for_` ──▶ firing ── cleared ──▶ resolved
                               └── not held ──▶ (nothing)

Times are those of the rows, in microseconds: the same rows give the same episodes, however they
are cut into batches. An episode begins with the row that raised it, and is named by that time;
where the one before began no earlier, it begins a microsecond after that one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

State = Literal["pending", "firing", "resolved"]
Kind = Literal["firing", "resolved"]


@dataclass(frozen=True, slots=True)
class Rule:
    """When an alert fires and when it is over; lengths in microseconds.

    After an episode the next one of that key fires `hold` later at the earliest. With `level`
    a row is true until another comes (a table); otherwise it is a sample, and one sample alone
    holds for no time.
    """

    for_: int = 0
    hold: int = 0
    level: bool = False


@dataclass(frozen=True, slots=True)
class Observation:
    """One row of a key, or its end.

    `clears` says that it ends an episode; a row that neither raises nor clears leaves a firing
    alert as it is. `until` is for how long it speaks if nothing follows (None: for ever). What
    is `provisional` may raise, but says nothing else: an early pane of a window that goes on.
    A `correction` changes the row in force, and never begins anything by itself.
    """

    time: int
    raises: bool
    clears: bool
    until: int | None = None
    provisional: bool = False
    correction: bool = False


@dataclass(frozen=True, slots=True)
class KeyState:
    """How a key stands: `time` is that of the row in force, `begun` when its episode began,
    `resolved` when the last episode of it ended."""

    state: State
    time: int
    begun: int
    until: int | None = None
    resolved: int | None = None

    def due(self, rule: Rule) -> int | None:
        """The time after which it stands otherwise though nothing comes."""
        if self.state == "resolved":
            return None
        ends = [self.until] if self.until is not None else []
        if self.state == "pending" and rule.level:
            ends.append(self.earliest(rule))
        return min(ends, default=None)

    def earliest(self, rule: Rule) -> int:
        """When a pending episode may fire."""
        held = self.begun + rule.for_
        return held if self.resolved is None else max(held, self.resolved + rule.hold)


@dataclass(frozen=True, slots=True)
class Transition:
    """Something that is to be said: at a time, of the episode that began then."""

    kind: Kind
    at: int
    begun: int


Step = tuple[KeyState | None, list[Transition]]


def observe(standing: KeyState | None, seen: Observation, rule: Rule) -> Step:
    """How a key stands after a row of it. Rows older than the one in force say nothing."""
    if standing is None and (seen.correction or not seen.raises):
        return None, []
    if standing is not None and seen.time < standing.time:
        return standing, []
    if seen.provisional and not seen.raises:
        return standing, []
    standing, told = advance(standing, seen.time, rule)
    if seen.raises:
        after, more = _raised(standing, seen, rule)
    else:
        after, more = _lowered(standing, seen)
    return after, told + more


def advance(standing: KeyState | None, clock: int, rule: Rule) -> Step:
    """How a key stands when time has passed the clock and nothing came."""
    told: list[Transition] = []
    while standing is not None:
        due = standing.due(rule)
        if due is None or due >= clock:
            break
        if standing.until is not None and due == standing.until:
            standing, more = _ended(standing, due)
        else:
            standing = replace(standing, state="firing")
            more = [Transition("firing", due, standing.begun)]
        told += more
    return standing, told


def _raised(standing: KeyState | None, seen: Observation, rule: Rule) -> Step:
    if standing is None:
        standing = KeyState("pending", seen.time, seen.time, seen.until)
    elif standing.state == "resolved":
        begun = max(seen.time, standing.begun + 1)
        standing = KeyState("pending", seen.time, begun, seen.until, standing.resolved)
    else:
        standing = replace(standing, time=seen.time, until=seen.until)
    at = max(seen.time, standing.begun)
    if standing.state == "pending" and at >= standing.earliest(rule):
        standing = replace(standing, state="firing")
        return standing, [Transition("firing", at, standing.begun)]
    return standing, []


def _lowered(standing: KeyState | None, seen: Observation) -> Step:
    if standing is None:
        return None, []
    here = replace(standing, time=seen.time, until=seen.until)
    if standing.state == "resolved" or (standing.state == "firing" and not seen.clears):
        return here, []
    return _ended(here, seen.time)


def _ended(standing: KeyState, at: int) -> Step:
    """An episode is over; one that never fired leaves no trace but the last that did."""
    if standing.state == "pending":
        if standing.resolved is None:
            return None, []
        return replace(standing, state="resolved", until=None), []
    at = max(at, standing.begun)
    over = replace(standing, state="resolved", until=None, resolved=at)
    return over, [Transition("resolved", at, standing.begun)]
