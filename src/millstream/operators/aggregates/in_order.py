"""Aggregates that depend on the order of rows: first, last, collect.

Each value is kept with its origin (source, partition, offset, sub-index), so the result does
not depend on slices, shuffles or the age of state. After `.ordered()` the event time comes
before the origin. Where no row can be retracted, `first` and `last` keep one value, `collect`
at most `limit`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np
import pyarrow as pa

from millstream.errors import InvalidInput
from millstream.operators.aggregates.bags import VALUE, end_of, entries, one_each, refuse_signs
from millstream.operators.aggregates.parts import Accumulator, Part, is_comparable, wrong_type
from millstream.state.arrays.numpy_columns import plain
from millstream.state.lists import first_counts, listed
from millstream.state.row_columns import ORIGIN_TYPES
from millstream.state.spec import COUNT, StateColumn

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from millstream.operators.aggregates.spec import Aggregate, Collect

_TIME = {"_time": pa.int64()}


def first(
    aggregate: Aggregate, of: pa.DataType, *, retractable: bool, by_time: bool
) -> Accumulator:
    """The value of the first row."""
    part = placed_part(aggregate, of, keep=None if retractable else 1, by_time=by_time)
    return Accumulator((part,), of, lambda state: end_of(entries(state, part), last=False))


def last(aggregate: Aggregate, of: pa.DataType, *, retractable: bool, by_time: bool) -> Accumulator:
    """The value of the last row."""
    part = placed_part(aggregate, of, keep=None if retractable else -1, by_time=by_time)
    return Accumulator((part,), of, lambda state: end_of(entries(state, part), last=True))


def collect(
    aggregate: Aggregate, of: pa.DataType, *, retractable: bool, by_time: bool
) -> Accumulator:
    """The values of all rows, or of the first `limit`."""
    limit = cast("Collect", aggregate).limit
    part = placed_part(aggregate, of, keep=None if retractable else limit, by_time=by_time)
    answer = pa.list_(of)

    def finish(state: pa.Table) -> pa.Array:
        found = entries(state, part)
        rows, counts = np.arange(len(found.counts)), found.counts
        if limit is not None:
            rows, counts = first_counts(counts, found.groups, limit)
        rows = np.repeat(rows, counts)
        values = found.fields[-1].take(pa.array(rows))
        return listed(values, found.groups[rows], found.number, answer)

    return Accumulator((part,), answer, finish, [])


def placed_part(aggregate: Aggregate, of: pa.DataType, *, keep: int | None, by_time: bool) -> Part:
    """The values of a column with their origins; with `keep`, only the first or last ones."""
    if not is_comparable(of):
        raise wrong_type(aggregate, "a column without maps", of)
    column, kind = str(aggregate.column), aggregate.kind
    place = (_TIME if by_time else {}) | ORIGIN_TYPES
    fields = [*((name.strip("_"), type_) for name, type_ in place.items()), (VALUE, of)]
    bag = pa.list_(pa.struct([*fields, (COUNT, pa.int64())]))

    def lift(rows: pa.Table, signs: NDArray[np.int64] | None) -> pa.Array:
        if keep is not None:
            refuse_signs(signs, kind)
        values = plain(rows[column])
        return one_each([*_places(rows, place, kind), values], signs, values, bag)

    name = f"_{column}:rows{':time' if by_time else ''}"
    name = name if keep is None else f"{name}:{keep}"
    return Part(StateColumn(name, bag, "bag", keep), lift)


def _places(rows: pa.Table, place: Mapping[str, pa.DataType], kind: str) -> list[pa.Array]:
    missing = [name for name in place if name not in rows.column_names]
    if missing:
        raise InvalidInput(
            f"{kind} needs the origin of each row",
            got=f"rows without {', '.join(missing)}",
            do="pass the rows as the engine reads them",
        )
    return [plain(rows[name]).cast(type_) for name, type_ in place.items()]
