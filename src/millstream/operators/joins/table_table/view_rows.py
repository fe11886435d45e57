"""Rows of a view of two tables: products of rows of both sides, or unmatched rows of one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.operators.joins.result_columns import LEFT, RIGHT
from millstream.state.arrays.numpy_columns import in_chunks
from millstream.state.row_columns import ORIGIN, ORIGIN_FIELDS, SIGN, TIME

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from millstream.operators.joins.on import Pairs
    from millstream.operators.joins.result_columns import Column
    from millstream.operators.joins.table_table.sides import TableSide

    Ints = NDArray[np.int64]
    Mask = NDArray[np.bool_]

STAMPS = (TIME, *ORIGIN)
CHUNK_BYTES = 32 << 20


@dataclass(frozen=True)
class Some:
    """Rows of one side, sorted by key: the number of each row's key, and its time and origin.

    `stamps` are None for rows of state; `whole` marks rows that have a key.
    """

    rows: pa.Table
    groups: Ints
    whole: Mask
    stamps: pa.Table | None = None

    @classmethod
    def of(
        cls,
        rows: pa.Table,
        groups: Ints,
        whole: Mask | None = None,
        stamps: pa.Table | None = None,
    ) -> Some:
        """The rows, sorted by the number of their key."""
        order = np.argsort(groups, kind="stable")
        taken = pa.array(order)
        return cls(
            rows.take(taken),
            groups[order],
            np.ones(len(order), np.bool_) if whole is None else whole[order],
            None if stamps is None else stamps.take(taken),
        )

    def filter(self, which: Mask) -> Some:
        """The selected rows."""
        mask = pa.array(which)
        stamps = None if self.stamps is None else self.stamps.filter(mask)
        return Some(self.rows.filter(mask), self.groups[which], self.whole[which], stamps)

    def caused_by(self, *causes: Some) -> Some:
        """The rows with the stamps of the last of the changed rows of their key."""
        groups = np.concatenate([cause.groups for cause in causes])
        stamps = pa.concat_tables([cause.stamps for cause in causes if cause.stamps is not None])
        order = np.argsort(groups, kind="stable")
        last = np.searchsorted(groups[order], self.groups, side="right") - 1
        return replace(self, stamps=stamps.take(pa.array(order[last])))


class ViewRows:
    """The columns of the left, then those of the right; a key with the same name once."""

    def __init__(self, sides: Sequence[TableSide], columns: Sequence[Column], on: Pairs) -> None:
        self._columns = columns
        self._shared = {ours for ours, theirs in on if ours == theirs}
        self._types = {name: sides[side].columns[own] for name, side, own in columns}
        for name in self._shared:
            if self._types[name] != sides[RIGHT].columns[name]:
                self._types[name] = sides[LEFT].spec.keys.field(name).type
        fields = [pa.field(name, kind) for name, kind in self._types.items()]
        self.schema = pa.schema([*fields, *ORIGIN_FIELDS])

    def products(self, sign: int, left: Some, right: Some, *, cause: int) -> Iterator[pa.Table]:
        """Every row of the left with every row of the right of the same key, in chunks.

        The stamps are those of the side `cause`.
        """
        if left.rows.num_rows == 0 or right.rows.num_rows == 0:
            return
        first, last = (np.searchsorted(right.groups, left.groups, side)
                       for side in ("left", "right"))  # fmt: skip
        lengths = np.where(left.whole, last - first, 0)
        stamps = (left, right)[cause].stamps
        assert stamps is not None
        for ours, theirs in in_chunks(first, lengths, self._each(left.rows, right.rows)):
            taken = pa.array(ours), pa.array(theirs)
            yield self._made(
                sign, left.rows.take(taken[LEFT]), right.rows.take(taken[RIGHT]),
                stamps.take(taken[cause]),
            )  # fmt: skip

    def alone(self, sign: int, side: int, some: Some) -> Iterator[pa.Table]:
        """Rows of one side, with nulls for the other, in chunks."""
        each = self._each(some.rows)
        for first in range(0, some.rows.num_rows, each):
            assert some.stamps is not None
            rows, stamps = some.rows.slice(first, each), some.stamps.slice(first, each)
            left, right = (rows, None) if side == LEFT else (None, rows)
            yield self._made(sign, left, right, stamps)

    def _each(self, *tables: pa.Table) -> int:
        width = sum(table.nbytes / table.num_rows for table in tables if table.num_rows)
        return max(1, int(CHUNK_BYTES / (width + 40)))

    def _made(
        self, sign: int, left: pa.Table | None, right: pa.Table | None, stamps: pa.Table
    ) -> pa.Table:
        count = stamps.num_rows
        columns = {}
        for name, side, own in self._columns:
            rows = left if side == LEFT else right
            if rows is None and name in self._shared:
                rows = right
            kind = self._types[name]
            columns[name] = pa.nulls(count, kind) if rows is None else rows[own].cast(kind)
        return pa.table(
            {
                **columns,
                **{name: stamps[name] for name in STAMPS},
                SIGN: pa.array(np.full(count, sign, np.int8)),
            }
        )
