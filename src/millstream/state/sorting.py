"""Rows in the order of state: by `_order`, then `_hash`, then keys where hashes collide."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.state.arrays.numpy_columns import int_values, is_int_like, plain, spans_to_rows
from millstream.state.keys.equality import ranks, same_rows
from millstream.state.spec import HASH, ORDER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Rows = NDArray[np.int64]
    Orders = NDArray[np.int64]
    Hashes = NDArray[np.uint64]

_FEW_DESCENTS = 16
_FEW_BITS = 20


def orders_of(table: pa.Table | pa.RecordBatch) -> Orders:
    """The `_order` column as numpy."""
    return int_values(plain(table.column(ORDER)))


def hashes_of(table: pa.Table | pa.RecordBatch) -> Hashes:
    """The `_hash` column as numpy."""
    array = plain(table.column(HASH))
    if len(array) == 0:
        return np.zeros(0, dtype=np.uint64)
    return np.frombuffer(array.buffers()[1], np.uint64, array.offset + len(array))[array.offset :]


def sort_rows(table: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The rows sorted by (`_order`, `_hash`, keys); stable."""
    rows, _, _ = arrange(orders_of(table), hashes_of(table), [plain(table[k]) for k in keys])
    return table if rows is None else table.take(pa.array(rows))


def group_sorted(table: pa.Table, keys: Sequence[str]) -> Rows:
    """Where each group of the same (`_order`, keys) starts in a sorted table."""
    new = _first_of_hash(orders_of(table), hashes_of(table))
    new[1:] |= ~_same_as_before([plain(table[key]) for key in keys], len(table))
    return np.flatnonzero(new)


def arrange(
    orders: Orders, hashes: Hashes, keys: Sequence[pa.Array]
) -> tuple[Rows | None, Rows, list[pa.Array]]:
    """The permutation that sorts (None: sorted already), the starts of groups, the sorted keys."""
    rows, orders, hashes = _in_sorted_order(orders, hashes)
    if rows is not None:
        taken = pa.array(rows)
        keys = [key.take(taken) for key in keys]
    new_hash = _first_of_hash(orders, hashes)
    same_key = _same_as_before(keys, len(orders))
    collides = ~new_hash[1:] & ~same_key
    if not collides.any():
        return rows, np.flatnonzero(new_hash), list(keys)
    order = _part_colliding(new_hash, collides, keys)
    taken = pa.array(order)
    keys = [key.take(taken) for key in keys]
    new_hash[1:] |= ~_same_as_before(keys, len(orders))
    return order if rows is None else rows[order], np.flatnonzero(new_hash), keys


def permutation(orders: Orders, hashes: Hashes) -> Rows | None:
    """The stable permutation that sorts by (order, hash); None if they are sorted."""
    return _in_sorted_order(orders, hashes)[0]


def _in_sorted_order(orders: Orders, hashes: Hashes) -> tuple[Rows | None, Orders, Hashes]:
    """As `permutation`; also returns the sorted orders and hashes."""
    if is_sorted(orders, hashes):
        return None, orders, hashes
    rows = _argsort(_one_word(orders, hashes))
    by_order, by_hash = orders[rows], hashes[rows]
    if not is_sorted(by_order, by_hash):
        rows = np.lexsort((hashes, orders))
        by_order, by_hash = orders[rows], hashes[rows]
    return rows, by_order, by_hash


def is_sorted(orders: Orders, hashes: Hashes) -> bool:
    """Whether the pairs (order, hash) are ascending."""
    rises = orders[1:] > orders[:-1]
    if rises.any():
        level = orders[1:] == orders[:-1]
        return bool((rises | (level & (hashes[1:] >= hashes[:-1]))).all())
    return bool((orders[1:] == orders[:-1]).all() and (hashes[1:] >= hashes[:-1]).all())


def _one_word(orders: Orders, hashes: Hashes) -> Hashes:
    """A word that sorts like (order, hash), except for the hash's lowest bits."""
    if len(orders) == 0 or orders.min() == orders.max():
        return hashes
    ranked = _order_ranks(orders)
    bits = max(int(ranked.max()), 1).bit_length()
    word: Hashes = (ranked << np.uint64(64 - bits)) | (hashes >> np.uint64(bits))
    return word


def _order_ranks(orders: Orders) -> Hashes:
    """Small numbers from 0 in the order of these, which need few bits."""
    least = int(orders.min())
    if (int(orders.max()) - least).bit_length() <= _FEW_BITS:
        return (orders - least).view(np.uint64)
    if (orders[1:] >= orders[:-1]).all():
        ranked = np.zeros(len(orders), dtype=np.uint64)
        np.cumsum(orders[1:] != orders[:-1], out=ranked[1:])
        return ranked
    encoded = pa.array(orders).dictionary_encode()
    distinct = encoded.dictionary.to_numpy()
    rank_of = np.empty(len(distinct), dtype=np.uint64)
    rank_of[np.argsort(distinct)] = np.arange(len(distinct), dtype=np.uint64)
    found: Hashes = rank_of[encoded.indices.to_numpy()]
    return found


def _argsort(words: Hashes) -> Rows:
    """A stable argsort: timsort for a few sorted sections, else radix sort by the top 32 bits."""
    descents = int(np.count_nonzero(words[1:] < words[:-1]))
    if descents * _FEW_DESCENTS < len(words):
        found: Rows = np.argsort(words, kind="stable")
        return found
    digits = words.view(np.uint16).reshape(-1, 4)
    rows: Rows = np.argsort(digits[:, 2].copy(), kind="stable")
    rows = rows[np.argsort(digits[:, 3][rows], kind="stable")]
    nearly = words[rows]
    if (nearly[1:] < nearly[:-1]).any():
        _settle(rows, nearly)
    return rows


def _settle(rows: Rows, words: Hashes) -> None:
    """Sort rows, already sorted by the top 32 bits of their words, by the other bits, in place."""
    tops = words >> np.uint64(32)
    torn = np.unique(tops[1:][words[1:] < words[:-1]])
    firsts = np.searchsorted(tops, torn, side="left")
    lasts = np.searchsorted(tops, torn, side="right")
    places, _ = spans_to_rows(firsts, lasts - firsts)
    rows[places] = rows[places[np.argsort(words[places], kind="stable")]]


def _first_of_hash(orders: Orders, hashes: Hashes) -> NDArray[np.bool_]:
    new = np.ones(len(orders), dtype=np.bool_)
    new[1:] = (orders[1:] != orders[:-1]) | (hashes[1:] != hashes[:-1])
    return new


def _same_as_before(keys: Sequence[pa.Array], count: int) -> NDArray[np.bool_]:
    """For each row except the first, whether its key equals the previous one."""
    if count == 0:
        return np.zeros(0, dtype=np.bool_)
    return same_rows([key[1:] for key in keys], [key[:-1] for key in keys], count - 1)


def _part_colliding(
    new_hash: NDArray[np.bool_], collides: NDArray[np.bool_], keys: Sequence[pa.Array]
) -> Rows:
    """The permutation that sorts by key within every hash that several keys share."""
    groups = np.cumsum(new_hash) - 1
    shared = np.zeros(int(groups[-1]) + 1, dtype=np.bool_)
    shared[groups[1:][collides]] = True
    rows = np.flatnonzero(shared[groups])
    taken = pa.array(rows)
    columns = [_sortable(key.take(taken)) for key in keys]
    order = np.arange(len(groups), dtype=np.int64)
    by_key = by_columns([groups[rows], *columns])
    if by_key is not None:
        order[rows] = rows[by_key]
    return order


def by_columns(columns: Sequence[Rows]) -> Rows | None:
    """The stable permutation that sorts rows column by column; None if they are sorted."""
    if _in_order(columns):
        return None
    first, *others = columns
    if _in_order([first]):
        level = first[1:] == first[:-1]
        others = [column for column in others if (level & (column[1:] != column[:-1])).any()]
        if len(others) == 1:
            groups = np.zeros(len(first), dtype=np.int64)
            np.cumsum(~level, out=groups[1:])
            return by_group(groups, others[0])
    exact: Rows = np.lexsort((*reversed(others), first))
    return exact


def by_group(groups: Rows, numbers: Rows) -> Rows:
    """The stable permutation that sorts by (group, number); groups are from 0 upwards."""
    words = in_one_word(groups, numbers)
    if words is None:
        exact: Rows = np.lexsort((numbers, groups))
        return exact
    # With one word for both, a stable sort finds the sections that are already sorted.
    return np.argsort(words, kind="stable")


def in_one_word(groups: Rows, numbers: Rows) -> Rows | None:
    """Words in the order of (group, number); None if they do not fit into 63 bits.

    Differences of words in one group equal the differences of its numbers.
    """
    least, greatest = int(numbers.min()), int(numbers.max())
    span = greatest - least + 1
    if (int(groups.max()) + 1) * span >= 2**63:
        return None
    return groups * span + (numbers - least)


def _in_order(columns: Sequence[Rows]) -> bool:
    """Whether rows are ascending, compared column by column."""
    settled = np.zeros(max(0, len(columns[0]) - 1), dtype=np.bool_)
    for column in columns:
        if ((column[1:] < column[:-1]) & ~settled).any():
            return False
        settled |= column[1:] > column[:-1]
    return True


def _sortable(key: pa.Array) -> Rows:
    """Integers in the order of a key's values."""
    if is_int_like(key.type) and key.null_count == 0:
        return int_values(key)
    return ranks(key)
