"""Shared by kernels with aggregates: rows to partial results, and partial results to values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.errors import InvalidSpec
from millstream.operators.aggregates.accumulators import ROWS, accumulator, parts_of
from millstream.state.arrays.numpy_columns import int_values, plain
from millstream.state.combine import combine
from millstream.state.keys.hashing import hash_keys
from millstream.state.spec import GONE, HASH, ORDER, StateSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from millstream.operators.aggregates.accumulators import Part
    from millstream.operators.aggregates.spec import Aggregate

    Ints = NDArray[np.int64]

START, END = "window_start", "window_end"
BOUND = pa.timestamp("us", tz="UTC")
CHUNK_BYTES = 64 << 20
ON_TIME_FIELDS = (pa.field("pane", pa.string()), pa.field("pane_index", pa.int64()))


class Aggregation:
    """Aggregates over rows of a schema, by keys.

    `spec` is the state of a group: its keys, its number of rows, the parts of every
    aggregate, and any `more` parts of the kernel. With `retractable`, rows can be retracted
    from every aggregate.
    """

    def __init__(
        self,
        keys: Sequence[str],
        aggregates: Mapping[str, Aggregate],
        schema: pa.Schema,
        *,
        more: Sequence[Part] = (),
        retractable: bool = False,
    ) -> None:
        self.keys = tuple(keys)
        require_columns(self.keys, schema)
        self._answers = {
            name: accumulator(one, schema, retractable=retractable)
            for name, one in aggregates.items()
        }
        self.parts = {
            **{part.column.name: part for part in more},
            **parts_of(self._answers.values()),
        }
        self.spec = StateSpec(
            keys=pa.schema([schema.field(key) for key in self.keys]),
            values=tuple(part.column for part in self.parts.values()),
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the aggregates."""
        return tuple(self._answers)

    def output(self, extra: Sequence[pa.Field] = ()) -> pa.Schema:
        """Keys, `window_start`, `window_end`, `extra`, the aggregates in the order given."""
        schema = pa.schema(
            [
                *(pa.field(field.name, field.type) for field in self.spec.keys),
                pa.field(START, BOUND),
                pa.field(END, BOUND),
                *self.answer_fields(),
                *extra,
            ]
        )
        require_unique(schema.names)
        return schema

    def answer_fields(self) -> list[pa.Field]:
        """The aggregates in the order given."""
        return [pa.field(name, one.type) for name, one in self._answers.items()]

    def added_up(self, rows: pa.Table, orders: Ints) -> pa.Table:
        """The partial results of a slice of rows: one row per order and key."""
        keys = [rows[key] for key in self.keys]
        signs = signs_of(rows)
        lifted = {
            ORDER: pa.array(orders),
            HASH: pa.array(hash_keys(keys, rows.num_rows)),
            **dict(zip(self.keys, keys, strict=True)),
            **{name: part.lift(rows, signs) for name, part in self.parts.items()},
        }
        return combine(pa.table(lifted), self.spec).drop_columns([GONE])

    def together(self, tables: Iterable[pa.Table]) -> pa.Table:
        """Partial results of several tables, combined to one per order and key."""
        return combine(pa.concat_tables([self.spec.visible.empty_table(), *tables]), self.spec)

    def answers(self, groups: pa.Table) -> dict[str, pa.Array]:
        """The values of the aggregates of each group, by name."""
        return {name: one.finish(groups) for name, one in self._answers.items()}


def shown_once(
    of: Aggregation, groups: pa.Table, starts: Ints, ends: Ints, *, panes: bool
) -> pa.Table:
    """The results of closed windows, as on-time rows."""
    return pa.table(
        {
            **{key: groups[key] for key in of.keys},
            START: pa.array(starts).cast(BOUND),
            END: pa.array(ends).cast(BOUND),
            **of.answers(groups),
            **(on_time(len(ends)) if panes else {}),
            "_time": pa.array(ends - 1),
            "_sign": pa.array(np.ones(len(ends), np.int8)),
        }
    )


def in_chunks(groups: pa.Table) -> Iterator[pa.Table]:
    """Pieces of bounded size."""
    if groups.num_rows == 0:
        return
    each = max(1, groups.num_rows * CHUNK_BYTES // max(1, groups.nbytes))
    for first in range(0, groups.num_rows, each):
        yield groups.slice(first, each)


def on_time(count: int) -> dict[str, pa.Array]:
    """The pane columns of windows that are emitted once."""
    return {
        "pane": pa.repeat(pa.scalar("on_time"), count),
        "pane_index": pa.repeat(pa.scalar(0, pa.int64()), count),
    }


def that_have_rows(groups: pa.Table) -> pa.Table:
    """The groups whose rows were not all retracted."""
    rows = int_values(plain(groups[ROWS])) if groups.num_rows else np.zeros(0, np.int64)
    return groups if rows.all() else groups.take(pa.array(np.flatnonzero(rows)))


def signs_of(rows: pa.Table) -> Ints | None:
    """The signs of rows; None if no row is retracted."""
    if "_sign" not in rows.column_names:
        return None
    signs = int_values(plain(rows["_sign"]))
    return None if (signs == 1).all() else signs


def as_windows(starts: Ints, ends: Ints, counts: Ints | None = None) -> pa.Array:
    """The list of windows of each late row: one each, or `counts` of them."""
    sizes = np.ones(len(starts), np.int64) if counts is None else counts
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    pairs = pa.StructArray.from_arrays([pa.array(starts), pa.array(ends)], names=["start", "end"])
    return pa.ListArray.from_arrays(pa.array(offsets), pairs)


def require_columns(keys: Sequence[str], schema: pa.Schema) -> None:
    """Refuse keys that are not columns of the input."""
    missing = [key for key in keys if key not in schema.names]
    if missing:
        raise InvalidSpec(
            "the keys of a window need to be columns of its input",
            got=", ".join(missing),
            do=f"choose from {', '.join(schema.names)}",
        )


def require_unique(names: Sequence[str]) -> None:
    """Refuse two result columns of one name."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidSpec(
            "a window needs different names for keys, bounds and aggregates",
            got=f"{', '.join(twice)} twice",
            do="name the aggregate differently",
        )
