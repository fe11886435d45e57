"""One list per group of adjacent rows: the union of bags, the highest of peaks.

The lists of all groups are flattened, sorted at once, and divided again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.errors import InvalidInput
from millstream.state.arrays.numpy_columns import (
    float_values,
    int_values,
    is_int_like,
    plain,
    spans_to_rows,
)
from millstream.state.keys.equality import list_parts, ranks, sortable_floats
from millstream.state.spec import PEAK_BITS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

_WORD_BITS = 63
_MOST_ELEMENTS = 2**31 - 1


def bag(array: pa.Array, starts: Ints, *, keep: int | None) -> pa.Array:
    """Each group's entries, equal ones combined, in the order of their fields."""
    entries, groups = elements(array, starts)
    if len(entries) == 0:
        return listed(entries, groups, len(starts), array.type)
    *fields, counted = (plain(field) for field in entries.flatten())
    order, firsts = _same_entries(fields, groups)
    counts = int_values(counted)
    counts = np.add.reduceat(counts if order is None else counts[order], firsts)
    rows = firsts if order is None else order[firsts]
    alive = np.flatnonzero(counts)
    rows, counts = rows[alive], counts[alive]
    if keep is not None:
        kept, counts = first_counts(counts, groups[rows], abs(keep), backwards=keep < 0)
        rows = rows[kept]
    taken = pa.array(rows)
    columns = [*(field.take(taken) for field in fields), pa.array(counts)]
    united = pa.StructArray.from_arrays(columns, fields=list(entries.type))
    return listed(united, groups[rows], len(starts), array.type)


def peaks(array: pa.Array, starts: Ints) -> pa.Array:
    """Each group's largest words, one of all that differ only in their lowest bits."""
    words, groups = elements(array, starts)
    keyed = np.sort(groups << 32 | int_values(words))
    place = keyed >> PEAK_BITS
    highest = np.ones(len(keyed), dtype=np.bool_)
    highest[:-1] = place[1:] != place[:-1]
    kept = keyed[highest]
    values = pa.array((kept & 0xFFFFFFFF).astype(np.int32))
    return listed(values, kept >> 32, len(starts), array.type)


def elements(array: pa.Array, starts: Ints) -> tuple[pa.Array, Ints]:
    """The elements of all lists, and the group of each, ascending."""
    begins, lengths, values = list_parts(array)
    ends = begins + lengths
    total = int(lengths.sum())
    if np.array_equal(begins[1:], ends[:-1]):
        taken = values.slice(int(begins[0]) if len(begins) else 0, total)
    else:
        taken = values.take(pa.array(spans_to_rows(begins, lengths)[0]))
    sizes = np.add.reduceat(lengths, starts) if len(starts) else lengths
    return taken, np.repeat(np.arange(len(starts), dtype=np.int64), sizes)


def listed(values: pa.Array, groups: Ints, count: int, kind: pa.DataType) -> pa.Array:
    """One list for each of `count` groups, of values sorted by group."""
    if len(values) > _MOST_ELEMENTS:
        raise InvalidInput(
            "one piece of state needs fewer than 2³¹ entries in its lists",
            got=str(len(values)),
            do="use smaller batches",
        )
    offsets = np.zeros(count + 1, dtype=np.int32)
    np.cumsum(np.bincount(groups, minlength=count), out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), values, type=kind)


def first_counts(
    counts: Ints, groups: Ints, most: int, *, backwards: bool = False
) -> tuple[Ints, Ints]:
    """The entries with the first (last) `most` items of each group, and the number in each.

    Counts are above 0, groups ascend.
    """
    upto = np.cumsum(counts)
    if backwards:
        before = upto[np.searchsorted(groups, groups, "right") - 1] - upto
    else:
        before = upto - counts
        before = before - before[np.searchsorted(groups, groups, "left")]
    kept = np.flatnonzero(before < most)
    return kept, np.minimum(counts[kept], most - before[kept])


def _same_entries(fields: Sequence[pa.Array], groups: Ints) -> tuple[Ints | None, Ints]:
    """The permutation that sorts by (group, fields), None if sorted; the start of each value."""
    word, rest = _packed(groups, [_sortable(field) for field in fields])
    if bool((word[1:] > word[:-1]).all()):
        return None, np.arange(len(word), dtype=np.int64)
    order: Ints = np.lexsort((*reversed(rest), word)) if rest else np.argsort(word)
    new = np.ones(len(order), dtype=np.bool_)
    for position, key in enumerate((word, *rest)):
        ordered = key[order]
        differs = ordered[1:] != ordered[:-1]
        new[1:] = differs if position == 0 else new[1:] | differs
    return order, np.flatnonzero(new)


def _sortable(field: pa.Array) -> Ints:
    """Integers in the order of the values, equal where those are the same."""
    if field.null_count == 0 and is_int_like(field.type):
        return int_values(field)
    if field.null_count == 0 and pa.types.is_floating(field.type):
        return sortable_floats(float_values(field) + 0.0)
    return ranks(field)


def _packed(groups: Ints, keys: Sequence[Ints]) -> tuple[Ints, list[Ints]]:
    """As many leading keys as fit into one word after the group, and the others."""
    word, used = groups, int(groups[-1]).bit_length()
    rest: list[Ints] = []
    for key in keys:
        least, greatest = int(key.min()), int(key.max())
        bits = (greatest - least).bit_length()
        if bits == 0:
            continue
        if rest or used + bits > _WORD_BITS:
            rest.append(key)
        else:
            word, used = word << bits | (key - least), used + bits
    return word, rest
