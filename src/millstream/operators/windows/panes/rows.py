"""Panes as rows: those for sinks, and those for later operators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.operators.aggregates.aggregation import END, START, in_chunks
from millstream.operators.windows.panes.state import (
    LABELS,
    LATE,
    ON_TIME,
    PANES,
    SHOWN,
    numbers,
    stands,
)
from millstream.state.arrays.numpy_columns import int_values, plain

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from millstream.operators.windows.panes.firing import Decided
    from millstream.operators.windows.panes.state import PaneState

    Ints = NDArray[np.int64]

PANE, INDEX, RETRACT = "pane", "pane_index", "retract"


class Bounded(Protocol):
    """Provides the bounds of windows; `moves` if a window's start depends on its rows."""

    moves: bool

    def bounds(self, groups: pa.Table) -> tuple[pa.Array, pa.Array, pa.Array]:
        """Start, end and event time of each group's window; null where there is none."""


class PaneRows:
    """Builds the rows of groups that fire.

    A window is identified by its start. If the start of a window that was shown has moved, its
    shown row is retracted, unless panes are discarding.
    """

    def __init__(self, state: PaneState, extent: Bounded, panes: str, *, labelled: bool) -> None:
        self._state, self._extent, self._panes = state, extent, panes
        self._labelled = labelled
        extra = [pa.field(PANE, pa.string()), pa.field(INDEX, pa.int64())] if labelled else []
        if panes == "retracting":
            extra.append(pa.field(RETRACT, pa.bool_()))
        self.schema = state.of.output(extra)

    def left(self, groups: pa.Table, decided: Decided) -> tuple[list[pa.Table], list[pa.Table]]:
        """The rows for sinks and for later operators of the groups that fire, in bounded pieces."""
        fired = np.flatnonzero(decided.fires)
        if len(fired) == 0:
            return [], []
        firing, labels = groups.take(pa.array(fired)), decided.labels[fired]
        return list(in_chunks(self.shown(firing, labels))), list(
            in_chunks(self.flow(firing, labels))
        )

    def shown(self, groups: pa.Table, labels: Ints) -> pa.Table:
        """The rows for sinks of these groups, which all fire.

        A group that has lost all its rows retracts its last pane, whatever kind of panes it
        has: no later row would replace it.
        """
        standing = np.flatnonzero(stands(groups))
        those = groups.take(pa.array(standing))
        parts = self._state.news(those) if self._panes == "discarding" else those
        now = self._rows(those, parts, labels[standing], numbers(those, PANES), sign=1)
        if not self._state.shown:
            return now
        taken = np.ones(len(labels), np.bool_)
        if self._panes != "retracting":
            taken[standing] = self._start_moved(those)
        return self._with_earlier(groups, now, standing, taken)

    def flow(self, groups: pa.Table, labels: Ints) -> pa.Table:
        """The rows for later operators of these groups, which fire on time or late."""
        settled = np.flatnonzero((labels == ON_TIME) | (labels == LATE))
        groups, labels = groups.take(pa.array(settled)), labels[settled]
        standing = np.flatnonzero(stands(groups))
        those = groups.take(pa.array(standing))
        now = self._rows(those, those, labels[standing], numbers(those, PANES), sign=1)
        if not self._state.shown:
            return now
        return self._with_earlier(groups, now, standing, labels == LATE)

    def _start_moved(self, groups: pa.Table) -> NDArray[np.bool_]:
        """Which windows have another start than in their last pane."""
        if not self._extent.moves or self._panes == "discarding":
            return np.zeros(groups.num_rows, np.bool_)
        now, _, _ = self._extent.bounds(groups)
        before, _, _ = self._extent.bounds(self._state.last_shown(groups))
        other = pc.fill_null(pc.not_equal(now, before), False)  # noqa: FBT003
        return np.asarray(other.to_numpy(zero_copy_only=False), np.bool_)

    def _with_earlier(
        self, groups: pa.Table, now: pa.Table, standing: Ints, only: NDArray[np.bool_]
    ) -> pa.Table:
        """The rows of `now`, each after the retraction of its group's last pane, where `only`."""
        shown = plain(groups[SHOWN]).is_valid().to_numpy(zero_copy_only=False)
        before = np.flatnonzero(shown & only)
        if len(before) == 0:
            return now
        earlier = groups.take(pa.array(before))
        labels = int_values(plain(earlier[SHOWN]).cast(pa.int64()))
        parts = self._state.last_shown(earlier)
        index = numbers(earlier, PANES) - 1
        back = self._rows(earlier, parts, labels, index, sign=-1, within=parts)
        order = np.argsort(np.concatenate([before, standing + 0.5]), kind="stable")
        return pa.concat_tables([back, now]).take(pa.array(order))

    def _rows(
        self, groups: pa.Table, parts: pa.Table, labels: Ints, index: Ints, *, sign: int,
        within: pa.Table | None = None,
    ) -> pa.Table:  # fmt: skip
        """The results of `parts` with the bounds of the groups, or of `within`."""
        starts, ends, times = self._extent.bounds(groups if within is None else within)
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
        columns["_time"] = times
        columns["_sign"] = pa.array(np.full(len(times), sign, np.int8))
        return pa.table(columns)
