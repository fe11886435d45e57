"""Panes of session windows said again in plain Python, session by session, from DESIGN §3.

A trigger is one of ("every", µs), ("each", rows), ("when", function of the aggregates),
("any", triggers…), ("all", triggers…), or None.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.oracles.sessions import Batch, Row, beyond, chains, shown

GREATEST = 2**63 - 1
Firing = tuple[Any, ...] | None


@dataclass
class Session:
    """One session: its rows, those new since its last pane, and what it has shown."""

    rows: list[Row] = field(default_factory=list)
    new: list[Row] = field(default_factory=list)
    came: int = 0
    opened: int = GREATEST
    fired: int | None = None
    panes: int = 0
    last_total: Row | None = None
    flowed: Row | None = None

    @property
    def first(self) -> int:
        return int(min(row["_time"] for row in self.rows))

    @property
    def last(self) -> int:
        return int(max(row["_time"] for row in self.rows))


@dataclass
class Emitted:
    """What must leave in one batch: to sinks, to later operators, to `rest`."""

    results: list[Row] = field(default_factory=list)
    flow: list[Row] = field(default_factory=list)
    late: list[Row] = field(default_factory=list)


@dataclass
class Oracle:
    """Takes batches one after the other."""

    gap: int
    keep: int
    early: Firing
    late: Firing
    panes: str
    known: dict[Any, list[Session]] = field(default_factory=dict)

    def take(self, batch: Batch) -> Emitted:
        """One batch: rows in, then what fires, closes and is forgotten."""
        out = Emitted()
        keys = dict.fromkeys([*self.known, *(row["k"] for row in batch.rows)])
        for key in keys:
            stay = []
            for session in self._merged(key, batch, out):
                self._fire(key, session, batch, out)
                if not self._gone(session.last, batch.after):
                    stay.append(session)
            self.known[key] = stay
        return out

    def _gone(self, last: int, watermark: int) -> bool:
        return watermark == GREATEST or watermark >= last + self.gap + max(self.keep, 1)

    def _merged(self, key: Any, batch: Batch, out: Emitted) -> list[Session]:
        """The sessions of a key with the batch added. Lateness is decided before anything is
        retracted; the remaining rows are divided again."""
        known = self.known.get(key, [])
        new = [row for row in batch.rows if row["k"] == key]
        found = []
        for around in chains([row for s in known for row in s.rows] + new, self.gap):
            inside = [s for s in known if any(row is s.rows[0] for row in around)]
            come = [row for row in around if any(row is other for other in new)]
            if not inside and self._gone(around[-1]["_time"], batch.before):
                out.late += around
            else:
                found += self._parted(around, inside, come, batch.clock, out)
        return found

    def _parted(
        self,
        around: list[Row],
        inside: list[Session],
        come: list[Row],
        clock: int,
        out: Emitted,
    ) -> list[Session]:
        left = [row for row in around if row.get("_sign", 1) == 1]
        back = [row for row in come if row.get("_sign", 1) == -1]
        for row in list(back):
            same = [r for r in left if (r["_time"], r["v"]) == (row["_time"], row["v"])]
            if same:
                left.remove(same[0])
            else:
                out.late.append(row)
                back.remove(row)
                come = [other for other in come if other is not row]
        made = [Session(rows=chain, came=len(come)) for chain in chains(left, self.gap)]
        heirs: dict[int, list[tuple[Session, bool]]] = {}
        for s in inside:
            heir = next((n for n, m in enumerate(made)
                         if m.last >= s.first and m.first <= s.last), None)  # fmt: skip
            goes_on = heir is not None and made[heir].first == s.first
            goes_on = goes_on and not (self.panes == "discarding" and back)
            if not goes_on:
                self._take_back(s, out)
            if heir is not None:
                heirs.setdefault(heir, []).append((s, goes_on))
        for number, session in enumerate(made):
            self._inherit(session, heirs.get(number, []), clock)
        return made

    def _take_back(self, s: Session, out: Emitted) -> None:
        if s.last_total is not None:
            out.results.append({**s.last_total, "sign": -1})
        if s.flowed is not None:
            out.flow.append({**s.flowed, "sign": -1})

    def _inherit(self, made: Session, heritage: list[tuple[Session, bool]], clock: int) -> None:
        from_ = [s for s, _ in heritage]
        made.opened = min([clock, *(s.opened for s in from_)])
        made.came += sum(s.came for s in from_)
        made.panes = max((s.panes for s in from_), default=0)
        made.fired = max((s.fired for s in from_ if s.fired is not None), default=None)
        had: list[Row] = []
        for s, goes_on in heritage:
            if goes_on:
                had = [row for row in s.rows if not any(row is other for other in s.new)]
                made.last_total, made.flowed = s.last_total, s.flowed
        made.new = [row for row in made.rows if not any(row is other for other in had)]

    def _fire(self, key: Any, session: Session, batch: Batch, out: Emitted) -> None:
        end = session.last + self.gap
        past = beyond(batch.before, end)
        closing = not past and beyond(batch.after, end)
        if closing:
            fires = True
        elif past:
            last_call = self._gone(session.last, batch.after) and session.came > 0
            fires = last_call or self._fires(self.late or ("each", 1), session, batch.clock)
        else:
            fires = self._fires(self.early, session, batch.clock)
        if not fires:
            return
        pane = "late" if past else "on_time" if closing else "early"
        about = {"k": key, "pane": pane, "pane_index": session.panes, "sign": 1}
        total = {**about, **shown(session.rows, self.gap, "v")}
        given = total
        if self.panes == "discarding":
            news = shown(session.new, self.gap, "v") if session.new else EMPTY
            given = {**total, **{name: news[name] for name in EMPTY}}
        if self.panes == "retracting" and session.last_total is not None:
            out.results.append({**session.last_total, "sign": -1})
        out.results.append(given)
        if pane != "early":
            if session.flowed is not None:
                out.flow.append({**session.flowed, "sign": -1})
            out.flow.append(total)
            session.flowed = total
        session.last_total = total
        session.new, session.came = [], 0
        session.fired, session.panes = batch.clock, session.panes + 1

    def _fires(self, firing: Firing, session: Session, clock: int) -> bool:
        return session.came > 0 and self._would(firing, session, clock)

    def _would(self, firing: Firing, session: Session, clock: int) -> bool:
        if firing is None:
            return False
        kind, *rest = firing
        if kind == "every":
            since = session.opened if session.fired is None else session.fired
            return clock >= since + int(rest[0])
        if kind == "each":
            return session.came >= int(rest[0])
        if kind == "when":
            return bool(rest[0](shown(session.rows, self.gap, "v")))
        combine = any if kind == "any" else all
        return combine(self._would(one, session, clock) for one in rest)


EMPTY: Row = {"n": 0, "total": None, "least": None, "most": None}
