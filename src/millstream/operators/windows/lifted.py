"""Rows lifted to partial results, for windows without bounds known in advance.

    rows -- lift --> hash, keys, parts -- combined by the state layer --> keys, bounds, results

In addition to the parts of the aggregates, a window stores its smallest and largest time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.errors import InvalidSpec
from millstream.operators.aggregates.accumulators import accumulator
from millstream.operators.aggregates.aggregation import (
    BOUND,
    END,
    ON_TIME_FIELDS,
    START,
    on_time,
    require_columns,
    require_unique,
)
from millstream.operators.aggregates.parts import Part, rows_part
from millstream.state.arrays.numpy_columns import int_values, plain
from millstream.state.keys.hashing import hash_keys
from millstream.state.row_columns import ORIGIN, SIGN, TIME
from millstream.state.sorting import arrange, by_columns, hashes_of
from millstream.state.spec import HASH, ORDER, StateColumn

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from millstream.operators.aggregates.functions import Aggregate

    Ints = NDArray[np.int64]

FIRST, LAST = "_first_time", "_last_time"
CHUNK_BYTES = 64 << 20


class Lifted:
    """The keys, parts and results of a window's aggregates.

    With `spanning`, the smallest and largest time inside are stored, as the bounds of the
    window; with `retractable`, rows may be retracted; with `panes`, results have the pane
    columns, as the only pane of their window.
    """

    def __init__(
        self,
        keys: Sequence[str],
        aggregates: Mapping[str, Aggregate],
        input_schema: pa.Schema,
        *,
        spanning: bool,
        retractable: bool = False,
        panes: bool = False,
    ) -> None:
        self._panes = panes
        self.keys = tuple(keys)
        require_columns(self.keys, input_schema)
        self._answers = {
            name: accumulator(aggregate, input_schema, retractable=retractable)
            for name, aggregate in aggregates.items()
        }
        parts = [rows_part(), *(span_parts() if spanning else ())]
        parts += [part for answer in self._answers.values() for part in answer.parts]
        self._parts = {part.column.name: part for part in parts}
        self.key_fields = tuple(input_schema.field(key) for key in self.keys)
        self.output = pa.schema(
            [
                *(pa.field(field.name, field.type) for field in self.key_fields),
                pa.field(START, BOUND),
                pa.field(END, BOUND),
                *(pa.field(name, answer.type) for name, answer in self._answers.items()),
                *(ON_TIME_FIELDS if panes else ()),
            ]
        )
        require_unique(self.output.names)

    @property
    def values(self) -> tuple[StateColumn, ...]:
        """The state columns of a window."""
        return tuple(part.column for part in self._parts.values())

    def lift(self, rows: pa.Table, signs: Ints | None = None) -> dict[str, pa.Array]:
        """The hash, keys and parts of each row."""
        keys = [rows[key] for key in self.keys]
        return {
            HASH: pa.array(hash_keys(keys, rows.num_rows)),
            **dict(zip(self.keys, keys, strict=True)),
            **{name: part.lift(rows, signs) for name, part in self._parts.items()},
        }

    def answer(self, windows: pa.Table, starts: pa.Array, ends: pa.Array) -> pa.Table:
        """Result rows of combined windows with their bounds; the end is the event time."""
        return pa.table(
            {
                **{key: windows[key] for key in self.keys},
                START: starts.cast(BOUND),
                END: ends.cast(BOUND),
                **{name: answer.finish(windows) for name, answer in self._answers.items()},
                **(on_time(windows.num_rows) if self._panes else {}),
                TIME: ends,
                SIGN: pa.array(np.ones(windows.num_rows, np.int8)),
            }
        )

    def spanned(self, windows: pa.Table) -> Iterator[pa.Table]:
        """Result rows of windows whose bounds are the times inside, in pieces of bounded size."""
        if windows.num_rows == 0:
            return
        each = max(1, windows.num_rows * CHUNK_BYTES // max(1, windows.nbytes))
        for first in range(0, windows.num_rows, each):
            piece = windows.slice(first, each)
            yield self.answer(piece, plain(piece[FIRST]), plain(piece[LAST]))

    def keyed(self, rows: pa.Table, places: Ints, values: pa.Table) -> pa.Table:
        """The values, with the keys of the rows at these indices."""
        taken = pa.array(places)
        keys = {key: rows[key].take(taken) for key in self.keys}
        return pa.table(keys | {name: values[name] for name in values.column_names})

    def gathered(
        self, tables: Sequence[pa.Table], carried: Mapping[str, pa.DataType], order: int
    ) -> pa.Table:
        """Exchanged rows by key in the order of state, each key's in order of origin.

        `carried` are their columns in addition to hash, keys, parts and origin; `order` is their
        `_order`.
        """
        rows = pa.concat_tables(tables) if tables else self._no_rows(carried)
        rows = in_origin_order(rows)
        places, _ = self.by_key(rows)
        rows = rows.take(pa.array(places))
        return rows.add_column(0, ORDER, pa.array(np.full(rows.num_rows, order)))

    def _no_rows(self, carried: Mapping[str, pa.DataType]) -> pa.Table:
        more = {name: pa.int64() for name in ORIGIN} | dict(carried)
        fields = [pa.field(HASH, pa.uint64()), *self.key_fields]
        fields += [part.column.fields[0] for part in self._parts.values()]
        fields += [pa.field(name, kind) for name, kind in more.items()]
        return pa.schema(fields).empty_table()

    def by_key(self, rows: pa.Table) -> tuple[Ints, Ints]:
        """The permutation that sorts rows by key, and where each key starts in it.

        Rows of one key keep their order; keys are in the order of state.
        """
        hashes = hashes_of(rows)
        keys = [plain(rows[key]) for key in self.keys]
        order, starts, _ = arrange(np.zeros(rows.num_rows, np.int64), hashes, keys)
        return np.arange(rows.num_rows) if order is None else order, starts


def in_origin_order(rows: pa.Table) -> pa.Table:
    """The rows by (source, partition, offset, sub-index)."""
    order = by_columns([int_values(plain(rows[name])) for name in ORIGIN])
    return rows if order is None else rows.take(pa.array(order))


def require_no_retraction(rows: pa.Table, window: str) -> None:
    """Refuse retracted rows: windows that they have closed cannot be opened again."""
    if SIGN in rows.column_names and not (int_values(plain(rows[SIGN])) == 1).all():
        raise InvalidSpec(
            f"{window} needs rows that are never retracted",
            got="a correction from the previous step",
            do="leave out `keep` in the .late(…) of that step",
        )


def span_parts() -> tuple[Part, Part]:
    """The smallest and the largest time inside."""

    def lift(rows: pa.Table, _signs: Ints | None) -> pa.Array:
        if TIME not in rows.column_names:
            return pa.nulls(rows.num_rows, pa.int64())
        return plain(rows[TIME])

    return (
        Part(StateColumn(FIRST, pa.int64(), "min"), lift),
        Part(StateColumn(LAST, pa.int64(), "max"), lift),
    )
