"""Order over Arrow: rows wait under their time, and leave when the watermark has passed it.

State is ordered by time, so what may leave is a prefix of every run. A row's bucket follows
from its time, so rows of the same time meet in one place, where their order of origin is
known: the place among them is the last part of the origin that they leave with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.errors import InvalidSpec
from millstream.eventtime.moment import END_OF_TIME, MIN_TIME
from millstream.state.columns import int_values, plain
from millstream.state.combine import combine, conform
from millstream.state.hashing import hash_keys
from millstream.state.meeting import together
from millstream.state.sorting import orders_of
from millstream.state.spec import GONE, HASH, ORDER, StateColumn, StateSpec
from millstream.steps.kernel import ROWS, Outcome, Prepared

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from millstream.eventtime.moment import Moment
    from millstream.state.view import View
    from millstream.steps.ordered import Ordered

    Ints = NDArray[np.int64]

TIME, SIGN = "_time", "_sign"
ORIGIN = {
    "_source": pa.int32(),
    "_partition": pa.int32(),
    "_offset": pa.int64(),
    "_sub": pa.int64(),
}
FLOW = -1  # the source of rows that a step made
CHUNK_BYTES = 64 << 20


class OrderedKernel:
    """Holds each row until the watermark is beyond its time, then gives rows in order of time.

    A row is late when its time is behind the watermark; at the watermark it is on time.
    Rows leave with an origin of their own: source -1, partition 0, offset = their time, sub =
    their place, by origin, among the rows of that time. All rows of one time leave in one
    batch, so it is the same under any cut and in every lane, and whatever takes rows in order
    of origin afterwards takes them in order of event time.

    State: each row that waits, until it leaves.
    Emits: each row as it came, in order of (time, origin) within a range of buckets.
    """

    def __init__(self, spec: Ordered, input_schema: pa.Schema) -> None:
        self.spec = spec
        self._columns = [field for field in input_schema if field.name not in ORIGIN]
        self._origin = [pa.field(name, kind) for name, kind in ORIGIN.items()]
        self._state = StateSpec(
            keys=pa.schema(self._origin),
            values=tuple(StateColumn(f.name, f.type, "first") for f in self._columns),
        )

    @property
    def tables(self) -> dict[str, StateSpec]:
        """The rows that wait, by their time."""
        return {ROWS: self._state}

    def output(self) -> pa.Schema:
        """The columns of the input, with the origin the rows leave with."""
        return pa.schema([*self._columns, *self._origin])

    def due(self, watermark: int) -> int:
        """Rows before the watermark leave."""
        return watermark

    def prepare(self, rows: pa.Table, moment: Moment, side: int = 0) -> Prepared:
        """Part the late rows; the others go to the bucket of their time."""
        _require_time(rows)
        _require_no_retraction(rows)
        times = int_values(plain(rows[TIME]))
        gone = times < moment.before
        if moment.before == END_OF_TIME:
            gone[:] = True
        late = np.flatnonzero(gone)
        if len(late):
            kept = np.flatnonzero(~gone)
            rows, times = rows.take(pa.array(kept)), times[kept]
        exchange = {
            ORDER: pa.array(times),
            HASH: pa.array(hash_keys([pa.array(times)], len(times))),
            **{name: rows[name] for name in self.output().names},
        }
        return Prepared(conform(pa.table(exchange), self._state).drop_columns([GONE]), late)

    def run(
        self, sides: Sequence[Sequence[pa.Table]], state: Mapping[str, View], moment: Moment
    ) -> Outcome:
        """Let out what is before `moment.after`, keep the rest.

        `held` is the end of time: what leaves later is at or after `moment.after`.
        """
        empty = self._state.visible.empty_table()
        batch = combine(pa.concat_tables([empty, *sides[0]]), self._state)
        ending = moment.after == END_OF_TIME
        leaving = batch.num_rows
        if not ending:
            leaving = int(np.searchsorted(orders_of(batch), moment.after, side="left"))
        waiting = state[ROWS].scan(MIN_TIME, None if ending else moment.after)
        return Outcome(
            self._results(together(batch.slice(0, leaving), waiting, self._state)),
            deltas={ROWS: batch.slice(leaving)},
            floors={ROWS: moment.after},
        )

    def _results(self, pieces: Iterator[pa.Table]) -> Iterator[pa.Table]:
        for piece in pieces:
            places = _places(orders_of(piece))
            each = max(1, piece.num_rows * CHUNK_BYTES // max(1, piece.nbytes))
            for first in range(0, piece.num_rows, each):
                yield self._result(piece.slice(first, each), places[first : first + each])

    def _result(self, rows: pa.Table, places: Ints) -> pa.Table:
        count = rows.num_rows
        return pa.table(
            {
                **{field.name: rows[field.name] for field in self._columns},
                "_source": pa.array(np.full(count, FLOW, np.int32)),
                "_partition": pa.array(np.zeros(count, np.int32)),
                "_offset": rows[ORDER],
                "_sub": pa.array(places),
                TIME: rows[ORDER],
                SIGN: pa.array(np.ones(count, np.int8)),
            }
        )


def _places(times: Ints) -> Ints:
    """The place of each row among those of its time, of sorted times."""
    rows = np.arange(len(times), dtype=np.int64)
    new = np.ones(len(times), np.bool_)
    new[1:] = times[1:] != times[:-1]
    firsts = np.flatnonzero(new)
    return rows - np.repeat(firsts, np.diff(firsts, append=len(times)))


def _require_time(rows: pa.Table) -> None:
    if TIME not in rows.column_names:
        raise InvalidSpec(
            "ordered needs rows with an event time",
            got="a stream without one",
            do="give read(…) a time=",
        )


def _require_no_retraction(rows: pa.Table) -> None:
    if SIGN in rows.column_names and not (int_values(plain(rows[SIGN])) == 1).all():
        raise InvalidSpec(
            "ordered needs rows that are never taken back",
            got="a correction from the step before it",
            do="leave out `keep` in the .late(…) of that step",
        )
