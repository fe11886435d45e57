"""Distinct over Arrow: a row passes unless a row of its key near it has passed before.

Without `within`, the state is the set of keys seen. With it, time is divided into cells one
microsecond longer than `within`: two times in one cell are always near, so a key passes at
most once per cell, and rows near a row are in its cell or a neighbouring one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.errors import InvalidSpec
from millstream.event_time.batch_time import END_OF_TIME, MIN_TIME
from millstream.operators.distinct.non_overlapping import passing
from millstream.operators.kernel import ROWS, Outcome, Prepared
from millstream.state.arrays.numpy_columns import int_values, plain
from millstream.state.combine import combine
from millstream.state.keys.hashing import hash_keys
from millstream.state.row_columns import ORIGIN, SIGN, TIME
from millstream.state.sorting import arrange, by_columns, hashes_of
from millstream.state.spec import HASH, ORDER, StateColumn, StateSpec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from millstream.event_time.batch_time import BatchTime
    from millstream.operators.distinct.spec import Distinct
    from millstream.state.runs.view import View

    Ints = NDArray[np.int64]

PASSED = "_passed"
CHUNK_BYTES = 64 << 20
FEW_REPEATS = 2
_SLOTS = 4


class DistinctKernel:
    """The first of the rows with equal `by`; with `within`, the first in that span of time.

    Rows are taken in order of their origin. With `within`, a row passes unless an earlier
    row of its key that passed is at most `within` away in event time, before or after it;
    it is late when its time + `within` is behind the watermark.

    State: one row per key that passed, never dropped; with `within`, per key and pass, until no
    on-time row can be near it: its time + 2 × `within` is behind the watermark.
    Emits: each passing row unchanged, at once, in order of origin.
    """

    def __init__(self, spec: Distinct, input_schema: pa.Schema) -> None:
        missing = [name for name in spec.by if name not in input_schema.names]
        if missing:
            raise InvalidSpec(
                "distinct needs columns of its input",
                got=", ".join(missing),
                do=f"choose from {', '.join(input_schema.names)}",
            )
        self.spec, self._output = spec, input_schema
        self._state = StateSpec(
            keys=pa.schema([input_schema.field(name) for name in spec.by]),
            values=() if spec.within is None else (StateColumn(PASSED, pa.int64(), "first"),),
        )

    @property
    def tables(self) -> dict[str, StateSpec]:
        """The keys that passed; with `within`, the time at which they did."""
        return {ROWS: self._state}

    def output(self) -> pa.Schema:
        """The columns of the input."""
        return self._output

    def due(self, watermark: int) -> int:
        """Nothing is emitted when time advances."""
        return MIN_TIME

    def prepare(self, rows: pa.Table, batch_time: BatchTime, side: int = 0) -> Prepared:
        """Separate the late rows, and drop exact repeats of an earlier row of this slice.

        An exact repeat has the same key and, with `within`, the same time, so it never passes.
        If there are few, less than about one row in `FEW_REPEATS`, they are left to `run`, which
        looks for repeats across slices anyway: finding them and copying the other rows here
        would cost more.
        """
        _require_no_retraction(rows)
        more = [name for name in _engine_columns(rows) if name not in self._output.names]
        rows = rows.select([*self._output.names, *more])
        late, kept = self._part_late(rows, batch_time)
        if len(late):
            rows = rows.take(pa.array(kept))
        rows, hashes = self._without_repeats(_in_origin_order(rows))
        return Prepared(rows.append_column(HASH, pa.array(hashes)), late)

    def run(
        self, sides: Sequence[Sequence[pa.Table]], state: Mapping[str, View], batch_time: BatchTime
    ) -> Outcome:
        """Emit the rows that have no earlier pass near them.

        `held` is the end of time: every row is emitted or dropped in its own batch.
        """
        floor = self._floor(batch_time.after)
        floors = {} if floor is None else {ROWS: floor}
        inputs = sides[0]
        if not any(table.num_rows for table in inputs):
            return Outcome((), floors=floors)
        rows = _in_origin_order(pa.concat_tables(inputs))
        if self.spec.within is None:
            passed, delta = self._first_ever(rows, state[ROWS])
        else:
            passed, delta = self._first_within(rows, state[ROWS], self.spec.within)
        if floor is not None:
            delta = delta.slice(int(np.searchsorted(delta[ORDER].to_numpy(), floor)))
        return Outcome(self._results(rows, passed), {ROWS: delta}, floors)

    def _part_late(self, rows: pa.Table, batch_time: BatchTime) -> tuple[Ints, Ints]:
        if self.spec.within is None:
            return np.zeros(0, np.int64), np.arange(rows.num_rows)
        if TIME not in rows.column_names:
            raise InvalidSpec(
                "distinct with `within` needs rows with an event time",
                got="a stream without one",
                do="give read(…) a time=, or leave `within` out",
            )
        times = int_values(plain(rows[TIME]))
        late = times < max(MIN_TIME, batch_time.before - self.spec.within)
        if batch_time.before == END_OF_TIME:
            late[:] = True
        return np.flatnonzero(late), np.flatnonzero(~late)

    def _without_repeats(self, rows: pa.Table) -> tuple[pa.Table, NDArray[np.uint64]]:
        hashes = hash_keys(self._keys(rows), rows.num_rows)
        if _are_few(rows.num_rows, _about_different(hashes)):
            return rows, hashes
        if self.spec.within is None:
            orders = np.zeros(rows.num_rows, np.int64)
        else:
            orders = int_values(plain(rows[TIME]))
        by_key, starts, _ = arrange(orders, hashes, self._keys(rows))
        if _are_few(rows.num_rows, len(starts)):
            return rows, hashes
        firsts = _ascending(starts if by_key is None else by_key[starts], rows.num_rows)
        return rows.take(pa.array(firsts)), hashes[firsts]

    def _first_ever(self, rows: pa.Table, state: View) -> tuple[Ints, pa.Table]:
        by_key, starts, _ = self._by_key(rows)
        firsts = starts if by_key is None else by_key[starts]
        wanted = self._state_rows(rows, firsts, np.zeros(len(firsts), np.int64))
        found, _ = state.lookup(wanted)
        new = ~found
        passed = _ascending(firsts[new], rows.num_rows)
        return passed, combine(wanted.filter(pa.array(new)), self._state)

    def _first_within(self, rows: pa.Table, state: View, within: int) -> tuple[Ints, pa.Table]:
        groups = self._groups(rows)
        times = int_values(plain(rows[TIME]))
        arrivals = np.lexsort((times, groups))
        groups, times = groups[arrivals], times[arrivals]
        free = ~self._near_a_pass(rows, groups, times, arrivals, state)
        groups, times, arrivals = groups[free], times[free], arrivals[free]
        passes = passing(groups, times, arrivals, within)
        passed, at = arrivals[passes], times[passes]
        gained = self._state_rows(rows, passed, at // (within + 1))
        gained = gained.append_column(PASSED, pa.array(at))
        return _ascending(passed, rows.num_rows), combine(gained, self._state)

    def _near_a_pass(
        self, rows: pa.Table, groups: Ints, times: Ints, arrivals: Ints, state: View
    ) -> NDArray[np.bool_]:
        """Whether the state has a pass near each row; looked up once per key and cell."""
        within = self.spec.within or 0
        cells = times // (within + 1)
        new = np.ones(len(cells), np.bool_)
        new[1:] = (groups[1:] != groups[:-1]) | (cells[1:] != cells[:-1])
        asked, asker = np.flatnonzero(new), np.cumsum(new) - 1
        near = np.zeros(len(times), np.bool_)
        for beside in (-1, 0, 1) if within else (0,):
            wanted = self._state_rows(rows, arrivals[asked], cells[asked] + beside)
            found, values = state.lookup(wanted)
            if found.any():
                at = plain(values[PASSED].fill_null(0)).to_numpy()[asker]
                # Neighbouring cells: the distance is below 2 × (within + 1), no overflow.
                near |= found[asker] & (np.abs(times - at) <= within)
        return near

    def _groups(self, rows: pa.Table) -> Ints:
        """The number of the key of each row."""
        count = rows.num_rows
        by_key, starts, _ = self._by_key(rows)
        numbers = np.repeat(np.arange(len(starts)), np.diff(starts, append=count))
        if by_key is None:
            return numbers
        groups = np.empty(count, np.int64)
        groups[by_key] = numbers
        return groups

    def _by_key(self, rows: pa.Table) -> tuple[Ints | None, Ints, list[pa.Array]]:
        """The rows sorted by key, then origin; in the form of `arrange`."""
        return arrange(np.zeros(rows.num_rows, np.int64), hashes_of(rows), self._keys(rows))

    def _keys(self, rows: pa.Table) -> list[pa.Array]:
        return [plain(rows[name]) for name in self.spec.by]

    def _state_rows(self, rows: pa.Table, places: Ints, orders: Ints) -> pa.Table:
        taken = rows.select([HASH, *self.spec.by]).take(pa.array(places))
        return taken.add_column(0, ORDER, pa.array(orders))

    def _floor(self, watermark: int) -> int | None:
        """The first cell in which a pass can still be near a row that is not late."""
        if self.spec.within is None:
            return None
        if watermark == END_OF_TIME:
            return END_OF_TIME
        return max(MIN_TIME, (watermark - 2 * self.spec.within) // (self.spec.within + 1))

    def _results(self, rows: pa.Table, passed: Ints) -> Iterator[pa.Table]:
        each = max(1, rows.num_rows * CHUNK_BYTES // max(1, rows.nbytes))
        for first in range(0, len(passed), each):
            places = passed[first : first + each]
            chunk = rows.take(pa.array(places))
            times = chunk[TIME] if TIME in chunk.column_names else pa.nulls(len(places), pa.int64())
            signs = pa.array(np.ones(len(places), np.int8))
            chunk = chunk.select(self._output.names)
            yield chunk.append_column(TIME, times).append_column(SIGN, signs)


def _are_few(rows: int, different: float) -> bool:
    """Whether there are too few repeats to drop them before the shuffle."""
    return (rows - different) * FEW_REPEATS < rows


def _about_different(hashes: NDArray[np.uint64]) -> float:
    """The approximate number of distinct hashes, from the number of slots their top bits occupy.

    With m slots n different hashes leave m × exp(-n / m) of them empty.
    """
    bits = max(4, (len(hashes) * _SLOTS).bit_length())
    taken = np.zeros(1 << bits, np.bool_)
    taken[hashes >> np.uint64(64 - bits)] = True
    empty = taken.size - int(np.count_nonzero(taken))
    return float(taken.size * np.log(taken.size / max(1, empty)))


def _ascending(places: Ints, count: int) -> Ints:
    """Distinct indices of so many rows, ascending."""
    there = np.zeros(count, np.bool_)
    there[places] = True
    return np.flatnonzero(there)


def _engine_columns(rows: pa.Table) -> list[str]:
    return [name for name in (TIME, *ORIGIN) if name in rows.column_names]


def _in_origin_order(rows: pa.Table) -> pa.Table:
    """The rows by (source, partition, offset, sub-index)."""
    order = by_columns([int_values(plain(rows[name])) for name in ORIGIN])
    return rows if order is None else rows.take(pa.array(order))


def _require_no_retraction(rows: pa.Table) -> None:
    if SIGN in rows.column_names and not (int_values(plain(rows[SIGN])) == 1).all():
        raise InvalidSpec(
            "distinct needs rows that are never retracted",
            got="a correction from the previous step",
            do="leave out `keep` in the .late(…) of that step",
        )
