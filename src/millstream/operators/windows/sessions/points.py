"""Sessions whose rows may be retracted: points in time are kept and chained again.

A retracted row may leave a gap that divides a session. So in addition to the sessions, the rows
of every key at each time are stored, as long as the session around them; the sessions of a
changed key are rebuilt from all its points.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.operators.aggregates.parts import ROWS
from millstream.operators.windows.panes.state import ARRIVED, NEW_PARTS, numbers
from millstream.operators.windows.sessions.layout import (
    FIRST,
    LAST,
    OPENED,
    POINTS,
    SESSIONS,
    SUSPECT,
)
from millstream.operators.windows.sessions.merging import Met, valid_numbers
from millstream.operators.windows.sessions.pieces import chain_heads
from millstream.state.arrays.numpy_columns import only, plain
from millstream.state.combine import reduce_values
from millstream.state.sorting import by_group, orders_of
from millstream.state.spec import GONE, ORDER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from millstream.operators.windows.sessions.layout import Layout
    from millstream.state.runs.view import View

    Ints = NDArray[np.int64]
    Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class _Elements:
    """Stored points, then pieces of the batch: indices of their keys, times, signed rows."""

    points: pa.Table
    batch: pa.Table
    places: Ints
    times: Ints
    rows: Ints

    @classmethod
    def of(cls, points: pa.Table, batch: pa.Table) -> _Elements:
        both = (points, batch)
        return cls(
            points,
            batch,
            np.concatenate([orders_of(table) for table in both]),
            np.concatenate([numbers(table, FIRST) for table in both]),
            np.concatenate([numbers(table, ROWS) for table in both]),
        )

    @property
    def from_batch(self) -> Mask:
        """Which of them are from the batch."""
        mine: Mask = np.arange(len(self.places)) >= self.points.num_rows
        return mine

    def chains(self, which: Mask, reach: int) -> Ints:
        """The chain of each selected element, in order of (key, time); -1 for others."""
        chain = np.full(len(self.places), -1)
        meant = np.flatnonzero(which)
        if len(meant) == 0:
            return chain
        order = meant[by_group(self.places[meant], self.times[meant])]
        places, times = self.places[order], self.times[order]
        new_key = np.ones(len(order), np.bool_)
        new_key[1:] = places[1:] != places[:-1]
        chain[order] = np.cumsum(chain_heads(new_key, times, times, reach)) - 1
        return chain


@dataclass(frozen=True, slots=True)
class Kept:
    """The points of some keys: which are late, the rows of each, and its session.

    A point without rows is in no session, -1.
    """

    elements: _Elements
    late: Mask
    net: Ints
    session: Ints

    def gained(self, met: Met, stays: Mask, layout: Layout) -> pa.Table:
        """The state's delta: the batch's points, and tombstones for sessions that have left."""
        gone = self.net == 0
        inside = self.session >= 0
        gone[inside] = ~stays[self.session[inside]]
        count = self.elements.points.num_rows
        left = self.elements.points.take(pa.array(np.flatnonzero(gone[:count])))
        come = np.flatnonzero(~(gone | self.late)[count:])
        added = self.elements.batch.take(pa.array(come))
        return pa.concat_tables(
            [_state_rows(met, left, layout, gone=True), _state_rows(met, added, layout, gone=False)]
        )


class Points:
    """Chains pieces with the points and sessions of their keys that are at most `reach` apart."""

    def __init__(self, layout: Layout, reach: int) -> None:
        self._layout, self._reach = layout, reach

    def meet(
        self,
        keys: pa.Table,
        batch: pa.Table,
        state: Mapping[str, View],
        is_gone: Callable[[Ints], Mask],
        clock: int,
    ) -> Met:
        """The sessions of these keys; chains only of pieces whose time `is_gone` are late.

        Lateness is decided before anything is retracted.
        """
        known = state[SESSIONS].find(keys)
        elements = _Elements.of(state[POINTS].find(keys), batch)
        everything = np.ones(len(elements.places), np.bool_)
        around = elements.chains(everything, self._reach)
        late = self._late(elements, around, is_gone)
        late |= _unknown(elements, late)
        net = _at_points(elements, elements.rows, late)
        kept = Kept(elements, late, net, elements.chains((net > 0) & ~late, self._reach))
        into = self._into(known, kept)
        met = self._merged(keys, known, kept, into, around, clock)
        if not late.any():
            return met
        places = np.flatnonzero(late[elements.points.num_rows :])
        met.late = plain(batch[SUSPECT]).take(pa.array(places))
        return met

    def _late(self, elements: _Elements, around: Ints, is_gone: Callable[[Ints], Mask]) -> Mask:
        """Which elements are in a separate chain that is gone."""
        chains = int(around.max(initial=-1)) + 1
        new = np.ones(chains, np.bool_)
        new[around[: elements.points.num_rows]] = False
        lasts = np.full(chains, np.iinfo(np.int64).min)
        np.maximum.at(lasts, around, elements.times)
        late: Mask = (new & is_gone(lasts))[around]
        return late

    def _into(self, known: pa.Table, kept: Kept) -> Ints:
        """The first session that is left of each known one, or -1."""
        places, firsts, lasts = _spans(kept)
        at = _first_behind(places, lasts, orders_of(known), numbers(known, FIRST))
        into = np.minimum(at, len(places) - 1)
        if len(places) == 0:
            return np.full(known.num_rows, -1)
        found = (at < len(places)) & (places[into] == orders_of(known))
        return np.where(found & (firsts[into] <= numbers(known, LAST)), into, -1)

    def _merged(
        self, keys: pa.Table, known: pa.Table, kept: Kept, into: Ints, around: Ints, clock: int
    ) -> Met:
        _, firsts, _ = _spans(kept)
        came, taken_back = self._came(kept, around)
        chain_of = np.full(len(firsts), -1)
        inside = kept.session >= 0
        chain_of[kept.session[inside]] = around[inside]
        left = into >= 0
        continued = left.copy()
        continued[left] = firsts[into[left]] == numbers(known, FIRST)[left]
        if self._layout.discarding:
            continued[left] &= ~taken_back[chain_of[into[left]]]
        rows = self._rows(known, kept, into, continued)
        group = np.concatenate([into[left], kept.session[inside]])
        rows = rows.filter(pa.array(np.concatenate([left, inside])))
        order = np.argsort(group, kind="stable")
        starts = np.flatnonzero(np.diff(group[order], prepend=-1))
        merged = reduce_values(rows, pa.array(order), starts, self._layout.merging)
        places = orders_of(rows)[order[starts]]
        sessions = pa.table({ORDER: pa.array(places), **merged})
        if ARRIVED in sessions.column_names:
            arrived = valid_numbers(sessions, ARRIVED, 0) + came[chain_of]
            sessions = _with(sessions, ARRIVED, arrived)
            sessions = _with(sessions, OPENED, valid_numbers(sessions, OPENED, clock))
        touched = came[chain_of] > 0
        return Met(keys, sessions, touched, known, into, continued, None, kept)

    def _came(self, kept: Kept, around: Ints) -> tuple[Ints, Mask]:
        """The number of new rows of each chain of old and new, and whether some are retractions."""
        batch = kept.elements.batch
        accepted = ~kept.late[kept.elements.points.num_rows :]
        chain = around[kept.elements.points.num_rows :][accepted]
        each = np.ones(batch.num_rows, np.int64)
        if ARRIVED in batch.column_names:
            each = numbers(batch, ARRIVED)
        came, taken_back = np.zeros((2, int(around.max(initial=-1)) + 1), np.int64)
        np.add.at(came, chain, each[accepted])
        np.add.at(taken_back, chain, (each != numbers(batch, ROWS))[accepted])
        return came, taken_back > 0

    def _rows(self, known: pa.Table, kept: Kept, into: Ints, continued: Mask) -> pa.Table:
        """Known sessions without their span and parts, then points, then pieces.

        The rows of the batch, and all points that the session did not have, are new to it.
        """
        points, batch = kept.elements.points, kept.elements.batch
        new = ~self._had(known, kept, into, continued)
        columns = {ORDER: pa.array(np.concatenate([orders_of(known), kept.elements.places]))}
        for field in self._layout.merging.value_fields:
            name = field.name
            part = name.removeprefix(NEW_PARTS)
            if name in (FIRST, LAST):
                three = [None, plain(points[FIRST]), plain(batch[FIRST])]
            elif name in self._layout.totals:
                three = [None, plain(points[name]), plain(batch[name])]
            elif part in self._layout.totals:
                before = only(plain(known[name]), continued)
                three = [before, only(plain(points[part]), new), plain(batch[part])]
            else:
                three = [plain(known[name]), None, None]
            columns[name] = pa.concat_arrays(
                [
                    pa.nulls(table.num_rows, field.type) if one is None else one.cast(field.type)
                    for one, table in zip(three, (known, points, batch), strict=True)
                ]
            )
        return pa.table(columns)

    def _had(self, known: pa.Table, kept: Kept, into: Ints, continued: Mask) -> Mask:
        """Which stored points were in their session before this batch."""
        count = kept.elements.points.num_rows
        session = kept.session[:count]
        sessions = int(kept.session.max(initial=-1)) + 1
        upto = np.full(sessions, np.iinfo(np.int64).min)
        has = np.zeros(sessions, np.bool_)
        upto[into[continued]] = numbers(known, LAST)[continued]
        has[into[continued]] = True
        shown = np.zeros(count, np.bool_)
        inside = session >= 0
        at = session[inside]
        shown[inside] = has[at] & (kept.elements.times[:count][inside] <= upto[at])
        return shown


def _unknown(elements: _Elements, late: Mask) -> Mask:
    """Suspects that retract more rows than are stored at their time."""
    given = elements.from_batch & (elements.rows > 0)
    left = _at_points(elements, np.where(given, 0, elements.rows), late)
    valid = plain(elements.batch[SUSPECT]).is_valid().to_numpy(zero_copy_only=False)
    suspects = np.concatenate([np.zeros(elements.points.num_rows, np.bool_), valid])
    return suspects & (elements.rows < 0) & (left < 0)


def _at_points(elements: _Elements, rows: Ints, late: Mask) -> Ints:
    """The number of rows at the point of each element, 0 where it is late."""
    sums = np.zeros(len(elements.places), np.int64)
    point = elements.chains(~late, 0)
    accepted = point >= 0
    totals = np.zeros(int(point.max(initial=-1)) + 1, np.int64)
    np.add.at(totals, point[accepted], rows[accepted])
    sums[accepted] = totals[point[accepted]]
    return sums


def _spans(kept: Kept) -> tuple[Ints, Ints, Ints]:
    """The key index, first and last time of each session."""
    inside = np.flatnonzero(kept.session >= 0)
    at = kept.session[inside]
    count = int(at.max(initial=-1)) + 1
    places = np.zeros(count, np.int64)
    places[at] = kept.elements.places[inside]
    firsts, lasts = np.full((2, count), np.iinfo(np.int64).max)
    lasts[:] = np.iinfo(np.int64).min
    np.minimum.at(firsts, at, kept.elements.times[inside])
    np.maximum.at(lasts, at, kept.elements.times[inside])
    return places, firsts, lasts


def _first_behind(places: Ints, lasts: Ints, at: Ints, times: Ints) -> Ints:
    """For each (place, time), the first of the sorted (places, lasts) at or after it."""
    asks = np.concatenate([np.zeros(len(at), np.int64), np.ones(len(places), np.int64)])
    order = np.lexsort((asks, np.concatenate([times, lasts]), np.concatenate([at, places])))
    before = np.empty(len(order), np.int64)
    before[order] = np.cumsum(asks[order]) - asks[order]
    return before[: len(at)]


def _with(table: pa.Table, name: str, values: Ints) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, pa.array(values))


def _state_rows(met: Met, rows: pa.Table, layout: Layout, *, gone: bool) -> pa.Table:
    keys = met.keys_of(rows)
    columns = {name: rows[name] for name in rows.column_names}
    columns |= {name: keys[name] for name in keys.column_names}
    columns[GONE] = pa.array(np.full(keys.num_rows, gone))
    return pa.table({name: columns[name] for name in layout.point.schema.names})
