"""Windows, triggers, late policy and panes said again in plain Python, from DESIGN §3 alone.

    from tests.oracles.windows import Batch, hopping, run, session, tumbling

    out = run(
        [Batch(rows=[{"k": "a", "v": 3, "_time": 4}], before=LEAST, after=12, clock=100), …],
        window=hopping(10, every=5),          # tumbling(10, offset=2), days(1, zone), session(gap)
        keys=["k"],
        aggregates={"n": ("count", None), "total": ("sum", "v")},      # count sum min max mean
        early=("every", 5), late=("each", 2), keep=20, panes="retracting",
    )
    out[0].panes      what leaves for sinks in that batch, by key and window, a retracted row
                       before the one that replaces it
    out[0].flow       what a later operator sees: (+1 or -1, pane), never an early one
    out[0].late       (row, windows that are gone) in the order the rows came
    out[0].unplaced   how many rows are in no window (hopping with every > size)
    out[0].held       the smallest time it may still emit; the results' watermark is at most that

Times are integers of any unit (microseconds in the engine). A row is a dict with `_time`, its
key columns and its value columns, perhaps `_sign` (1 or -1: take one equal row back). A batch
has the watermark `before` and `after` it and the batch clock. A trigger is `("every", d)`,
`("each", n)`, `("when", function of the dict of aggregates)`, `("any_of", [trigger, …])`,
`("all_of", [trigger, …])` or None; without a late one each batch that brings a kept window
something new shows it.

`finals(out)` is what must not depend on batch cuts: the last value of every window.

Where DESIGN leaves a choice, this is the one made here:

- At the end of a batch a window gives one pane: on time if it closes now, otherwise early or
  late. A window that never had a row before it closed gives late panes only, the first with
  index 0.
- "The last firing" is the batch clock of the last pane of any kind; `when` looks at the
  aggregates of all rows so far, whatever the panes show.
- What flows to later operators is the whole window, also where panes are discarding.
- A window whose rows have all been retracted is retracted itself: no pane replaces it.
- Sessions: see `windows_sessions`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from tests.oracles.windows_oracle import GREATEST, LEAST, answer, sane

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

Row = dict[str, Any]
Window = tuple[int, int]
Key = tuple[Any, ...]
Answers = dict[str, Any]
Trigger = tuple[str, Any]
Aggregates = dict[str, tuple[str, str | None]]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Batch:
    """Rows, the watermarks before and after them, and the batch clock."""

    rows: Sequence[Row]
    before: int
    after: int
    clock: int = 0


@dataclass(frozen=True)
class Pane:
    """One look at a window of a key; `name` is early, on_time or late."""

    key: Key
    start: int
    end: int
    values: Answers
    name: str
    index: int
    retract: bool = False


@dataclass
class Emitted:
    """What must leave in one batch."""

    panes: list[Pane] = field(default_factory=list)
    flow: list[tuple[int, Pane]] = field(default_factory=list)
    late: list[tuple[Row, list[Window]]] = field(default_factory=list)
    unplaced: int = 0
    held: int = GREATEST


@dataclass(frozen=True)
class Fixed:
    """Windows that time alone tells: a function from a time to the windows around it."""

    around: Callable[[int], list[Window]]


@dataclass(frozen=True)
class Session:
    """`[first, last + gap)`; a row at most `gap` away belongs."""

    gap: int


def tumbling(size: int, *, offset: int = 0) -> Fixed:
    """One window after the other."""
    return hopping(size, every=size, offset=offset)


def hopping(size: int, *, every: int, offset: int = 0) -> Fixed:
    """A window of `size` from every multiple of `every` on, cut at the limits of 64 bits."""

    def around(at: int) -> list[Window]:
        last = (at - offset) // every * every + offset
        starts = range(last, at - size, -every)
        return [(max(start, LEAST), min(start + size, GREATEST)) for start in reversed(starts)]

    return Fixed(around)


def days(count: int, zone: str) -> Fixed:
    """So many days of a zone from midnight to midnight, in microseconds, from 1970-01-01 on."""
    place = ZoneInfo(zone)

    def midnight(number: int) -> int:
        day = date(1970, 1, 1) + timedelta(days=number)
        return (datetime.combine(day, time(), place) - _EPOCH) // timedelta(microseconds=1)

    def around(at: int) -> list[Window]:
        local = (_EPOCH + timedelta(microseconds=at)).astimezone(place)
        first = (local.date() - date(1970, 1, 1)).days // count * count
        return [(midnight(first), midnight(first + count))]

    return Fixed(around)


def session(gap: int) -> Session:
    """Rows of a key that follow each other within `gap`."""
    return Session(gap)


def run(
    batches: Iterable[Batch],
    *,
    window: Fixed | Session,
    keys: Sequence[str],
    aggregates: Aggregates,
    early: Trigger | None = None,
    late: Trigger | None = None,
    keep: int = 0,
    panes: str = "accumulating",
) -> list[Emitted]:
    """What must leave, batch by batch."""
    policy = Policy(tuple(keys), aggregates, early, late or ("each", 1), keep, panes)
    if isinstance(window, Session):
        from tests.oracles.windows_sessions import Sessions

        return [taken.step(batch) for taken in [Sessions(policy, window.gap)] for batch in batches]
    groups: dict[tuple[Key, Window], Group] = {}
    return [_fixed(batch, groups, window, policy) for batch in batches]


def finals(out: Iterable[Emitted]) -> dict[tuple[Key, int, int], Answers]:
    """The last value of every window that has left, from what flows."""
    standing: dict[tuple[Key, int, int], Answers] = {}
    for batch in out:
        for sign, pane in batch.flow:
            place = (pane.key, pane.start, pane.end)
            if sign > 0:
                standing[place] = pane.values
            else:
                del standing[place]
    return standing


@dataclass(frozen=True)
class Policy:
    """What was asked of the windows of one operator."""

    keys: tuple[str, ...]
    aggregates: Aggregates
    early: Trigger | None
    late: Trigger
    keep: int
    panes: str

    def key(self, row: Row) -> Key:
        """The row's key: one NaN, no negative zero."""
        return tuple(sane(row[name]) for name in self.keys)

    def answers(self, rows: Sequence[Row]) -> Answers:
        """Every aggregate over these rows."""
        left = netted(rows)
        return {name: answer(left, *how, None) for name, how in self.aggregates.items()}


@dataclass
class Group:
    """A window of a key: its rows, those a discarding pane would show, and the panes that stand.

    `came` counts the rows since the last pane. `shown` stand at the sinks (whole, whatever
    they showed), `flowed` at later operators.
    """

    rows: list[Row] = field(default_factory=list)
    fresh: list[Row] = field(default_factory=list)
    came: int = 0
    since: int = 0
    index: int = 0
    left: bool = False
    shown: list[Pane] = field(default_factory=list)
    flowed: list[Pane] = field(default_factory=list)

    def take(self, rows: Sequence[Row]) -> None:
        """More rows for it."""
        self.rows += rows
        self.fresh += rows
        self.came += len(rows)


def rank(key: Key) -> list[tuple[int, str, Any]]:
    """Where a key stands among others: nulls first, then by type and value."""
    return [(0, "", 0) if part is None else (1, type(part).__name__, part) for part in key]


def reached(end: int, watermark: int) -> bool:
    """Whether a watermark is at an end, or at the end of time."""
    return watermark == GREATEST or end <= watermark


def netted(rows: Sequence[Row]) -> list[Row]:
    """The rows that stand when each one retracted has left with its equal."""
    standing: list[Row] = []
    for row in rows:
        plain = _plain(row)
        if row.get("_sign", 1) > 0:
            standing.append(row)
            continue
        place = next((n for n, other in enumerate(standing) if _plain(other) == plain), None)
        if place is None:
            standing.append(row)
        else:
            del standing[place]
    return standing


def _plain(row: Row) -> Row:
    return {name: sane(value) for name, value in row.items() if name != "_sign"}


def fires(trigger: Trigger | None, group: Group, clock: int, answers: Answers) -> bool:
    """Whether a trigger fires at the end of a batch: only ever if something is new."""
    if trigger is None or not group.came:
        return False
    kind, what = trigger
    if kind == "every":
        return bool(clock >= group.since + what)
    if kind == "each":
        return bool(group.came >= what)
    if kind == "when":
        return bool(what(answers))
    within = [fires(one, group, clock, answers) for one in what]
    return any(within) if kind == "any_of" else all(within)


def show(out: Emitted, policy: Policy, group: Group, pane: Pane, clock: int) -> None:
    """Let a pane leave: to sinks as the panes specify, to later operators whole."""
    stands = bool(sum(row.get("_sign", 1) for row in group.rows))
    if policy.panes == "retracting" or not stands:
        out.panes += [replace(old, retract=True) for old in group.shown]
    shown = pane
    if policy.panes == "discarding":
        shown = replace(pane, values=policy.answers(group.fresh))
    if stands:
        out.panes.append(shown)
        group.index += 1
    if pane.name != "early":
        out.flow += [(-1, old) for old in group.flowed]
        out.flow += [(1, pane)] if stands else []
        group.flowed = [pane] if stands else []
    group.shown, group.fresh, group.came = [pane] if stands else [], [], 0
    group.since = clock


def _fixed(
    batch: Batch, groups: dict[tuple[Key, Window], Group], window: Fixed, policy: Policy
) -> Emitted:
    out = Emitted()
    for row in batch.rows:
        around = window.around(row["_time"])
        gone = [w for w in around if reached(w[1] + policy.keep, batch.before)]
        out.unplaced += not around
        if gone:
            out.late.append((row, gone))
        for w in around:
            if w not in gone:
                born = Group(since=batch.clock, left=reached(w[1], batch.before))
                groups.setdefault((policy.key(row), w), born).take([row])
    for (key, w), group in sorted(groups.items(), key=lambda item: (rank(item[0][0]), item[0][1])):
        name = stage(group, w[1], batch, policy)
        if name:
            pane = Pane(key, *w, policy.answers(group.rows), name, group.index)
            show(out, policy, group, pane, batch.clock)
        if reached(w[1], batch.after):
            group.left = True
        if reached(w[1] + policy.keep, batch.after):
            del groups[key, w]
    return out


def stage(group: Group, end: int, batch: Batch, policy: Policy) -> str | None:
    """Which pane, if any, a window gives at the end of a batch."""
    answers = policy.answers(group.rows)
    if not group.left:
        if reached(end, batch.after):
            return "on_time"
        return "early" if fires(policy.early, group, batch.clock, answers) else None
    over = bool(group.came) and reached(end + policy.keep, batch.after)
    return "late" if over or fires(policy.late, group, batch.clock, answers) else None
