"""Panes as rows: what sinks are shown, and what flows on to later operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.state.columns import int_values, plain
from millstream.windows.aggregation import END, START
from millstream.windows.pane_state import LABELS, LATE, ON_TIME, PANES, SHOWN, numbers, stands

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from millstream.windows.extent import Extent
    from millstream.windows.pane_state import PaneState

    Ints = NDArray[np.int64]

PANE, INDEX, RETRACT = "pane", "pane_index", "retract"


class PaneRows:
    """Makes rows of groups that fire."""

    def __init__(self, state: PaneState, extent: Extent, panes: str, *, labelled: bool) -> None:
        self._state, self._extent, self._panes = state, extent, panes
        self._labelled = labelled
        extra = [pa.field(PANE, pa.string()), pa.field(INDEX, pa.int64())] if labelled else []
        if panes == "retracting":
            extra.append(pa.field(RETRACT, pa.bool_()))
        self.schema = state.of.output(extra)

    def shown(self, groups: pa.Table, labels: Ints) -> pa.Table:
        """What sinks see of these groups, which all fire."""
        standing = np.flatnonzero(stands(groups))
        those = groups.take(pa.array(standing))
        parts = self._state.news(those) if self._panes == "discarding" else those
        now = self._rows(those, parts, labels[standing], numbers(those, PANES), sign=1)
        if self._panes != "retracting":
            return now
        return self._with_earlier(groups, now, standing, np.ones(len(labels), np.bool_))

    def flow(self, groups: pa.Table, labels: Ints) -> pa.Table:
        """What later operators see of these groups, which fire on time or late."""
        settled = np.flatnonzero((labels == ON_TIME) | (labels == LATE))
        groups, labels = groups.take(pa.array(settled)), labels[settled]
        standing = np.flatnonzero(stands(groups))
        those = groups.take(pa.array(standing))
        now = self._rows(those, those, labels[standing], numbers(those, PANES), sign=1)
        if not self._state.shown:
            return now
        return self._with_earlier(groups, now, standing, labels == LATE)

    def _with_earlier(
        self, groups: pa.Table, now: pa.Table, standing: Ints, only: NDArray[np.bool_]
    ) -> pa.Table:
        """Each row after the one it takes the place of, which is taken back as it left."""
        shown = plain(groups[SHOWN]).is_valid().to_numpy(zero_copy_only=False)
        before = np.flatnonzero(shown & only)
        if len(before) == 0:
            return now
        earlier = groups.take(pa.array(before))
        labels = int_values(plain(earlier[SHOWN]).cast(pa.int64()))
        parts = self._state.last_shown(earlier)
        back = self._rows(earlier, parts, labels, numbers(earlier, PANES) - 1, sign=-1)
        order = np.argsort(np.concatenate([before, standing + 0.5]), kind="stable")
        return pa.concat_tables([back, now]).take(pa.array(order))

    def _rows(
        self, groups: pa.Table, parts: pa.Table, labels: Ints, index: Ints, *, sign: int
    ) -> pa.Table:
        starts, ends, times = self._extent.bounds(parts)
        columns = {
            **{key: groups[key] for key in self._state.of.keys},
            START: starts,
            END: ends,
            **self._state.of.answers(parts),
        }
        if self._labelled:
            columns[PANE] = pa.array(LABELS[labels], pa.string())
            columns[INDEX] = pa.array(index)
        if self._panes == "retracting":
            columns[RETRACT] = pa.array(np.full(len(times), sign < 0))
        columns["_time"] = pa.array(times)
        columns["_sign"] = pa.array(np.full(len(times), sign, np.int8))
        return pa.table(columns)
