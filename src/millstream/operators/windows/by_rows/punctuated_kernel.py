"""Punctuated windows: rows with a true condition end windows, per key or for all keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.operators.windows.by_rows.cut_kernel import Cut, CutKernel
from millstream.operators.windows.by_rows.spec import PUNCTUATION
from millstream.state.arrays.numpy_columns import int_values, plain
from millstream.state.row_columns import ORIGIN

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from millstream.operators.aggregates.functions import Aggregate
    from millstream.operators.windows.by_rows.cut_kernel import Keyed
    from millstream.operators.windows.by_rows.spec import Punctuated
    from millstream.state.spec import StateColumn

    Ints = NDArray[np.int64]


def punctuated_kernel(
    spec: Punctuated,
    keys: Sequence[str],
    aggregates: Mapping[str, Aggregate],
    input_schema: pa.Schema,
) -> CutKernel:
    """The kernel over rows with the result of the spec's SQL in the column `_punctuation`."""
    return CutKernel(punctuating(spec), keys, aggregates, input_schema)


def punctuating(spec: Punctuated) -> EachKey | AllKeys:
    """The cutter of a spec."""
    return AllKeys(spec) if spec.all_keys else EachKey(spec)


class _Punctuating:
    """What both cutters share."""

    name = "punctuated"
    remembered: tuple[StateColumn, ...] = ()

    def __init__(self, spec: Punctuated) -> None:
        self._member = spec.member

    @property
    def carried(self) -> dict[str, pa.DataType]:
        """Whether a row closes windows."""
        return {PUNCTUATION: pa.bool_()}


class EachKey(_Punctuating):
    """A closing row ends the window of its key."""

    def carry(self, rows: pa.Table) -> tuple[dict[str, pa.Array], pa.Table | None, int]:
        """Markers that are not members are shuffled too, and are counted as unplaced."""
        marks = _marks(rows)
        return {PUNCTUATION: marks}, None, 0 if self._member else marks.true_count

    def cut(self, keyed: Keyed) -> Cut:
        """A window's number is the count of earlier windows of its key that rows have closed."""
        closes = _marks(keyed.rows).to_numpy(zero_copy_only=False)
        upto = np.cumsum(closes, dtype=np.int64)
        before = upto - closes
        key_of = keyed.key_of
        at_start = before[keyed.starts]
        at_end = upto[np.append(keyed.starts[1:], len(closes)) - 1] if len(closes) else upto
        outside = None if self._member else closes
        return Cut(before - at_start[key_of], at_end - at_start, outside)


class AllKeys(_Punctuating):
    """A closing row ends the windows of all keys, at its position in order of origin."""

    def carry(self, rows: pa.Table) -> tuple[dict[str, pa.Array], pa.Table | None, int]:
        """The origins of closing rows are broadcast."""
        marks = _marks(rows)
        markers = rows.select(ORIGIN).filter(marks)
        return {PUNCTUATION: marks}, markers, 0 if self._member else markers.num_rows

    def cut(self, keyed: Keyed) -> Cut:
        """A window's number is the count of earlier rows, of any key, that closed all windows."""
        count = keyed.rows.num_rows
        numbers = np.zeros(count, np.int64)
        markers = keyed.markers
        closings = 0 if markers is None else markers.num_rows
        come = np.flatnonzero(~keyed.kept)
        if markers is not None and closings:
            numbers[come] = _how_many_before(markers, keyed.rows.take(pa.array(come)))
        outside = None if self._member else _marks(keyed.rows).to_numpy(zero_copy_only=False)
        return Cut(numbers, np.full(len(keyed.starts), closings), outside)


def _marks(rows: pa.Table) -> pa.Array:
    return pc.fill_null(plain(rows[PUNCTUATION]), False)  # noqa: FBT003


def _how_many_before(markers: pa.Table, rows: pa.Table) -> Ints:
    """For each row, the number of earlier markers in order of origin, without itself."""
    first = rows.num_rows
    columns = [
        np.concatenate([int_values(plain(rows[name])), int_values(plain(markers[name]))])
        for name in ORIGIN
    ]
    is_marker = np.arange(first + markers.num_rows) >= first
    order = np.lexsort([is_marker, *reversed(columns)])
    found = np.empty(len(order), np.int64)
    found[order] = np.cumsum(is_marker[order])
    return found[:first]
