"""Which row-based windows the rows of a batch touch, and what is added to each.

Windows of a key are numbered from the first that is open after the batch: that is number 0,
later ones follow, and windows that the batch closes have numbers below 0. So the state holds
the windows 0, 1, … of a key, and the numbers never grow.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa

from millstream.operators.aggregates.parts import ROWS
from millstream.operators.windows.by_rows.cut_kernel import Keyed, RowRule
from millstream.operators.windows.folding import folded
from millstream.state.arrays.numpy_columns import int_values, plain, spans_to_rows
from millstream.state.combine import conform, reduce_groups
from millstream.state.spec import HASH, ORDER, StateSpec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from millstream.operators.windows.by_rows.cut_kernel import Cutter
    from millstream.operators.windows.by_rows.spec import Rows
    from millstream.operators.windows.lifted import Lifted
    from millstream.state.spec import StateColumn

    Ints = NDArray[np.int64]

WINDOW = "_window"


@dataclass(frozen=True, slots=True)
class Touched:
    """Some windows: as `kept` in the state, and what is added to them (`come`), one row each."""

    kept: pa.Table
    come: pa.Table


class Touching(RowRule, Protocol):
    """A rule that assigns rows to windows."""

    def touched(
        self, lifted: Lifted, kept: pa.Table, batch: pa.Table, markers: pa.Table | None
    ) -> Iterator[Touched]:
        """All stored windows and all additions, in pieces of bounded size."""


class CutWindows:
    """Consecutive windows, divided by a cutter."""

    def __init__(self, cutter: Cutter) -> None:
        self._cutter = cutter
        self.name, self.remembered = cutter.name, cutter.remembered
        self.carried, self.carry = cutter.carried, cutter.carry

    def touched(
        self, lifted: Lifted, kept: pa.Table, batch: pa.Table, markers: pa.Table | None
    ) -> Iterator[Touched]:
        """At most one window per key is open, so everything is one piece."""
        known = [column.name for column in self.remembered]
        keyed, of_state = _side_by_side(lifted, kept, batch, known, markers)
        cut = self._cutter.cut(keyed)
        numbers = cut.numbers - cut.ends[keyed.key_of]
        inside = ~keyed.kept if cut.outside is None else ~keyed.kept & ~cut.outside
        members = np.flatnonzero(inside)
        spec = _added(lifted, self.remembered)
        come, _ = _reduced(keyed, members, numbers[members], spec, cut.replaced or {})
        yield Touched(_numbered(kept.take(pa.array(of_state)), numbers[keyed.kept]), come)


class CountedWindows:
    """Windows of a number of rows, which may overlap.

    Rows are aggregated to cells, so that every window is a span of whole cells; the cells of
    the batch are added to each window they belong to.
    """

    name = "rows"
    remembered: tuple[StateColumn, ...] = ()

    def __init__(self, spec: Rows) -> None:
        self._n, self._every = spec.n, spec.every
        self._cell = math.gcd(spec.n, spec.every)

    @property
    def carried(self) -> dict[str, pa.DataType]:
        """Nothing."""
        return {}

    def carry(self, rows: pa.Table) -> tuple[dict[str, pa.Array], pa.Table | None, int]:
        """Every row belongs to a window, and none is broadcast."""
        return {}, None, 0

    def touched(
        self, lifted: Lifted, kept: pa.Table, batch: pa.Table, markers: pa.Table | None
    ) -> Iterator[Touched]:
        """Every row of a key enters all windows of that key that have begun and are not full."""
        keyed, of_state = _side_by_side(lifted, kept, batch, [ROWS, WINDOW], markers)
        of = keyed.key_of
        held = np.flatnonzero(keyed.kept)
        windows = int_values(plain(keyed.rows[WINDOW]))[held]
        seen = np.zeros(len(keyed.starts), np.int64)
        first = held[windows == 0]
        seen[of[first]] = int_values(plain(keyed.rows[ROWS]))[first]
        counts = np.bincount(of[~keyed.kept], minlength=len(seen))
        full = np.where(counts > 0, self._full(seen + counts), 0)
        kept = _numbered(kept.take(pa.array(of_state)), windows - full[of[held]])
        if batch.num_rows == 0:
            yield Touched(kept, _added(lifted, ()).schema.empty_table().append_column(
                WINDOW, pa.array([], pa.int64())))  # fmt: skip
            return
        begun = np.where(counts > 0, -(-(seen + counts) // self._every), 0)
        before = np.cumsum(begun) - begun
        spans_of_kept = np.where(counts[of[held]] > 0, before[of[held]] + windows, 0)
        for spans, come in self._gained(lifted, keyed, seen, counts, begun, full):
            mine = (spans_of_kept >= spans.start) & (spans_of_kept < spans.stop)
            yield Touched(kept.filter(pa.array(mine)), come)

    def _full(self, seen: Ints) -> Ints:
        """The number of full windows after so many rows, counted from the first open one."""
        return np.maximum(0, (seen - self._n) // self._every + 1)

    def _gained(
        self, lifted: Lifted, keyed: Keyed, seen: Ints, counts: Ints, begun: Ints, full: Ints
    ) -> Iterator[tuple[slice, pa.Table]]:
        """What is added to each window of each key, in pieces by window."""
        cells, firsts = self._cells(lifted, keyed, seen, counts)
        windows, of = spans_to_rows(np.zeros(len(begun), np.int64), begun)
        skipped = seen // self._cell
        upto = np.minimum((windows * self._every + self._n) // self._cell,
                          -(-(seen + counts) // self._cell)[of])  # fmt: skip
        lows = np.maximum(windows * self._every // self._cell, skipped[of])
        moved = (firsts - skipped)[of]
        values, starts = lifted.values, firsts[counts > 0]
        for spans, made in folded(cells, values, starts, lows + moved, upto + moved):
            rows = cells.select([ORDER, HASH, *lifted.keys]).take(pa.array((lows + moved)[spans]))
            columns = {name: rows[name] for name in rows.column_names}
            columns |= {name: made[name] for name in made.column_names}
            columns[WINDOW] = pa.array((windows - full[of])[spans])
            yield spans, pa.table(columns)

    def _cells(
        self, lifted: Lifted, keyed: Keyed, seen: Ints, counts: Ints
    ) -> tuple[pa.Table, Ints]:
        """The rows of the batch as cells, and where those of each key begin."""
        come = np.flatnonzero(~keyed.kept)
        of = keyed.key_of[come]
        place = np.arange(len(come)) - (np.cumsum(counts) - counts)[of]
        cells, starts = _reduced(
            keyed, come, (seen[of] + place) // self._cell, _added(lifted, ()), {}
        )
        per_key = np.bincount(of[starts], minlength=len(counts))
        return cells, np.cumsum(per_key) - per_key


def _side_by_side(
    lifted: Lifted, kept: pa.Table, batch: pa.Table, known: list[str], markers: pa.Table | None
) -> tuple[Keyed, Ints]:
    """Rows by key, with the state's rows (columns `known`) first; the index of those in `kept`."""
    of_state = kept.select([HASH, *lifted.keys, *known])
    rows = pa.concat_tables([of_state, batch], promote_options="permissive")
    places, starts = lifted.by_key(rows)
    is_kept = places < kept.num_rows
    return Keyed(rows.take(pa.array(places)), is_kept, starts, markers), places[is_kept]


def _added(lifted: Lifted, remembered: tuple[StateColumn, ...]) -> StateSpec:
    """What rows add to a window."""
    return StateSpec(pa.schema(lifted.key_fields), (*lifted.values, *remembered))


def _reduced(
    keyed: Keyed, members: Ints, numbers: Ints, spec: StateSpec, replaced: Mapping[str, pa.Array]
) -> tuple[pa.Table, Ints]:
    """Members of one key and number combined to one row; and where each begins."""
    taken = pa.array(members)
    rows = keyed.rows.take(taken)
    names = [name for name in spec.schema.names if name in rows.column_names]
    rows = conform(rows.select(names), spec)
    of = keyed.key_of[members]
    new = np.ones(len(members), np.bool_)
    new[1:] = (of[1:] != of[:-1]) | (numbers[1:] != numbers[:-1])
    starts = np.flatnonzero(new)
    columns = {name: plain(rows[name]) for name in spec.schema.names}
    columns |= {name: column.take(taken) for name, column in replaced.items()}
    made = reduce_groups(columns, starts, spec) if len(starts) else rows
    return made.append_column(WINDOW, pa.array(numbers[starts])), starts


def _numbered(kept: pa.Table, numbers: Ints) -> pa.Table:
    """Windows of the state with new numbers."""
    return kept.set_column(kept.schema.get_field_index(WINDOW), WINDOW, pa.array(numbers))
