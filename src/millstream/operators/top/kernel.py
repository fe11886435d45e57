"""The largest rows of each window over Arrow; rows that can no longer qualify are dropped early."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.errors import InvalidSpec
from millstream.operators.kernel import ROWS, Outcome, Prepared
from millstream.operators.waiting import Waiting
from millstream.state.arrays.numpy_columns import plain
from millstream.state.keys.equality import ranks
from millstream.state.row_columns import ORIGIN
from millstream.state.sorting import arrange, hashes_of, orders_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from millstream.event_time.batch_time import BatchTime
    from millstream.operators.top.spec import Top
    from millstream.state.runs.view import View
    from millstream.state.spec import StateSpec

WINDOW = ("window_start", "window_end")


class TopKernel:
    """The `n` rows with the largest `by` among the results of each window, over all keys.

    The input are the results of windows. A row is late when its time is behind the
    watermark. Rows are emitted when the watermark is beyond their time, with a new origin
    like those of `ordered`: offset = time, sub = index among the rows of that time.

    State: the `n` largest rows of each window in each batch, until the window is emitted.
    Emits: the largest rows unchanged, in order of (time, window), the largest first.
    """

    def __init__(self, spec: Top, input_schema: pa.Schema) -> None:
        self.spec = spec
        _require(spec, input_schema)
        self._waiting = Waiting("top", input_schema)

    @property
    def tables(self) -> dict[str, StateSpec]:
        """The waiting rows, by their time."""
        return {ROWS: self._waiting.spec}

    def output(self) -> pa.Schema:
        """The columns of the input, with the origin of the emitted rows."""
        return self._waiting.output

    def due(self, watermark: int) -> int:
        """Rows before the watermark are emitted."""
        return watermark

    def prepare(self, rows: pa.Table, batch_time: BatchTime, side: int = 0) -> Prepared:
        """Separate the late rows; of the others, keep only the largest of each window."""
        exchange, late = self._waiting.parted(rows, batch_time)
        return Prepared(self._largest(exchange, sorted_by_origin=False), late)

    def run(
        self, sides: Sequence[Sequence[pa.Table]], state: Mapping[str, View], batch_time: BatchTime
    ) -> Outcome:
        """Emit the largest rows of windows before `batch_time.after`, keep those of the others.

        `held` is the end of time: rows emitted later are at or after `batch_time.after`.
        """
        batch = self._waiting.numbered(sides[0], state[ROWS])
        leaving, staying = self._waiting.leaving(batch, state[ROWS], batch_time.after)
        kept = self._largest(staying)
        return Outcome(self._results(leaving), deltas={ROWS: kept}, floors={ROWS: batch_time.after})

    def _results(self, pieces: Iterator[pa.Table]) -> Iterator[pa.Table]:
        for piece in pieces:
            yield from self._waiting.results(self._largest(piece, in_order=True))

    def _largest(
        self, rows: pa.Table, *, sorted_by_origin: bool = True, in_order: bool = False
    ) -> pa.Table:
        """The `n` largest rows of each window: in their order, or the largest first."""
        count = rows.num_rows
        if count == 0:
            return rows
        windows = [plain(rows[name]) for name in WINDOW]
        order, starts, _ = arrange(orders_of(rows), hashes_of(rows), windows)
        places = np.arange(count) if order is None else order
        sizes = np.diff(starts, append=count)
        groups = np.repeat(np.arange(len(starts)), sizes)
        smaller = -ranks(plain(rows[self.spec.by]))[places]
        ties = () if sorted_by_origin else tuple(
            plain(rows[name]).to_numpy()[places] for name in reversed(ORIGIN)
        )  # fmt: skip
        by_size = np.lexsort((*ties, smaller, groups))
        among = np.arange(count) - np.repeat(starts, sizes)
        taken = places[by_size[among < self.spec.n]]
        return rows.take(pa.array(taken if in_order else np.sort(taken)))


def _require(spec: Top, schema: pa.Schema) -> None:
    missing = [name for name in WINDOW if name not in schema.names]
    if missing:
        raise InvalidSpec(
            "top needs the results of a window",
            got=f"rows without {' and '.join(missing)}",
            do="write .by(…).window(…).agg(…).top(…), and keep the bounds of the window",
        )
    if spec.by not in schema.names:
        raise InvalidSpec(
            "the `by` of top needs a column of its input",
            got=repr(spec.by),
            do=f"choose one of {', '.join(schema.names)}",
        )
    kind = schema.field(spec.by).type
    if pa.types.is_nested(kind) or pa.types.is_null(kind):
        raise InvalidSpec(
            "the `by` of top needs a column of numbers, text, bytes, times or booleans",
            got=f"{spec.by!r} of type {kind}",
            do="name another column, or a part of it",
        )
