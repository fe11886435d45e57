"""Aggregates over the distinct values of a column, each kept with its count.

The state is a bag: values and counts, sorted by value. Bags can be merged in any order, and
a retracted row lowers a count. Where no row can be retracted, only the smallest or largest n
values are kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import InvalidInput
from millstream.operators.aggregates.parts import (
    Accumulator,
    Part,
    is_comparable,
    is_number,
    is_ordered,
    wrong_type,
)
from millstream.state.arrays.numpy_columns import int_values, plain
from millstream.state.keys.equality import canonical
from millstream.state.lists import elements, first_counts, listed
from millstream.state.spec import COUNT, StateColumn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from millstream.operators.aggregates.spec import (
        Aggregate,
        Frequent,
        Largest,
        Quantile,
        Smallest,
    )

    Ints = NDArray[np.int64]

VALUE = "value"
_ORDERED = "a column of numbers, text, bytes, times or booleans"


def extreme(aggregate: Aggregate, of: pa.DataType) -> Accumulator:
    """The smallest or largest value; does not support retraction."""
    column, kind = str(aggregate.column), aggregate.kind
    if not is_ordered(of):
        raise wrong_type(aggregate, _ORDERED, of)

    def lift(rows: pa.Table, signs: Ints | None) -> pa.Array:
        refuse_signs(signs, kind)
        values = plain(rows[column])
        return pc.add(values, pa.scalar(0.0, of)) if pa.types.is_floating(of) else values

    part = Part(StateColumn(f"_{column}:{kind}", of, "min" if kind == "min" else "max"), lift)
    return Accumulator((part,), of, lambda state: plain(state[part.column.name]))


def extreme_of_bag(aggregate: Aggregate, of: pa.DataType) -> Accumulator:
    """The smallest or largest value of those not retracted."""
    if not is_ordered(of):
        raise wrong_type(aggregate, _ORDERED, of)
    part = bag_part(str(aggregate.column), of)

    def finish(state: pa.Table) -> pa.Array:
        return end_of(entries(state, part), last=aggregate.kind == "max")

    return Accumulator((part,), of, finish)


def count_distinct(aggregate: Aggregate, of: pa.DataType) -> Accumulator:
    """The number of distinct values."""
    part = bag_part(str(aggregate.column), _comparable(aggregate, of))

    def finish(state: pa.Table) -> pa.Array:
        found = entries(state, part)
        return pa.array(np.bincount(found.groups, minlength=found.number))

    return Accumulator((part,), pa.int64(), finish)


def quantile(aggregate: Aggregate, of: pa.DataType) -> Accumulator:
    """The value at index p * (n - 1), interpolated linearly between two values."""
    if not is_number(of):
        raise wrong_type(aggregate, "a column of integers, floats or decimals", of)
    part, share = bag_part(str(aggregate.column), of), cast("Quantile", aggregate).p

    def finish(state: pa.Table) -> pa.Array:
        return _at_share(entries(state, part), share)

    return Accumulator((part,), pa.float64(), finish)


def frequent(aggregate: Aggregate, of: pa.DataType) -> Accumulator:
    """The n values with the highest counts; of equal counts, the smaller values."""
    part, most = bag_part(str(aggregate.column), _comparable(aggregate, of)), _n(aggregate)
    answer = pa.list_(entry_type(of))

    def finish(state: pa.Table) -> pa.Array:
        found = entries(state, part)
        order = np.lexsort((-found.counts, found.groups))
        kept, _ = first_counts(np.ones(len(order), np.int64), found.groups, most)
        rows = order[kept]
        columns = [found.fields[0].take(pa.array(rows)), pa.array(found.counts[rows])]
        pairs = pa.StructArray.from_arrays(columns, fields=list(answer.value_type))
        return null_if_empty(listed(pairs, found.groups[rows], found.number, answer))

    return Accumulator((part,), answer, finish)


def smallest(aggregate: Aggregate, of: pa.DataType, *, retractable: bool = False) -> Accumulator:
    """The n smallest values, ascending."""
    return _ranked(aggregate, of, None if retractable else _n(aggregate))


def largest(aggregate: Aggregate, of: pa.DataType, *, retractable: bool = False) -> Accumulator:
    """The n largest values, descending."""
    return _ranked(aggregate, of, None if retractable else -_n(aggregate))


def _ranked(aggregate: Aggregate, of: pa.DataType, keep: int | None) -> Accumulator:
    if not is_ordered(of):
        raise wrong_type(aggregate, _ORDERED, of)
    part, answer = bag_part(str(aggregate.column), of, keep=keep), pa.list_(of)
    most, backwards = _n(aggregate), aggregate.kind == "largest"

    def finish(state: pa.Table) -> pa.Array:
        found = entries(state, part)
        kept, counts = first_counts(found.counts, found.groups, most, backwards=backwards)
        if backwards:
            order = np.lexsort((-kept, found.groups[kept]))
            kept, counts = kept[order], counts[order]
        rows = np.repeat(kept, counts)
        values = found.fields[0].take(pa.array(rows))
        return null_if_empty(listed(values, found.groups[rows], found.number, answer))

    return Accumulator((part,), answer, finish)


def bag_part(column: str, of: pa.DataType, *, keep: int | None = None) -> Part:
    """The values of a column with their counts; with `keep`, only the first or last ones."""
    kind = pa.list_(entry_type(of))

    def lift(rows: pa.Table, signs: Ints | None) -> pa.Array:
        if keep is not None:
            refuse_signs(signs, f"the {abs(keep)} {'smallest' if keep > 0 else 'largest'}")
        values = canonical(plain(rows[column]))
        return one_each([values], signs, values, kind)

    name = f"_{column}:bag" if keep is None else f"_{column}:bag:{keep}"
    return Part(StateColumn(name, kind, "bag", keep), lift)


def one_each(
    fields: Sequence[pa.Array], signs: Ints | None, valued: pa.Array, kind: pa.DataType
) -> pa.Array:
    """A bag of one entry for each row, empty where `valued` is null."""
    counts = np.ones(len(valued), np.int64) if signs is None else signs
    groups = np.arange(len(valued), dtype=np.int64)
    columns = [*fields, pa.array(counts)]
    if valued.null_count:
        groups = np.flatnonzero(valued.is_valid().to_numpy(zero_copy_only=False))
        columns = [column.take(pa.array(groups)) for column in columns]
    made = pa.StructArray.from_arrays(columns, fields=list(kind.value_type))
    return listed(made, groups, len(valued), kind)


@dataclass(frozen=True, slots=True)
class Entries:
    """The entries of `number` bags with a count above 0, bag after bag."""

    fields: list[pa.Array]
    counts: Ints
    groups: Ints
    number: int


def entries(state: pa.Table, part: Part) -> Entries:
    """The entries of the bags of a state."""
    bags = plain(state[part.column.name])
    found, groups = elements(bags, np.arange(len(bags), dtype=np.int64))
    *fields, counted = (plain(field) for field in found.flatten())
    counts = int_values(counted)
    if (counts > 0).all():
        return Entries(fields, counts, groups, len(bags))
    there = np.flatnonzero(counts > 0)
    fields = [field.take(pa.array(there)) for field in fields]
    return Entries(fields, counts[there], groups[there], len(bags))


def end_of(found: Entries, *, last: bool) -> pa.Array:
    """The value of each bag's first or last entry, null where there is none."""
    edges = np.searchsorted(found.groups, np.arange(found.number + 1))
    rows = edges[1:] - 1 if last else edges[:-1]
    return found.fields[-1].take(pa.array(rows, mask=edges[1:] == edges[:-1]))


def null_if_empty(lists: pa.Array) -> pa.Array:
    """The lists, null instead of empty."""
    empty = pc.equal(pc.list_value_length(lists), 0)
    if not empty.true_count:
        return lists
    return pa.ListArray.from_arrays(lists.offsets, lists.values, type=lists.type, mask=empty)


def entry_type(of: pa.DataType) -> pa.DataType:
    """A value and its count."""
    return pa.struct([(VALUE, of), (COUNT, pa.int64())])


def refuse_signs(signs: Ints | None, what: str) -> None:
    """Refuse retracted rows where the state drops values that it does not need."""
    if signs is not None:
        raise InvalidInput(
            f"{what} needs a state that keeps its rows to retract one",
            got="a row that is retracted",
            do="make its accumulator with retractable=True",
        )


def _at_share(found: Entries, share: float) -> pa.Array:
    values = np.asarray(found.fields[0].cast(pa.float64(), safe=False).to_numpy())
    upto = np.cumsum(found.counts)
    totals = np.bincount(found.groups, found.counts, found.number).astype(np.int64)
    known = totals > 0
    places = share * (totals[known] - 1)
    lower = np.floor(places)
    before = (np.cumsum(totals) - totals)[known]
    low = values[np.searchsorted(upto, before + lower.astype(np.int64), "right")]
    high = values[np.searchsorted(upto, before + np.ceil(places).astype(np.int64), "right")]
    into = places - lower
    with np.errstate(invalid="ignore"):
        between = np.where(low == high, low, (1.0 - into) * low + into * high)
    answers = np.zeros(found.number)
    answers[known] = between
    return pa.array(answers, mask=~known)


def _comparable(aggregate: Aggregate, of: pa.DataType) -> pa.DataType:
    if not is_comparable(of):
        raise wrong_type(aggregate, "a column without maps", of)
    return of


def _n(aggregate: Aggregate) -> int:
    return cast("Frequent | Largest | Smallest", aggregate).n
