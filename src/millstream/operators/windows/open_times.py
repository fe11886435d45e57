"""How far back an open window may still emit: the largest time inside, per key.

A window of rows has the event time of its latest row, and may be emitted long after it. Later
steps must not close before that: the output watermark waits for the smallest of these times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.event_time.batch_time import END_OF_TIME, MIN_TIME
from millstream.state.combine import combine, conform, without_tombstones
from millstream.state.runs.lookup import meeting
from millstream.state.sorting import orders_of
from millstream.state.spec import GONE, HASH, ORDER, StateSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from millstream.state.runs.view import View

TIMES = "times"
NO_TIME = END_OF_TIME
_PIECE_BYTES = 1 << 20


class OpenTimes:
    """The table of times, ordered by time: one row per key with an open window.

    `NO_TIME` means a key without one.
    """

    def __init__(self, key_fields: Sequence[pa.Field]) -> None:
        self.spec = StateSpec(keys=pa.schema(key_fields), values=())

    def moved(
        self, keys: pa.Table, before: NDArray[np.int64], after: NDArray[np.int64]
    ) -> pa.Table:
        """The delta of the table when each key's time changes from `before` to `after`."""
        left = np.flatnonzero((before != after) & (before != NO_TIME))
        come = np.flatnonzero((before != after) & (after != NO_TIME))
        return self._gained(
            [
                self._rows(keys.take(pa.array(left)), before[left], gone=True),
                self._rows(keys.take(pa.array(come)), after[come], gone=False),
            ]
        )

    def reset(self, view: View, keys: pa.Table, times: NDArray[np.int64]) -> pa.Table:
        """The delta of the table when all windows close and these keys open new ones."""
        come = np.flatnonzero(times != NO_TIME)
        forgotten = [
            self._rows(piece.drop_columns([ORDER]), orders_of(piece), gone=True)
            for piece in view.scan(MIN_TIME, None)
        ]
        opened = self._rows(keys.take(pa.array(come)), times[come], gone=False)
        return self._gained([*forgotten, opened])

    def earliest(self, view: View, gained: pa.Table) -> int:
        """The smallest time in the table and this batch's delta; `NO_TIME` if there is none."""
        pieces = view.scan(MIN_TIME, None, max_bytes=_PIECE_BYTES)
        for piece, part in meeting(gained, pieces):
            both = part
            if piece is not None:
                both = combine(pa.concat_tables([conform(piece, self.spec), part]), self.spec)
            alive = without_tombstones(both)
            if alive.num_rows:
                return int(orders_of(alive)[0])
        return NO_TIME

    def _rows(self, keys: pa.Table, times: NDArray[np.int64], *, gone: bool) -> pa.Table:
        names = [HASH, *self.spec.key_names]
        table = keys.select(names).add_column(0, ORDER, pa.array(times))
        return table.append_column(GONE, pa.array(np.full(len(times), gone)))

    def _gained(self, tables: Sequence[pa.Table]) -> pa.Table:
        return combine(pa.concat_tables([conform(t, self.spec) for t in tables]), self.spec)
