"""Pairs as result rows of a join: the columns of both sides, with time and origin."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.operators.joins.result_columns import EVENT_TIME, LEFT
from millstream.operators.joins.sides import AT, MARK
from millstream.operators.waiting import FLOW
from millstream.state.arrays.numpy_columns import int_values, plain
from millstream.state.keys.xxhash import hash_longs
from millstream.state.row_columns import ORIGIN_FIELDS, SIGN, TIME

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from millstream.operators.joins.on import Pairs
    from millstream.operators.joins.result_columns import Column
    from millstream.operators.joins.sides import Side

    Ints = NDArray[np.int64]

CHUNK_BYTES = 32 << 20
_ENGINE_BYTES = 40
_STAMP = pa.timestamp("us", "UTC")


class Results:
    """Builds result rows: the chosen columns, the later time, an origin derived from both origins.

    If `timed`, the later time is also in a column `event_time`.
    """

    def __init__(
        self,
        sides: Sequence[Side],
        columns: Sequence[Column],
        on: Pairs,
        *,
        timed: bool,
    ) -> None:
        self._columns, self._timed = columns, timed
        self._types = {name: sides[side].columns[own] for name, side, own in columns}
        self._shared = {left for left, right in on if left == right}
        for name, wide in zip(sides[LEFT].keys, sides[LEFT].key_types, strict=True):
            if name in self._shared and self._types[name] != sides[1].columns[name]:
                self._types[name] = wide
        fields = [pa.field(name, kind) for name, kind in self._types.items()]
        fields += [pa.field(EVENT_TIME, _STAMP)] if timed else []
        self.schema = pa.schema([*fields, *ORIGIN_FIELDS])

    def each(self, *tables: pa.Table) -> int:
        """The number of pairs of such rows per chunk."""
        sizes = [table.nbytes / table.num_rows for table in tables if table.num_rows]
        return max(1, int(CHUNK_BYTES / (sum(sizes) + _ENGINE_BYTES)))

    def alone(self, side: int, rows: pa.Table) -> Iterator[pa.Table]:
        """Unmatched rows of one side, in chunks."""
        each = self.each(rows)
        for first in range(0, rows.num_rows, each):
            part = rows.slice(first, each)
            yield self.made(part, None) if side == LEFT else self.made(None, part)

    def made(self, left: pa.Table | None, right: pa.Table | None) -> pa.Table:
        """One result per index: from both sides, or from one where the other is NOWHERE."""
        present = [rows for rows in (left, right) if rows is not None]
        count = present[0].num_rows
        times = np.maximum.reduce([int_values(plain(rows[AT])) for rows in present])
        columns = {column.name: self._column(column, (left, right), count)
                   for column in self._columns}  # fmt: skip
        stamps = pa.array(times) if self._timed else pa.nulls(count, pa.int64())
        return pa.table(
            {
                **columns,
                **({EVENT_TIME: stamps.cast(_STAMP)} if self._timed else {}),
                "_source": pa.array(np.full(count, FLOW, np.int32)),
                "_partition": pa.array(np.zeros(count, np.int32)),
                "_offset": pa.array(times),
                "_sub": pa.array(_both(left, right)),
                TIME: stamps,
                SIGN: pa.array(np.ones(count, np.int8)),
            }
        )

    def _column(
        self, column: Column, rows: tuple[pa.Table | None, pa.Table | None], count: int
    ) -> pa.Array | pa.ChunkedArray:
        name, side, own = column
        kind = self._types[name]
        found = rows[side]
        if found is None and side == LEFT and name in self._shared:
            found = rows[1]
        if found is None:
            return pa.nulls(count, kind)
        return found[own] if found[own].type == kind else found[own].cast(kind)


def _both(left: pa.Table | None, right: pa.Table | None) -> Ints:
    """A number for each pair, derived from both origins."""
    marks = [_marks(rows) for rows in (left, right) if rows is not None]
    whole = marks[0] if len(marks) == 1 else hash_longs(marks[0].view(np.int64), marks[1])
    return whole.view(np.int64)


def _marks(rows: pa.Table) -> NDArray[np.uint64]:
    """The marks of rows, as `Side.shown` adds them."""
    return np.asarray(rows[MARK].to_numpy())
