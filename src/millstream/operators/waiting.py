"""Rows that wait in state, ordered by time, until the watermark has passed them.

State is ordered by time, so the rows to emit are a prefix of every run. A row's bucket depends
on its time, so rows of the same time are in one bucket. An emitted row gets an origin of its time
and its index among the rows of that time, which is the same for any batches and in every lane.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.errors import InvalidSpec
from millstream.event_time.batch_time import END_OF_TIME, MIN_TIME
from millstream.operators.lateness import part_late
from millstream.state.arrays.numpy_columns import int_values, plain
from millstream.state.combine import conform
from millstream.state.keys.hashing import hash_keys
from millstream.state.row_columns import ORIGIN, ORIGIN_FIELDS, SIGN, TIME
from millstream.state.runs.lookup import together
from millstream.state.sorting import arrange, hashes_of, orders_of
from millstream.state.spec import HASH, ORDER, StateColumn, StateSpec

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from millstream.event_time.batch_time import BatchTime
    from millstream.state.runs.view import View

    Ints = NDArray[np.int64]

FLOW = -1  # the source of rows emitted by a step: several may have the same origin
TWIN = "_twin"
CHUNK_BYTES = 64 << 20


class Waiting:
    """The waiting rows of a step: stored whole, and emitted by time.

    `step` is its name in the API, for error messages.
    """

    def __init__(self, step: str, input_schema: pa.Schema) -> None:
        self._step = step
        self.columns = [field for field in input_schema if field.name not in ORIGIN]
        self.output = pa.schema([*self.columns, *ORIGIN_FIELDS])
        self.spec = StateSpec(
            keys=pa.schema([*ORIGIN_FIELDS, pa.field(TWIN, pa.int64())]),
            values=tuple(StateColumn(f.name, f.type, "first") for f in self.columns),
        )

    def parted(self, rows: pa.Table, batch_time: BatchTime) -> tuple[pa.Table, Ints]:
        """The on-time rows for the bucket of their time, and the indices of the late ones.

        A row is late when its time is behind the watermark; at the watermark it is on time.
        """
        self._require_time(rows)
        self._require_no_retraction(rows)
        rows, times, late = part_late(rows, batch_time.before)
        exchange = {
            ORDER: pa.array(times),
            HASH: pa.array(hash_keys([pa.array(times)], len(times))),
            **{name: rows[name] for name in self.output.names},
        }
        return pa.table(exchange), late

    def numbered(self, tables: Sequence[pa.Table], view: View) -> pa.Table:
        """The batch in the order of state; rows of one origin are numbered in order of arrival."""
        if not any(table.num_rows for table in tables):
            return self.spec.schema.empty_table()
        rows = pa.concat_tables(tables)
        origins = [plain(rows[name]) for name in ORIGIN]
        order, starts, _ = arrange(orders_of(rows), hashes_of(rows), origins)
        if order is not None:
            rows = rows.take(pa.array(order))
        counts = np.diff(starts, append=rows.num_rows)
        twins = np.arange(rows.num_rows) - np.repeat(starts, counts)
        firsts = rows.take(pa.array(starts))
        made = np.flatnonzero(int_values(plain(firsts["_source"])) == FLOW)
        if len(made):
            wanted = firsts.select([ORDER, HASH, *ORIGIN]).take(pa.array(made))
            waiting = view.find(wanted)
            next_twin = np.zeros(len(starts), np.int64)
            known = int_values(plain(waiting[TWIN]))
            np.maximum.at(next_twin, made[orders_of(waiting)], known + 1)
            twins += np.repeat(next_twin, counts)
        return conform(rows.append_column(TWIN, pa.array(twins)), self.spec)

    def leaving(
        self, batch: pa.Table, view: View, after: int
    ) -> tuple[Iterator[pa.Table], pa.Table]:
        """The rows to emit at a watermark, in pieces by (time, origin), and the rows to keep.

        All rows of one time are in one piece.
        """
        ending = after == END_OF_TIME
        count = batch.num_rows
        if not ending:
            count = int(np.searchsorted(orders_of(batch), after, side="left"))
        waited = view.scan(MIN_TIME, None if ending else after)
        return together(batch.slice(0, count), waited, self.spec), batch.slice(count)

    def results(self, rows: pa.Table) -> Iterator[pa.Table]:
        """Rows as results, in pieces of bounded size, with a new origin.

        They must be sorted by time, and contain all emitted rows of each time.
        """
        if rows.num_rows == 0:
            return
        places = _places(orders_of(rows))
        each = max(1, rows.num_rows * CHUNK_BYTES // max(1, rows.nbytes))
        for first in range(0, rows.num_rows, each):
            yield self._result(rows.slice(first, each), places[first : first + each])

    def _result(self, rows: pa.Table, places: Ints) -> pa.Table:
        count = rows.num_rows
        return pa.table(
            {
                **{field.name: rows[field.name] for field in self.columns},
                "_source": pa.array(np.full(count, FLOW, np.int32)),
                "_partition": pa.array(np.zeros(count, np.int32)),
                "_offset": rows[ORDER],
                "_sub": pa.array(places),
                TIME: rows[ORDER],
                SIGN: pa.array(np.ones(count, np.int8)),
            }
        )

    def _require_time(self, rows: pa.Table) -> None:
        if TIME not in rows.column_names:
            raise InvalidSpec(
                f"{self._step} needs rows with an event time",
                got="a stream without one",
                do="give read(…) a time=",
            )

    def _require_no_retraction(self, rows: pa.Table) -> None:
        if SIGN in rows.column_names and not (int_values(plain(rows[SIGN])) == 1).all():
            raise InvalidSpec(
                f"{self._step} needs rows that are never retracted",
                got="a correction from the previous step",
                do="leave out `keep` in the .late(…) of that step",
            )


def _places(times: Ints) -> Ints:
    """The index of each row among those of its time, for sorted times."""
    new = np.ones(len(times), np.bool_)
    new[1:] = times[1:] != times[:-1]
    firsts = np.flatnonzero(new)
    return np.arange(len(times)) - np.repeat(firsts, np.diff(firsts, append=len(times)))
