"""Rows before the shuffle: the pieces of sessions in one slice of a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.event_time.batch_time import END_OF_TIME
from millstream.operators.aggregates.aggregation import as_windows, signs_of
from millstream.operators.windows.sessions.layout import FIRST, LAST, SUSPECT
from millstream.state.arrays.numpy_columns import int_values, plain
from millstream.state.combine import conform, reduce_values
from millstream.state.keys.equality import canonical
from millstream.state.keys.hashing import hash_keys
from millstream.state.sorting import arrange, in_one_word
from millstream.state.spec import HASH, ORDER

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from millstream.operators.windows.sessions.layout import Layout

    Ints = NDArray[np.int64]
    Mask = NDArray[np.bool_]


def pieces(rows: pa.Table, suspects: Mask, layout: Layout, reach: int) -> pa.Table:
    """Rows of a key at most `reach` from each other as one piece; suspects stay separate.

    The piece of a suspect includes its original row.
    """
    times = int_values(plain(rows["_time"]))
    lifted = _lifted(rows, layout)
    by_time = None if (times[1:] >= times[:-1]).all() else np.argsort(times, kind="stable")
    order, new_key = _by_key(lifted, by_time, layout)
    if order is not None:
        times, suspects = times[order], suspects[order]
    heads = chain_heads(new_key, times, times, reach)
    heads |= suspects
    heads[1:] |= suspects[:-1]
    starts = np.flatnonzero(heads)
    made = _put_together(lifted, order, starts, times, layout)
    return made.append_column(SUSPECT, _originals(rows, suspects, starts, order))


def late_rows(suspects: pa.Array, gap: int) -> tuple[pa.Table, pa.Array]:
    """The original rows of suspects, and the window each would have been in."""
    rows = pa.Table.from_struct_array(suspects.flatten())
    times = int_values(plain(rows["_time"]))
    return rows, as_windows(times, later(times, gap))


def _lifted(rows: pa.Table, layout: Layout) -> pa.Table:
    """The partial results of each row."""
    keys = {key: plain(rows[key]) for key in layout.keys}
    signs = signs_of(rows)
    columns = {
        ORDER: pa.array(np.zeros(rows.num_rows, np.int64)),
        HASH: pa.array(hash_keys(list(keys.values()), rows.num_rows)),
        **keys,
        **{name: part.lift(rows, signs) for name, part in layout.of.parts.items()},
    }
    return conform(pa.table(columns), layout.of.spec)


def _put_together(
    lifted: pa.Table, order: Ints | None, starts: Ints, times: Ints, layout: Layout
) -> pa.Table:
    """One row per piece; `times` are those of the rows in this order, ascending in a piece."""
    firsts = pa.array(starts if order is None else order[starts])
    lasts = np.append(starts[1:], len(times))[: len(starts)] - 1
    columns = {
        HASH: plain(lifted[HASH]).take(firsts),
        **{key: canonical(plain(lifted[key]).take(firsts)) for key in layout.keys},
        FIRST: pa.array(times[starts]),
        LAST: pa.array(times[lasts]),
        **reduce_values(lifted, None if order is None else pa.array(order), starts, layout.of.spec),
    }
    schema = pa.schema([field for field in layout.piece.visible if field.name != ORDER])
    return pa.Table.from_arrays([columns[name] for name in schema.names], schema=schema)


def _by_key(
    lifted: pa.Table, by_time: Ints | None, layout: Layout
) -> tuple[Ints | None, NDArray[np.bool_]]:
    """The permutation that sorts by (key, time), None if sorted, and where each key begins."""
    keys = lifted.select([HASH, *layout.keys])
    if by_time is not None:
        keys = keys.take(pa.array(by_time))
    hashes = plain(keys[HASH]).to_numpy()
    count = len(hashes)
    order, starts, _ = arrange(
        np.zeros(count, np.int64), hashes, [plain(keys[key]) for key in layout.keys]
    )
    new_key = np.zeros(count, np.bool_)
    new_key[starts] = True
    if by_time is None or order is None:
        return (by_time if order is None else order), new_key
    return by_time[order], new_key


def _originals(rows: pa.Table, suspects: Mask, starts: Ints, order: Ints | None) -> pa.Array:
    """For each piece its original row if it is a suspect, else null."""
    kind = pa.list_(pa.struct(list(rows.schema)))
    if not suspects.any():
        return pa.nulls(len(starts), kind)
    of_suspect = suspects[starts]
    places = starts[of_suspect]
    taken = rows.take(pa.array(places if order is None else order[places]))
    structs = pa.StructArray.from_arrays(
        [taken[name].combine_chunks() for name in rows.column_names], fields=list(rows.schema)
    )
    offsets = np.zeros(len(starts) + 1, np.int32)
    np.cumsum(of_suspect, out=offsets[1:])
    return pa.ListArray.from_arrays(
        pa.array(offsets), structs, type=kind, mask=pa.array(~of_suspect)
    )


def chain_heads(new_group: Mask, firsts: Ints, lasts: Ints, reach: int) -> Mask:
    """Which spans begin a chain: no earlier span of their group is within `reach`.

    Spans are sorted by (group, first); `new_group` marks the first one of each group.
    """
    heads = new_group.copy()
    reached = _largest_so_far(new_group, lasts)[:-1]
    away = firsts[1:].view(np.uint64) - reached.view(np.uint64)
    heads[1:] |= (firsts[1:] > reached) & (away > np.uint64(reach))
    return heads


def _largest_so_far(new_group: Mask, values: Ints) -> Ints:
    """The largest value of the group up to each index."""
    if (new_group[1:] | (values[1:] >= values[:-1])).all():
        return values
    groups = np.cumsum(new_group, dtype=np.int64)
    words = in_one_word(groups, values)
    if words is not None:
        largest: Ints = np.maximum.accumulate(words) - words + values
        return largest
    by_value = np.argsort(values, kind="stable")
    ranks = np.empty(len(values), np.int64)
    ranks[by_value] = np.arange(len(values))
    groups *= len(values)
    ranked: Ints = values[by_value[np.maximum.accumulate(groups + ranks) - groups]]
    return ranked


def later(times: Ints, by: int) -> Ints:
    """The times shifted later by `by`, at most the end of time."""
    return np.where(times > END_OF_TIME - by, END_OF_TIME, times + by)
