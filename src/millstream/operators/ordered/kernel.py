"""Sorting by event time over Arrow: rows wait in state, and are emitted in order of time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.operators.kernel import ROWS, Outcome, Prepared
from millstream.operators.waiting import Waiting

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from millstream.event_time.batch_time import BatchTime
    from millstream.operators.ordered.spec import Ordered
    from millstream.state.runs.view import View
    from millstream.state.spec import StateSpec


class OrderedKernel:
    """Holds each row until the watermark is beyond its time, then emits rows in order of time.

    A row is late when its time is behind the watermark; at the watermark it is on time.
    Emitted rows get a new origin: source -1, partition 0, offset = their time, sub = their
    index, by origin, among the rows of that time. All rows of one time are emitted in one
    batch, so the origin is the same for any batches and in every lane, and later steps that
    take rows in order of origin take them in order of event time. Results of earlier steps
    with the same origin stay in order of arrival.

    State: each waiting row, until it is emitted.
    Emits: each row unchanged, in order of (time, origin) within a range of buckets.
    """

    def __init__(self, spec: Ordered, input_schema: pa.Schema) -> None:
        self.spec = spec
        self._waiting = Waiting("ordered", input_schema)

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
        """Separate the late rows; the others go to the bucket of their time."""
        return Prepared(*self._waiting.parted(rows, batch_time))

    def run(
        self, sides: Sequence[Sequence[pa.Table]], state: Mapping[str, View], batch_time: BatchTime
    ) -> Outcome:
        """Emit the rows before `batch_time.after`, keep the rest.

        `held` is the end of time: rows emitted later are at or after `batch_time.after`.
        """
        batch = self._waiting.numbered(sides[0], state[ROWS])
        leaving, staying = self._waiting.leaving(batch, state[ROWS], batch_time.after)
        return Outcome(
            self._results(leaving), deltas={ROWS: staying}, floors={ROWS: batch_time.after}
        )

    def _results(self, pieces: Iterator[pa.Table]) -> Iterator[pa.Table]:
        for piece in pieces:
            yield from self._waiting.results(piece)
