"""Aggregates that keep a sketch: approx_distinct, approx_quantile."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np
import pyarrow as pa

from millstream.errors import InvalidSpec
from millstream.operators.aggregates.bags import entries, entry_type, one_each, refuse_signs
from millstream.operators.aggregates.parts import (
    Accumulator,
    Part,
    is_comparable,
    is_number,
    wrong_type,
)
from millstream.operators.aggregates.sketches import hll
from millstream.operators.aggregates.sketches.log_buckets import LogBuckets
from millstream.state.arrays.numpy_columns import float_values, int_values, plain
from millstream.state.keys.hashing import hash_keys
from millstream.state.lists import elements, listed
from millstream.state.spec import StateColumn

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from millstream.operators.aggregates.spec import Aggregate, ApproxDistinct, ApproxQuantile

_WORDS = pa.list_(pa.int32())


def approx_distinct(
    aggregate: Aggregate, of: pa.DataType, *, retractable: bool = False
) -> Accumulator:
    """HyperLogLog over the hashes of the values."""
    if retractable:
        raise InvalidSpec(
            "approx_distinct needs rows that are never retracted",
            got="rows that later panes or versions correct",
            do="use count_distinct, or turn off late corrections in the step before it",
        )
    if not is_comparable(of):
        raise wrong_type(aggregate, "a column without maps", of)
    column = str(aggregate.column)
    precision = hll.precision_for(cast("ApproxDistinct", aggregate).error)

    def lift(rows: pa.Table, signs: NDArray[np.int64] | None) -> pa.Array:
        refuse_signs(signs, "approx_distinct")
        values = plain(rows[column])
        there = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
        if values.null_count:
            values = values.take(pa.array(there))
        words = hll.words(hash_keys([values], len(values)), precision)
        return listed(pa.array(words), there, rows.num_rows, _WORDS)

    part = Part(StateColumn(f"_{column}:hll{precision}", _WORDS, "peaks"), lift)

    def finish(state: pa.Table) -> pa.Array:
        kept = plain(state[part.column.name])
        words, groups = elements(kept, np.arange(len(kept), dtype=np.int64))
        found = hll.estimates(int_values(words), groups, len(kept), precision)
        return pa.array(np.rint(found).astype(np.int64))

    return Accumulator((part,), pa.int64(), finish)


def approx_quantile(aggregate: Aggregate, of: pa.DataType) -> Accumulator:
    """Counts in logarithmic buckets; supports retraction."""
    if not is_number(of):
        raise wrong_type(aggregate, "a column of integers, floats or decimals", of)
    column, spec = str(aggregate.column), cast("ApproxQuantile", aggregate)
    buckets, kind = LogBuckets(spec.error), pa.list_(entry_type(pa.int32()))

    def lift(rows: pa.Table, signs: NDArray[np.int64] | None) -> pa.Array:
        values = plain(rows[column]).cast(pa.float64(), safe=False)
        return one_each([pa.array(buckets.of(float_values(values)))], signs, values, kind)

    part = Part(StateColumn(f"_{column}:buckets:{spec.error}", kind, "bag"), lift)

    def finish(state: pa.Table) -> pa.Array:
        found = entries(state, part)
        totals = np.bincount(found.groups, found.counts, found.number).astype(np.int64)
        known = totals > 0
        places = np.floor(spec.p * (totals[known] - 1)).astype(np.int64)
        before = (np.cumsum(totals) - totals)[known]
        rows = np.searchsorted(np.cumsum(found.counts), before + places, "right")
        answers = np.zeros(found.number)
        answers[known] = buckets.numbers(int_values(found.fields[0])[rows])
        return pa.array(answers, mask=~known)

    return Accumulator((part,), pa.float64(), finish)
