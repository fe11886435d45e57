"""Rows of the same key become one, column by column, oldest to newest.

A tombstone (`_gone`) deletes the earlier rows of its group. If rows follow it, two rows remain:
the tombstone, which still has to hide rows of older runs, and the combined row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import InvalidInput
from millstream.state import lists, reduce
from millstream.state.arrays.numpy_columns import only, plain
from millstream.state.keys.equality import canonical
from millstream.state.sorting import arrange, group_sorted, hashes_of, orders_of, sort_rows
from millstream.state.spec import GONE, HASH, LOW_PART, ORDER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from millstream.state.spec import StateColumn, StateSpec

    Columns = Mapping[str, pa.Array]

__all__ = [
    "combine", "conform", "group_sorted", "reduce_groups", "reduce_values", "sort_rows",
    "without_tombstones",
]  # fmt: skip


def combine(table: pa.Table, spec: StateSpec) -> pa.Table:
    """The table sorted, with one row per key (before it a tombstone, if there was one).

    Rows of the same key are ordered from oldest to newest. The low parts of dsums and `_gone`
    may be left out: they are then zero and false.
    """
    table = conform(table, spec)
    if len(table) == 0:
        return table
    keys = [plain(table[name]) for name in spec.key_names]
    rows, starts, keys = arrange(orders_of(table), hashes_of(table), keys)
    taken = None if rows is None else pa.array(rows)
    columns = dict(zip(spec.key_names, map(canonical, keys), strict=True))
    if plain(table[GONE]).true_count == 0:
        return _summed(table, taken, starts, columns, spec)
    others = table.drop_columns(spec.key_names)
    others = others if taken is None else others.take(taken)
    columns |= {name: plain(others[name]) for name in others.column_names}
    return reduce_groups(columns, starts, spec)


def _summed(
    table: pa.Table, rows: pa.Array | None, starts: NDArray[np.int64], keys: Columns,
    spec: StateSpec,
) -> pa.Table:  # fmt: skip
    """One row per group of a table in the order of `rows`, none of which is a tombstone."""
    whole = len(starts) == table.num_rows
    firsts = pa.array(starts) if rows is None else rows.take(pa.array(starts))
    made = {
        name: plain(table[name]) if whole and rows is None else plain(table[name]).take(firsts)
        for name in (ORDER, HASH, GONE)
    }
    made |= {name: key if whole else reduce.first(key, starts) for name, key in keys.items()}
    made |= reduce_values(table, rows, starts, spec)
    return pa.Table.from_arrays([made[n] for n in spec.schema.names], schema=spec.schema)


def reduce_values(
    table: pa.Table, rows: pa.Array | None, starts: NDArray[np.int64], spec: StateSpec
) -> Columns:
    """The combined values of groups of adjacent rows of the table, in the order of `rows`.

    No row is a tombstone; without `rows` the table is already in order.
    """
    made: dict[str, pa.Array] = {}
    for column in spec.values:
        values = {field.name: plain(table[field.name]) for field in column.fields}
        if rows is not None:
            values = {name: array.take(rows) for name, array in values.items()}
        whole = len(starts) == table.num_rows
        made |= values if whole else _reduce_column(values, column, starts)
    return made


def reduce_groups(
    columns: Mapping[str, pa.Array], starts: NDArray[np.int64], spec: StateSpec
) -> pa.Table:
    """One row per group of adjacent rows, before it a tombstone if the group has one."""
    gone = columns[GONE].to_numpy(zero_copy_only=False)
    if gone.any():
        return _past_tombstones(columns, starts, gone, spec)
    return _reduced(columns, starts, spec)


def without_tombstones(table: pa.Table) -> pa.Table:
    """The live rows, where there are no older rows to delete."""
    gone = plain(table[GONE])
    return table.filter(pc.invert(gone)) if gone.true_count else table


def conform(table: pa.Table, spec: StateSpec) -> pa.Table:
    """The table with exactly the spec's columns, in its order and types."""
    unknown = [name for name in table.column_names if name not in spec.schema.names]
    optional = {GONE: pa.scalar(False)}  # noqa: FBT003
    optional |= {c.name + LOW_PART: pa.scalar(0.0) for c in spec.values if c.combine == "dsum"}
    missing = [
        name
        for name in spec.schema.names
        if name not in table.column_names and name not in optional
    ]
    if unknown or missing:
        raise InvalidInput(
            f"state rows need the columns {', '.join(spec.schema.names)}",
            got=", ".join(table.column_names),
            do="add or leave out " + ", ".join(unknown + missing),
        )
    for name in optional:
        if name not in table.column_names:
            filled = pa.repeat(optional[name], len(table))
            table = table.append_column(name, filled)
    table = table.select(spec.schema.names)
    return table if table.schema.equals(spec.schema) else _cast(table, spec)


def _cast(table: pa.Table, spec: StateSpec) -> pa.Table:
    try:
        return table.cast(spec.schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
        raise InvalidInput(
            "state rows need the types of their spec",
            got=str(error),
            do="cast them before they are stored",
        ) from error


def _reduced(columns: Columns, starts: NDArray[np.int64], spec: StateSpec) -> pa.Table:
    """One row per group of the sorted columns, none of which is a tombstone."""
    if len(starts) == len(columns[GONE]):
        return pa.Table.from_arrays([columns[n] for n in spec.schema.names], schema=spec.schema)
    reduced = {name: reduce.first(array, starts) for name, array in _fixed(columns, spec).items()}
    for column in spec.values:
        reduced.update(_reduce_column(columns, column, starts))
    return pa.Table.from_arrays([reduced[n] for n in spec.schema.names], schema=spec.schema)


def _fixed(columns: Columns, spec: StateSpec) -> Columns:
    """The columns with the same value in all rows of a group."""
    values = {field.name for field in spec.value_fields}
    return {name: array for name, array in columns.items() if name not in values}


def _reduce_column(columns: Columns, column: StateColumn, starts: NDArray[np.int64]) -> Columns:
    name, array = column.name, columns[column.name]
    match column.combine:
        case "sum":
            reduced = reduce.total(array, starts, name)
        case "dsum":
            low = name + LOW_PART
            high_part, low_part = reduce.double_total(array, columns[low], starts)
            return {name: high_part, low: low_part}
        case "min":
            reduced = reduce.extreme(array, starts, largest=False)
        case "max":
            reduced = reduce.extreme(array, starts, largest=True)
        case "first":
            reduced = reduce.first(array, starts)
        case "last":
            reduced = reduce.last(array, starts)
        case "bag":
            reduced = lists.bag(array, starts, keep=column.keep)
        case "peaks":
            reduced = lists.peaks(array, starts)
        case "user":
            assert column.merge is not None
            reduced = column.merge(array, starts)
    return {name: reduced}


def _past_tombstones(
    columns: Columns, starts: NDArray[np.int64], gone: NDArray[np.bool_], spec: StateSpec
) -> pa.Table:
    count = len(gone)
    if len(starts) == count:  # only the values in tombstones have to be removed
        emptied = {field.name: only(columns[field.name], ~gone) for field in spec.value_fields}
        parts = {**columns, **emptied}
        return pa.Table.from_arrays([parts[n] for n in spec.schema.names], schema=spec.schema)
    place = np.arange(count, dtype=np.int64)
    last_gone = np.maximum.reduceat(np.where(gone, place, -1), starts)
    sizes = np.diff(starts, append=count)
    alive = np.flatnonzero(place > np.repeat(last_gone, sizes))
    groups = np.repeat(np.arange(len(starts)), sizes)[alive]
    deleted = np.flatnonzero(last_gone >= 0)
    tombstones = _tombstones(columns, last_gone[deleted], spec)
    if len(alive) == 0:
        return tombstones
    alive_starts = np.flatnonzero(np.diff(groups, prepend=-1))
    taken = pa.array(alive)
    kept = _reduced({n: a.take(taken) for n, a in columns.items()}, alive_starts, spec)
    both = pa.concat_tables([tombstones, kept])
    order = np.argsort(np.concatenate([deleted, groups[alive_starts]]), kind="stable")
    return both.take(pa.array(order))


def _tombstones(columns: Columns, rows: NDArray[np.int64], spec: StateSpec) -> pa.Table:
    """Tombstones at these rows, without values."""
    taken = pa.array(rows)
    fixed = {name: array.take(taken) for name, array in _fixed(columns, spec).items()}
    empty = {field.name: pa.nulls(len(rows), field.type) for field in spec.value_fields}
    parts = fixed | empty
    return pa.Table.from_arrays([parts[n] for n in spec.schema.names], schema=spec.schema)
