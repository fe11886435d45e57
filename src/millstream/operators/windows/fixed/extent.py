"""Which windows rows belong to and when they end, for windows with fixed bounds.

`Laid` windows are on a grid; the window over `Whole` has no bounds. Groups are ordered by the
number of their window.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa

from millstream.event_time.batch_time import END_OF_TIME, MIN_TIME
from millstream.operators.aggregates.aggregation import BOUND
from millstream.operators.aggregates.parts import Part
from millstream.operators.windows.fixed.hopping_kernel import parted, spread
from millstream.operators.windows.fixed.layout import NO_MORE, layout_of
from millstream.operators.windows.spec import Everything
from millstream.state.arrays.numpy_columns import int_values, plain
from millstream.state.sorting import orders_of
from millstream.state.spec import GONE, ORDER, StateColumn

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from millstream.operators.windows.fixed.layout import Layout
    from millstream.operators.windows.spec import Hopping, Tumbling

    Ints = NDArray[np.int64]

LATEST = "_latest"


@dataclass(frozen=True, slots=True)
class Placed:
    """Rows that enter a window, with their order; and rows that are late for one."""

    rows: pa.Table
    orders: Ints
    late: Ints
    windows: pa.Array | None = None
    unplaced: int = 0


class Extent(Protocol):
    """The bounds of windows."""

    parts: tuple[Part, ...]
    moves: bool

    def placed(self, rows: pa.Table, before: int, keep: int) -> Placed:
        """Assign rows to windows, before the shuffle."""

    def entered(self, batch: pa.Table, opened: int) -> pa.Table:
        """Rows received through the shuffle, by window; only windows from `opened` on."""

    def first_open(self, watermark: int, keep: int = 0) -> int:
        """The first window that has not ended or is still kept."""

    def held(self, after: int) -> int:
        """The smallest event time of a window that may still be emitted on time."""

    def bounds(self, groups: pa.Table) -> tuple[pa.Array, pa.Array, pa.Array]:
        """Start, end and event time of each group's window; null where there is none."""


class Laid:
    """Tumbling and hopping windows."""

    parts: tuple[Part, ...] = ()
    moves = False

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def placed(self, rows: pa.Table, before: int, keep: int) -> Placed:
        ticks = self._layout.grid.ticks(int_values(plain(rows["_time"])))
        late, windows, enters, unplaced = parted(ticks, self._layout, before, keep)
        if enters is not None:
            rows, ticks = rows.take(pa.array(enters)), ticks[enters]
        return Placed(rows, ticks, late, windows, unplaced)

    def entered(self, batch: pa.Table, opened: int) -> pa.Table:
        rows, windows = spread(orders_of(batch), self._layout, opened, NO_MORE)
        moved = batch.take(pa.array(rows)).drop_columns([GONE])
        return moved.set_column(0, ORDER, pa.array(windows))

    def first_open(self, watermark: int, keep: int = 0) -> int:
        return self._layout.first_open(watermark, keep)

    def held(self, after: int) -> int:
        opened = self._layout.first_open(after)
        if opened == NO_MORE:
            return END_OF_TIME
        return int(self._layout.ends(np.array([opened], np.int64))[0]) - 1

    def bounds(self, groups: pa.Table) -> tuple[pa.Array, pa.Array, pa.Array]:
        windows = orders_of(groups)
        ends = self._layout.ends(windows)
        starts = pa.array(self._layout.starts(windows)).cast(BOUND)
        return starts, pa.array(ends).cast(BOUND), pa.array(ends - 1)


class Whole:
    """The single window over everything: no bounds, and it ends at the end of time."""

    moves = False

    def __init__(self, *, timed: bool) -> None:
        self.parts: tuple[Part, ...] = (_latest_part(),) if timed else ()

    def placed(self, rows: pa.Table, before: int, keep: int) -> Placed:
        if before == END_OF_TIME:
            late = np.arange(rows.num_rows, dtype=np.int64)
            return Placed(rows.slice(0, 0), late[:0], late)
        none = np.zeros(0, np.int64)
        return Placed(rows, np.zeros(rows.num_rows, np.int64), none)

    def entered(self, batch: pa.Table, opened: int) -> pa.Table:
        return batch.drop_columns([GONE])

    def first_open(self, watermark: int, keep: int = 0) -> int:
        return NO_MORE if watermark == END_OF_TIME else 0

    def held(self, after: int) -> int:
        return END_OF_TIME if after == END_OF_TIME else MIN_TIME

    def bounds(self, groups: pa.Table) -> tuple[pa.Array, pa.Array, pa.Array]:
        none = pa.nulls(groups.num_rows, BOUND)
        if not self.parts:
            return none, none, pa.nulls(groups.num_rows, pa.int64())
        return none, none, plain(groups[LATEST])


def extent_of(spec: Tumbling | Hopping | Everything, *, timed: bool) -> Laid | Whole:
    """The extent of a window spec."""
    return Whole(timed=timed) if isinstance(spec, Everything) else Laid(layout_of(spec))


def _latest_part() -> Part:
    """The largest event time inside."""

    def lift(rows: pa.Table, _signs: Ints | None) -> pa.Array:
        return plain(rows["_time"])

    return Part(StateColumn(LATEST, pa.int64(), "max"), lift)
