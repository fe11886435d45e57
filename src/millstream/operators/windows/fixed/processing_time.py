"""Windows of processing time: the batch clock instead of the rows' own time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.event_time.batch_time import END_OF_TIME, MIN_TIME, BatchTime
from millstream.operators.windows.fixed.layout import layout_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from millstream.operators.kernel import Kernel, Outcome, Prepared
    from millstream.operators.windows.spec import Hopping, Tumbling
    from millstream.state.runs.view import View
    from millstream.state.spec import StateSpec


class ProcessingTime:
    """A kernel over tumbling or hopping windows, in which a row's time is the clock of its batch.

    State: as the kernel's.
    Emits: each window once, in the first batch whose clock has reached its end. No row is late,
    and the rows of a window depend on when batches ran.
    """

    def __init__(self, kernel: Kernel, window: Tumbling | Hopping) -> None:
        self._kernel, self._layout = kernel, layout_of(window)

    @property
    def tables(self) -> Mapping[str, StateSpec]:
        """As the kernel's."""
        return self._kernel.tables

    def output(self) -> pa.Schema:
        """As the kernel's."""
        return self._kernel.output()

    def due(self, watermark: int) -> int:
        """Nothing is emitted when event time advances, except at its end."""
        return self._kernel.due(watermark) if watermark == END_OF_TIME else MIN_TIME

    def prepare(self, rows: pa.Table, batch_time: BatchTime, side: int = 0) -> Prepared:
        """Prepare the rows with the batch clock as their time."""
        clock = pa.array(np.full(rows.num_rows, batch_time.clock))
        if "_time" in rows.column_names:
            rows = rows.drop_columns(["_time"])
        return self._kernel.prepare(rows.append_column("_time", clock), _never(batch_time), side)

    def run(
        self, sides: Sequence[Sequence[pa.Table]], state: Mapping[str, View], batch_time: BatchTime
    ) -> Outcome:
        """Close what the clock has reached."""
        after = END_OF_TIME if batch_time.after == END_OF_TIME else batch_time.clock
        outcome = self._kernel.run(
            sides, state, BatchTime(batch_time.since, after, batch_time.clock)
        )
        outcome.held = END_OF_TIME
        outcome.results = self._results(outcome, outcome.results, state, batch_time.clock)
        return outcome

    def _results(
        self, outcome: Outcome, results: Iterable[pa.Table], state: Mapping[str, View], clock: int
    ) -> Iterator[pa.Table]:
        """The results; then sets `wake` to the end of the next window with rows."""
        yield from results
        if any(view.rows for view in state.values()) or any(map(len, outcome.deltas.values())):
            opened = np.array([self._layout.first_open(clock)], np.int64)
            outcome.wake = min(outcome.wake, int(self._layout.ends(opened)[0]))


def _never(batch_time: BatchTime) -> BatchTime:
    """A batch time at which nothing is emitted."""
    return BatchTime(MIN_TIME, MIN_TIME, batch_time.clock)
