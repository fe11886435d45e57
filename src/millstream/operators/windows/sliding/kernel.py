"""Sliding windows over Arrow: for each row, the rows of its key in the time up to it.

Rows of one key and time have the same window, so they are aggregated before the shuffle. They
are stored under their time until the watermark is beyond it; then their result is final.
Emitted rows are kept for later windows in time cells, of which only the needed keys are read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.errors import InvalidSpec
from millstream.event_time.batch_time import END_OF_TIME, MIN_TIME
from millstream.operators.aggregates.parts import ROWS
from millstream.operators.kernel import Outcome, Prepared
from millstream.operators.lateness import part_late
from millstream.operators.windows.folding import folded
from millstream.operators.windows.lifted import CHUNK_BYTES, Lifted
from millstream.state.arrays.numpy_columns import int_values, plain, spans_to_rows
from millstream.state.combine import combine, conform
from millstream.state.row_columns import SIGN, TIME
from millstream.state.runs.lookup import together
from millstream.state.runs.search import lower_bound
from millstream.state.sorting import orders_of
from millstream.state.spec import GONE, HASH, ORDER, StateSpec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from millstream.event_time.batch_time import BatchTime
    from millstream.operators.aggregates.functions import Aggregate
    from millstream.operators.windows.sliding.spec import Sliding
    from millstream.state.runs.view import View

    Ints = NDArray[np.int64]

WAITING, PAST = "waiting", "past"
AT = "_at"
_CELLS = 4
_SIGN_BIT = np.uint64(1 << 63)


class SlidingKernel:
    """Aggregates per row over the rows of its key in (t - size, t], its own time t included.

    A row is late when its time is behind the watermark; at the watermark it is on time.
    Results are keys, `window_start` (t - size), `window_end` (t) and the aggregates.

    State: rows that wait for the watermark; emitted rows, until no on-time row can reach them.
    Both are aggregated per key and time.
    Emits: one result per row, when the watermark is beyond its time, in order of (hash of
    the keys, time), with the event time t. Rows of one key and time get equal results. With
    `retractable` a row may be retracted until it is emitted; after that it is late.
    """

    def __init__(
        self,
        spec: Sliding,
        keys: Sequence[str],
        aggregates: Mapping[str, Aggregate],
        input_schema: pa.Schema,
        *,
        retractable: bool = False,
        panes: bool = False,
    ) -> None:
        self.spec = spec
        self._lifted = Lifted(
            keys, aggregates, input_schema, spanning=False, retractable=retractable, panes=panes
        )
        self._cell = max(1, spec.size // _CELLS)
        fields = self._lifted.key_fields
        self._waiting = StateSpec(keys=pa.schema(fields), values=self._lifted.values)
        self._past = StateSpec(
            keys=pa.schema([*fields, pa.field(AT, pa.int64())]), values=self._lifted.values
        )

    @property
    def tables(self) -> dict[str, StateSpec]:
        """Waiting rows by time, and emitted rows by time cell."""
        return {WAITING: self._waiting, PAST: self._past}

    def output(self) -> pa.Schema:
        """Keys, `window_start`, `window_end`, the aggregates, the pane columns."""
        return self._lifted.output

    def due(self, watermark: int) -> int:
        """Rows before the watermark are emitted."""
        return watermark

    def prepare(self, rows: pa.Table, batch_time: BatchTime, side: int = 0) -> Prepared:
        """Separate the late rows; aggregate the others to one row per key and time."""
        _require_time(rows)
        rows, times, late = part_late(rows, batch_time.before)
        lifted = {ORDER: pa.array(times), **self._lifted.lift(rows, _signs(rows))}
        exchange = combine(pa.table(lifted), self._waiting).drop_columns([GONE])
        return Prepared(exchange, late)

    def run(
        self, sides: Sequence[Sequence[pa.Table]], state: Mapping[str, View], batch_time: BatchTime
    ) -> Outcome:
        """Emit the results of rows before `batch_time.after`, keep the others waiting.

        `held` is the end of time: rows emitted later are at or after `batch_time.after`.
        """
        empty = self._waiting.visible.empty_table()
        batch = combine(pa.concat_tables([empty, *sides[0]]), self._waiting)
        ending = batch_time.after == END_OF_TIME
        count = batch.num_rows
        if not ending:
            count = int(np.searchsorted(orders_of(batch), batch_time.after, side="left"))
        waited = state[WAITING].scan(MIN_TIME, None if ending else batch_time.after)
        pieces = together(batch.slice(0, count), waited, self._waiting)
        leaving = pa.concat_tables([empty, *pieces])
        return Outcome(
            self._results(leaving, state[PAST], batch_time),
            deltas={WAITING: batch.slice(count), PAST: self._remembered(leaving, batch_time)},
            floors={WAITING: batch_time.after, PAST: self._cell_of(self._reach(batch_time.after))},
        )

    def _results(self, leaving: pa.Table, past: View, batch_time: BatchTime) -> Iterator[pa.Table]:
        if leaving.num_rows == 0:
            return
        before = self._before(leaving, past, batch_time)
        rows = pa.concat_tables([before, self._timed(leaving)])
        places, starts = self._lifted.by_key(rows)
        rows = rows.take(pa.array(places))
        counts = int_values(plain(rows[ROWS]))
        asking = np.flatnonzero((places >= before.num_rows) & (counts > 0))
        times = int_values(plain(rows[AT]))
        lows = self._first_inside(times, starts, asking)
        for spans, values in folded(rows, self._past.values, starts, lows, asking + 1):
            asked = asking[spans]
            made = self._lifted.keyed(rows, asked, values)
            yield from self._answers(made, times[asked], counts[asked])

    def _answers(self, windows: pa.Table, times: Ints, counts: Ints) -> Iterator[pa.Table]:
        """The results of windows, one per row of the input, in pieces of bounded size."""
        starts = np.where(times < MIN_TIME + self.spec.size, MIN_TIME, times - self.spec.size)
        made = self._lifted.answer(windows, pa.array(starts), pa.array(times))
        if made.num_rows == 0:
            return
        each = max(1, made.num_rows * CHUNK_BYTES // max(1, made.nbytes))
        upto = np.cumsum(counts)
        for first in range(0, int(upto[-1]), each):
            wanted = np.arange(first, min(first + each, int(upto[-1])))
            yield made.take(pa.array(np.searchsorted(upto, wanted, side="right")))

    def _before(self, leaving: pa.Table, past: View, batch_time: BatchTime) -> pa.Table:
        """Earlier emitted rows within reach of those emitted now, by key and time."""
        order, starts = self._lifted.by_key(leaving)
        earliest = orders_of(leaving)[order][starts]
        cells = self._cells_of(self._reaches(earliest))
        last = MIN_TIME if batch_time.before == MIN_TIME else self._cell_of(batch_time.before - 1)
        counts = np.where(cells > last, 0, last - np.minimum(cells, last) + 1)
        asked, of = spans_to_rows(cells, counts)
        if batch_time.before == MIN_TIME or len(asked) == 0:
            return self._past.schema.empty_table()
        wanted = leaving.select([HASH, *self._lifted.keys]).take(pa.array(order[starts][of]))
        return conform(past.find(wanted.add_column(0, ORDER, pa.array(asked))), self._past)

    def _timed(self, leaving: pa.Table) -> pa.Table:
        """Emitted rows as they are stored: under the cell of their time."""
        times = orders_of(leaving)
        cells = pa.array(self._cells_of(times))
        return conform(leaving.set_column(0, ORDER, cells).append_column(AT, pa.array(times)),
                       self._past)  # fmt: skip

    def _remembered(self, leaving: pa.Table, batch_time: BatchTime) -> pa.Table:
        """The rows emitted now that later rows can reach."""
        if batch_time.after == END_OF_TIME:
            return self._past.schema.empty_table()
        first = int(np.searchsorted(orders_of(leaving), self._reach(batch_time.after), side="left"))
        return combine(self._timed(leaving.slice(first)), self._past)

    def _first_inside(self, times: Ints, starts: Ints, asking: Ints) -> Ints:
        """For each `asking` row, the first row of its key that is less than the size before it."""
        keys = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(times)))
        reached = _sortable(self._reaches(times[asking]))
        return lower_bound(keys, _sortable(times), keys[asking], reached)

    def _reaches(self, times: Ints) -> Ints:
        """The first time inside the window of each time."""
        return np.where(times < MIN_TIME + self.spec.size, MIN_TIME, times - self.spec.size + 1)

    def _reach(self, time: int) -> int:
        """The first time inside the window of a time; none for the end of time."""
        if time == END_OF_TIME:
            return END_OF_TIME
        return max(MIN_TIME, time - self.spec.size + 1)

    def _cells_of(self, times: Ints) -> Ints:
        return times // self._cell

    def _cell_of(self, time: int) -> int:
        return END_OF_TIME if time == END_OF_TIME else time // self._cell


def _sortable(times: Ints) -> NDArray[np.uint64]:
    """Unsigned words that sort like the signed times."""
    return times.view(np.uint64) ^ _SIGN_BIT


def _signs(rows: pa.Table) -> Ints | None:
    """The signs of rows; None if no row is retracted."""
    if SIGN not in rows.column_names:
        return None
    signs = int_values(plain(rows[SIGN]))
    return None if (signs == 1).all() else signs


def _require_time(rows: pa.Table) -> None:
    if TIME not in rows.column_names:
        raise InvalidSpec(
            "sliding needs rows with an event time",
            got="a stream without one",
            do="give read(…) a time=",
        )
