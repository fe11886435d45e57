"""Which sessions of a batch are emitted, and which stay in state."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.event_time.batch_time import END_OF_TIME
from millstream.operators.aggregates.aggregation import BOUND, END, START
from millstream.operators.windows.panes.firing import Groups, Ready
from millstream.operators.windows.panes.state import (
    ARRIVED,
    EARLY,
    LABELS,
    LATE,
    NEW_PARTS,
    ON_TIME,
    numbers,
)
from millstream.operators.windows.sessions.layout import (
    FIRED,
    FIRST,
    FLOWED,
    LAST,
    OPENED,
    PANE,
    PANE_INDEX,
    PANES,
    RETRACT,
    SHOWN,
)
from millstream.operators.windows.sessions.merging import valid_numbers
from millstream.operators.windows.sessions.pieces import later
from millstream.operators.windows.trigger import Each, Trigger
from millstream.state.arrays.numpy_columns import plain
from millstream.state.spec import LOW_PART

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from millstream.event_time.batch_time import BatchTime
    from millstream.operators.windows.sessions.layout import Layout
    from millstream.operators.windows.sessions.merging import Met

    Ints = NDArray[np.int64]
    Mask = NDArray[np.bool_]
    Columns = Mapping[str, pa.Array | pa.ChunkedArray]


@dataclass(frozen=True, slots=True)
class Settled:
    """Which sessions stay, as `sessions`, and when each is due next.

    `changed` marks those that differ from the state; `due` and `rings` are the watermark and
    the clock at which each has to be checked again. `results` and `flow` are emitted.
    """

    sessions: pa.Table
    stays: Mask
    changed: Mask
    due: Ints
    rings: Ints
    results: list[pa.Table] = field(default_factory=list)
    flow: list[pa.Table] = field(default_factory=list)


class Rows:
    """Builds rows with the operator's columns."""

    def __init__(self, layout: Layout, gap: int) -> None:
        self._layout, self._gap = layout, gap

    def made(
        self, keys: pa.Table, firsts: Ints, lasts: Ints, answers: Columns, *, sign: int = 1
    ) -> pa.Table:
        """Sessions with their results (and pane columns), added or retracted."""
        ends = later(lasts, self._gap)
        columns = {
            **{key: keys[key] for key in self._layout.keys},
            START: pa.array(firsts).cast(BOUND),
            END: pa.array(ends).cast(BOUND),
            **answers,
            RETRACT: pa.array(np.full(len(ends), sign < 0)),
        }
        made = pa.table({name: columns[name] for name in self._layout.output.names})
        made = made.append_column("_time", pa.array(ends - 1))
        return made.append_column("_sign", pa.array(np.full(len(ends), sign, np.int8)))


class Once:
    """Each session is emitted when it closes, and dropped."""

    def __init__(self, layout: Layout, gap: int) -> None:
        self._layout, self._gap = layout, gap
        self._rows = Rows(layout, gap)

    def settle(self, met: Met, batch_time: BatchTime) -> Settled:
        """Emit and drop the sessions that the watermark has passed."""
        due = later(met.lasts, self._gap + 1)
        closed = due <= batch_time.after
        rings = np.full(len(due), END_OF_TIME)
        settled = Settled(met.sessions, ~closed, met.touched, due, rings)
        if closed.any():
            leaving = met.sessions.take(pa.array(np.flatnonzero(closed)))
            answers = self._layout.of.answers(leaving)
            firsts, lasts = met.firsts[closed], met.lasts[closed]
            settled.results.append(self._rows.made(met.keys_of(leaving), firsts, lasts, answers))
        return settled


@dataclass(frozen=True, slots=True)
class _Pane:
    """Panes to emit: which sessions, their labels, and their aggregates so far."""

    places: Ints
    labels: Ints
    numbers: Ints
    totals: dict[str, pa.Array]

    def columns(self) -> dict[str, pa.Array]:
        """Label and number as they are emitted."""
        return {
            PANE: pa.array(LABELS[self.labels], pa.string()),
            PANE_INDEX: pa.array(self.numbers),
        }


class Panes:
    """Sessions are emitted early, on time and late, and kept until `keep` is over."""

    def __init__(self, layout: Layout, gap: int, trigger: Trigger, keep: int) -> None:
        self._layout, self._gap, self._kept = layout, gap, max(keep, 1)
        self._rows = Rows(layout, gap)
        self._early = Ready(trigger.early, layout.of.names)
        self._late = Ready(trigger.late or Each(), layout.of.names)
        self._asks = self._early.conditional or self._late.conditional
        self._retracting = trigger.panes == "retracting"
        self._flowed = FLOWED if trigger.early else SHOWN

    def settle(self, met: Met, batch_time: BatchTime) -> Settled:
        """Fire the sessions that are due; drop those that are no longer kept."""
        closes = later(met.lasts, self._gap + 1)
        forgets = later(met.lasts, self._gap + self._kept)
        past, gone = closes <= batch_time.before, forgets <= batch_time.after
        closing = (closes <= batch_time.after) & ~past
        at = self._fires_at(met.sessions, past)
        arrived = numbers(met.sessions, ARRIVED)
        fires = closing | ((at <= batch_time.clock) & (at < END_OF_TIME))
        fires |= past & gone & (arrived > 0)
        labels = np.where(past, LATE, np.where(closing, ON_TIME, EARLY))
        pane = self._pane(met, np.flatnonzero(fires), labels)
        sessions = self._remembered(met, fires, pane, batch_time.clock)
        settled = Settled(
            sessions,
            stays=~gone,
            changed=met.touched | fires,
            due=np.where(closing | past, forgets, closes),
            rings=np.where(fires | gone, END_OF_TIME, at),
        )
        self._leave(met, pane, settled)
        return settled

    def _fires_at(self, sessions: pa.Table, past: Mask) -> Ints:
        """The clock at which each session fires by its trigger, without new rows."""
        opened = numbers(sessions, OPENED)
        fired = plain(sessions[FIRED])
        since = np.where(plain(fired.is_valid()), valid_numbers(sessions, FIRED, 0), opened)
        answers = pa.table(self._layout.of.answers(sessions)) if self._asks else None
        groups = Groups(numbers(sessions, ARRIVED), since, answers)
        return np.where(past, self._late.at(groups), self._early.at(groups))

    def _pane(self, met: Met, places: Ints, labels: Ints) -> _Pane:
        sessions = met.sessions.take(pa.array(places))
        totals = self._layout.of.answers(sessions)
        return _Pane(places, labels[places], valid_numbers(sessions, PANES, 0), totals)

    def _remembered(self, met: Met, fires: Mask, pane: _Pane, clock: int) -> pa.Table:
        """The sessions as they are stored after firing, with their last panes."""
        fired = valid_numbers(met.sessions, FIRED, 0)
        columns = {name: met.sessions[name] for name in met.sessions.column_names}
        known = plain(met.sessions[FIRED].is_valid()).to_numpy(zero_copy_only=False)
        columns[ARRIVED] = pa.array(np.where(fires, 0, numbers(met.sessions, ARRIVED)))
        columns[FIRED] = pa.array(np.where(fires, clock, fired), mask=~(fires | known))
        columns[PANES] = pa.array(valid_numbers(met.sessions, PANES, 0) + fires)
        if self._layout.discarding:
            columns |= self._without_news(met.sessions, fires)
        columns |= self._cards(met, fires, pane)
        return pa.table(columns)

    def _without_news(self, sessions: pa.Table, fires: Mask) -> Columns:
        """The parts of rows since the last pane: emptied for sessions that fire."""
        kept = pa.array(np.arange(len(fires)), mask=fires)
        summed = {c.name for c in self._layout.of.spec.values if c.combine in ("sum", "dsum")}
        columns = {}
        for name in self._layout.totals:
            left = plain(sessions[NEW_PARTS + name]).take(kept)
            if name.removesuffix(LOW_PART) in summed:
                left = left.fill_null(pa.scalar(0).cast(left.type))
            columns[NEW_PARTS + name] = left
        return columns

    def _cards(self, met: Met, fires: Mask, pane: _Pane) -> Columns:
        """The last panes of sessions: new ones, else the stored ones."""
        shown = self._shown_by(met)
        columns: dict[str, pa.Array] = {}
        values = {LAST: pa.array(met.lasts[pane.places]), PANE: pa.array(pane.labels, pa.int8()),
                  PANE_INDEX: pa.array(pane.numbers), **pane.totals}  # fmt: skip
        for card in self._layout.cards:
            replaced = fires.copy()
            if card == FLOWED:
                replaced[pane.places] = pane.labels != EARLY
            at = np.where(replaced, met.known.num_rows + np.cumsum(fires) - 1, shown)
            taken = pa.array(at, mask=at < 0)
            for name, value in values.items():
                column = f"{card}:{name}"
                before = plain(met.known[column])
                columns[column] = pa.concat_arrays([before, value.cast(before.type)]).take(taken)
        return columns

    def _shown_by(self, met: Met) -> Ints:
        """For each session, the known one it continues, or -1."""
        shown = np.full(met.sessions.num_rows, -1)
        places = np.flatnonzero(met.continued)
        shown[met.into[places]] = places
        return shown

    def _leave(self, met: Met, pane: _Pane, settled: Settled) -> None:
        """Retract absorbed sessions and panes that are replaced, then emit the new panes."""
        shown = self._shown_by(met)[pane.places]
        on_time = pane.labels != EARLY
        absorbed = np.flatnonzero(~met.continued)
        again = shown[shown >= 0]
        back = np.concatenate([absorbed, again]) if self._retracting else absorbed
        settled.results.extend(self._taken_back(met, back, SHOWN))
        back = np.concatenate([absorbed, shown[on_time & (shown >= 0)]])
        settled.flow.extend(self._taken_back(met, back, self._flowed))
        if len(pane.places) == 0:
            return
        sessions = met.sessions.take(pa.array(pane.places))
        firsts, lasts = met.firsts[pane.places], met.lasts[pane.places]
        keys = met.keys_of(sessions)
        totals = self._rows.made(keys, firsts, lasts, {**pane.totals, **pane.columns()})
        given = totals
        if self._layout.discarding:
            parts = {name: sessions[NEW_PARTS + name] for name in self._layout.totals}
            news = self._layout.of.answers(pa.table(parts))
            given = self._rows.made(keys, firsts, lasts, {**news, **pane.columns()})
        settled.results.append(given)
        if on_time.any():
            settled.flow.append(totals.filter(pa.array(on_time)))

    def _taken_back(self, met: Met, places: Ints, card: str) -> list[pa.Table]:
        """The last emitted rows of known sessions, for those that have one."""
        left = plain(met.known[f"{card}:{LAST}"].is_valid()).to_numpy(zero_copy_only=False)
        places = places[left[places]]
        if len(places) == 0:
            return []
        known = met.known.take(pa.array(places))
        names = [PANE, PANE_INDEX, *self._layout.of.names]
        answers = {name: known[f"{card}:{name}"] for name in names}
        answers[PANE] = pa.array(LABELS[numbers(known, f"{card}:{PANE}")], pa.string())
        lasts = numbers(known, f"{card}:{LAST}")
        keys = met.keys_of(known)
        return [self._rows.made(keys, numbers(known, FIRST), lasts, answers, sign=-1)]
