"""Combines the rows of a batch with those of the state, piece by piece."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.state.combine import combine
from millstream.state.sorting import hashes_of, orders_of
from millstream.state.spec import GONE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.state.spec import StateSpec


def meeting(
    batch: pa.Table, pieces: Iterator[pa.Table]
) -> Iterator[tuple[pa.Table | None, pa.Table]]:
    """Each piece with the rows of the batch up to its last (order, hash), then the remaining rows.

    Both are sorted by (order, hash); a piece has all rows of the state for each (order, hash)
    in it. There may be no rows for a piece, and no piece for the last rows.
    """
    orders, hashes = orders_of(batch), hashes_of(batch)
    taken = 0
    for piece in pieces:
        order, hashed = orders_of(piece)[-1], hashes_of(piece)[-1]
        first, last = (int(np.searchsorted(orders, order, side)) for side in ("left", "right"))
        upto = max(taken, first + int(np.searchsorted(hashes[first:last], hashed, "right")))
        yield piece, batch.slice(taken, upto - taken)
        taken = upto
    if taken < batch.num_rows:
        yield None, batch.slice(taken)


def together(batch: pa.Table, pieces: Iterator[pa.Table], spec: StateSpec) -> Iterator[pa.Table]:
    """The rows of the state and of a batch, as combined pieces in the order of the state."""
    visible = spec.visible.names
    for piece, part in meeting(batch, pieces):
        if piece is None:
            yield part.select(visible)
        elif part.num_rows:
            both = pa.concat_tables([piece.select(visible), part.select(visible)])
            yield combine(both, spec).drop_columns([GONE])
        else:
            yield piece
