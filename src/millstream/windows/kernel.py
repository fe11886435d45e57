"""Tumbling windows over Arrow: groups are added up blindly and read once, when they close.

A row's group is (window start, keys). State is ordered by the window's start, so what a
watermark closes is a prefix of every run; open windows are never read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.errors import InvalidSpec
from millstream.eventtime.moment import END_OF_TIME, MIN_TIME
from millstream.state.columns import int_values, plain
from millstream.state.combine import combine
from millstream.state.hashing import hash_keys
from millstream.state.sorting import hashes_of, orders_of
from millstream.state.spec import GONE, HASH, ORDER, StateSpec
from millstream.steps.kernel import Outcome, Prepared
from millstream.windows.accumulators import ROWS, accumulator, rows_part
from millstream.windows.bounds import ends_of, first_open, starts_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from millstream.eventtime.moment import Moment
    from millstream.state.view import View
    from millstream.windows.aggregates import Aggregate
    from millstream.windows.spec import Tumbling

START, END = "window_start", "window_end"
BOUND = pa.timestamp("us", tz="UTC")
CHUNK_BYTES = 64 << 20


class TumblingKernel:
    """Aggregates per key and tumbling window.

    Row with time t and keys k goes to the group (start of t's window, k). A window is
    late once `before` has reached its end (+ `keep`), and leaves when `after` reaches
    its end. Results are keys, `window_start`, `window_end` and the aggregates.

    State: one row per open window and key; forgotten when the window has left and `keep`
    has passed.
    Emits: each window that has rows once, in order of (start, hash of the keys), with the
    event time `window_end` - 1 µs. A group whose rows were all taken back does not leave.
    With `keep` above zero, rows of windows that have left are added to them and shown by
    nobody: the late panes of a trigger are made from that state, not here.
    """

    def __init__(
        self,
        spec: Tumbling,
        keys: Sequence[str],
        aggregates: Mapping[str, Aggregate],
        input_schema: pa.Schema,
        *,
        keep: int = 0,
    ) -> None:
        self.spec, self.keep = spec, keep
        self._keys = tuple(keys)
        _require_columns(self._keys, input_schema)
        self._answers = {name: accumulator(a, input_schema) for name, a in aggregates.items()}
        parts = [rows_part(), *(part for a in self._answers.values() for part in a.parts)]
        self._parts = {part.column.name: part for part in parts}
        self._state = StateSpec(
            keys=pa.schema([input_schema.field(key) for key in self._keys]),
            values=tuple(part.column for part in self._parts.values()),
        )
        self._output = pa.schema(
            [
                *(pa.field(field.name, field.type) for field in self._state.keys),
                pa.field(START, BOUND),
                pa.field(END, BOUND),
                *(pa.field(name, a.type) for name, a in self._answers.items()),
            ]
        )
        _require_unique(self._output.names)

    @property
    def state(self) -> StateSpec:
        """Keys, the number of rows, and the parts of every aggregate."""
        return self._state

    def output(self) -> pa.Schema:
        """Keys, `window_start`, `window_end`, the aggregates in the order given."""
        return self._output

    def due(self, watermark: int) -> int:
        """The order below which state leaves at this watermark: the first open window."""
        return first_open(watermark, self.spec)

    def prepare(self, rows: pa.Table, moment: Moment) -> Prepared:
        """Part the late rows; add the others up to one row per window and key."""
        starts = starts_of(int_values(plain(rows["_time"])), self.spec)
        gone = starts < first_open(moment.before, self.spec, self.keep)
        if not gone.any():
            return Prepared(self._added_up(rows, starts), np.zeros(0, np.int64), _windows([]))
        late, kept = np.flatnonzero(gone), np.flatnonzero(~gone)
        exchange = self._added_up(rows.take(pa.array(kept)), starts[kept])
        return Prepared(exchange, late, _windows(starts[late]))

    def run(self, inputs: Sequence[pa.Table], state: View, moment: Moment) -> Outcome:
        """Close what `moment.after` allows; the rest of the batch is what the state gains.

        `held` is the end of the first window that is not closed, less 1 µs, whether it
        has rows or not: any window that leaves later ends there or after it. As that
        window ends after `moment.after`, `held` is never below it, and the output's
        watermark is the input's.
        """
        batch = combine(pa.concat_tables([self._empty(), *inputs]), self._state)
        orders = orders_of(batch)
        low, high = self._closing(moment)
        floor = first_open(moment.after, self.spec, self.keep)
        closing = batch.slice(*_between(orders, low, high))
        gained = batch.slice(*_between(orders, floor, END_OF_TIME))
        return Outcome(
            results=self._results(closing, state.scan(low, high)),
            delta=gained if gained.num_rows else None,
            floor=floor,
            held=self._held(high),
        )

    def _added_up(self, rows: pa.Table, starts: NDArray[np.int64]) -> pa.Table:
        keys = [rows[key] for key in self._keys]
        signs = _signs(rows)
        lifted = {
            ORDER: pa.array(starts),
            HASH: pa.array(hash_keys(keys, rows.num_rows)),
            **dict(zip(self._keys, keys, strict=True)),
            **{name: part.lift(rows, signs) for name, part in self._parts.items()},
        }
        return combine(pa.table(lifted), self._state).drop_columns([GONE])

    def _empty(self) -> pa.Table:
        return self._state.visible.empty_table()

    def _closing(self, moment: Moment) -> tuple[int, int]:
        """The range of starts that leave now: not gone before, ended by `after`.

        With `keep`, windows that have left are still in the state, below the range.
        """
        left = first_open(moment.before, self.spec) if self.keep else MIN_TIME
        return left, first_open(moment.after, self.spec)

    def _held(self, start: int) -> int:
        if start == END_OF_TIME:
            return END_OF_TIME
        return int(ends_of(np.array([start], np.int64), self.spec)[0]) - 1

    def _results(self, closing: pa.Table, kept: Iterator[pa.Table]) -> Iterator[pa.Table]:
        """The closing groups of the batch and of the state, put together where they meet."""
        orders, hashes = orders_of(closing), hashes_of(closing)
        taken = 0
        for chunk in kept:
            upto = _first_after(orders, hashes, chunk)
            if upto > taken:
                part = closing.slice(taken, upto - taken).select(chunk.column_names)
                yield from self._finished(combine(pa.concat_tables([chunk, part]), self._state))
            else:
                yield from self._finished(chunk)
            taken = upto
        yield from self._finished(closing.slice(taken))

    def _finished(self, groups: pa.Table) -> Iterator[pa.Table]:
        rows = int_values(plain(groups[ROWS])) if groups.num_rows else np.zeros(0, np.int64)
        if not rows.all():
            groups = groups.take(pa.array(np.flatnonzero(rows)))
        if groups.num_rows == 0:
            return
        each = max(1, groups.num_rows * CHUNK_BYTES // max(1, groups.nbytes))
        for first in range(0, groups.num_rows, each):
            yield self._answer(groups.slice(first, each))

    def _answer(self, groups: pa.Table) -> pa.Table:
        starts = orders_of(groups)
        ends = ends_of(starts, self.spec)
        columns = {
            **{key: groups[key] for key in self._keys},
            START: pa.array(starts).cast(BOUND),
            END: pa.array(ends).cast(BOUND),
            **{name: a.finish(groups) for name, a in self._answers.items()},
            "_time": pa.array(ends - 1),
            "_sign": pa.array(np.ones(len(ends), np.int8)),
        }
        return pa.table(columns)


def _between(orders: NDArray[np.int64], low: int, high: int) -> tuple[int, int]:
    """Where rows with low <= order < high stand in sorted orders: (first, how many)."""
    first, last = np.searchsorted(orders, np.array([low, high], np.int64), side="left")
    return int(first), max(0, int(last - first))


def _first_after(orders: NDArray[np.int64], hashes: NDArray[np.uint64], chunk: pa.Table) -> int:
    """The first row of the sorted (orders, hashes) behind the last group of a chunk."""
    order, hashed = orders_of(chunk)[-1], hashes_of(chunk)[-1]
    first, last = np.searchsorted(orders, order, "left"), np.searchsorted(orders, order, "right")
    return int(first + np.searchsorted(hashes[first:last], hashed, "right"))


def _signs(rows: pa.Table) -> NDArray[np.int64] | None:
    """The signs of rows, None if none is taken back."""
    if "_sign" not in rows.column_names:
        return None
    signs = int_values(plain(rows["_sign"]))
    return None if (signs == 1).all() else signs


def _windows(starts: NDArray[np.int64] | list[int]) -> pa.Array:
    """One list per late row, holding the start of its one window."""
    offsets = np.arange(len(starts) + 1, dtype=np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(starts, pa.int64()))


def _require_columns(keys: Sequence[str], schema: pa.Schema) -> None:
    missing = [key for key in keys if key not in schema.names]
    if missing:
        raise InvalidSpec(
            "the keys of a window need to be columns of its input",
            got=", ".join(missing),
            do=f"choose from {', '.join(schema.names)}",
        )


def _require_unique(names: Sequence[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidSpec(
            "a window needs different names for keys, bounds and aggregates",
            got=f"{', '.join(twice)} twice",
            do="name the aggregate differently",
        )
