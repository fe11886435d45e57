"""Order over Arrow: rows wait under their time, and leave in its order."""

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
    """Holds each row until the watermark is beyond its time, then gives rows in order of time.

    A row is late when its time is behind the watermark; at the watermark it is on time.
    Rows leave with an origin of their own: source -1, partition 0, offset = their time, sub =
    their place, by origin, among the rows of that time. All rows of one time leave in one
    batch, so it is the same under any cut and in every lane, and whatever takes rows in order
    of origin afterwards takes them in order of event time. Results of earlier steps that
    have the same origin stay in the order in which they came.

    State: each row that waits, until it leaves.
    Emits: each row as it came, in order of (time, origin) within a range of buckets.
    """

    def __init__(self, spec: Ordered, input_schema: pa.Schema) -> None:
        self.spec = spec
        self._waiting = Waiting("ordered", input_schema)

    @property
    def tables(self) -> dict[str, StateSpec]:
        """The rows that wait, by their time."""
        return {ROWS: self._waiting.spec}

    def output(self) -> pa.Schema:
        """The columns of the input, with the origin the rows leave with."""
        return self._waiting.output

    def due(self, watermark: int) -> int:
        """Rows before the watermark leave."""
        return watermark

    def prepare(self, rows: pa.Table, batch_time: BatchTime, side: int = 0) -> Prepared:
        """Part the late rows; the others go to the bucket of their time."""
        return Prepared(*self._waiting.parted(rows, batch_time))

    def run(
        self, sides: Sequence[Sequence[pa.Table]], state: Mapping[str, View], batch_time: BatchTime
    ) -> Outcome:
        """Let out what is before `moment.after`, keep the rest.

        `held` is the end of time: what leaves later is at or after `moment.after`.
        """
        batch = self._waiting.numbered(sides[0], state[ROWS])
        leaving, staying = self._waiting.leaving(batch, state[ROWS], batch_time.after)
        return Outcome(
            self._results(leaving), deltas={ROWS: staying}, floors={ROWS: batch_time.after}
        )

    def _results(self, pieces: Iterator[pa.Table]) -> Iterator[pa.Table]:
        for piece in pieces:
            yield from self._waiting.results(piece)
