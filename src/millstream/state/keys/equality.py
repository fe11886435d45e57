"""Equality and order of keys.

Equality is that of the canonical hash: null equals null, NaN equals NaN, and
negative zero equals zero, also inside structs and lists.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.state.arrays.numpy_columns import (
    float_values,
    list_offsets,
    plain,
    spans_to_rows,
    validity,
)
from millstream.state.keys.hashing import is_list

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_SIGN_OFF = np.int64(2**63 - 1)
_NAN_RANK = np.int64(0x7FF8000000000000)


def same(left: pa.Array, right: pa.Array) -> NDArray[np.bool_]:
    """For each row, whether both columns hold the same value."""
    equal = _same_values(left, right)
    if left.null_count == 0 and right.null_count == 0:
        return equal
    here, there = (pc.is_valid(side).to_numpy(zero_copy_only=False) for side in (left, right))
    result: NDArray[np.bool_] = np.where(here & there, equal, here == there)
    return result


def same_rows(left: Sequence[pa.Array], right: Sequence[pa.Array], count: int) -> NDArray[np.bool_]:
    """For each of `count` rows, whether all columns hold the same values."""
    equal = np.ones(count, dtype=np.bool_)
    for one, other in zip(left, right, strict=True):
        equal &= same(one, other)
    return equal


def _same_values(left: pa.Array, right: pa.Array) -> NDArray[np.bool_]:
    kind = left.type
    if len(left) == 0 or pa.types.is_null(kind):
        return np.ones(len(left), dtype=np.bool_)
    if pa.types.is_floating(kind):
        one, other = float_values(left), float_values(right)
        return np.asarray((one == other) | (np.isnan(one) & np.isnan(other)))
    if pa.types.is_struct(kind):
        fields = [plain(field) for field in left.flatten()]
        return same_rows(fields, [plain(field) for field in right.flatten()], len(left))
    if is_list(kind):
        return _same_lists(left, right)
    equal = pc.equal(left, right).fill_null(False)  # noqa: FBT003
    return np.asarray(equal.to_numpy(zero_copy_only=False))


def _same_lists(left: pa.Array, right: pa.Array) -> NDArray[np.bool_]:
    starts, lengths, values = list_parts(left)
    other_starts, other_lengths, other_values = list_parts(right)
    equal = np.asarray(lengths == other_lengths)
    to_compare = np.where(equal, lengths, 0)
    here, owners = spans_to_rows(starts, to_compare)
    there, _ = spans_to_rows(other_starts, to_compare)
    differs = ~same(values.take(pa.array(here)), other_values.take(pa.array(there)))
    equal[owners[differs]] = False
    return equal


def list_parts(
    array: pa.Array,
) -> tuple[NDArray[np.int64], NDArray[np.int64], pa.Array]:
    """Each row's start and length (0 where null) in the elements, and the elements."""
    if pa.types.is_fixed_size_list(array.type):
        array = array.cast(pa.list_(array.type.value_type))
    offsets = list_offsets(array)
    lengths = np.diff(offsets)
    present = validity(array)
    if present is not None:
        lengths = np.where(present, lengths, 0)
    return offsets[:-1], lengths, plain(array.values)


def sortable_floats(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Integers in the order of the floats: −0.0 just below 0.0, one NaN above infinity."""
    bits = values.view(np.int64)
    ranked = np.where(bits < 0, bits ^ _SIGN_OFF, bits)
    return np.where(np.isnan(values), _NAN_RANK, ranked)


def floats_of(ranked: NDArray[np.int64]) -> NDArray[np.float64]:
    """The inverse of `sortable_floats`."""
    return np.where(ranked < 0, ranked ^ _SIGN_OFF, ranked).view(np.float64)


def ranks(array: pa.Array) -> NDArray[np.int64]:
    """Small integers in the order of the values, equal where those are the same; null is 0.

    Structs compare field by field, lists element by element with the shorter first.
    """
    kind = array.type
    if len(array) == 0 or array.null_count == len(array):
        return np.zeros(len(array), dtype=np.int64)
    if pa.types.is_struct(kind):
        found = rank_rows([plain(field) for field in array.flatten()], len(array))
    elif is_list(kind):
        found = _rank_lists(array)
    elif pa.types.is_floating(kind):
        found = _dense(sortable_floats(float_values(array) + 0.0))
    else:
        found = _rank_flat(array)
    present = validity(array)
    return found + 1 if present is None else np.where(present, found + 1, 0)


def rank_rows(columns: Sequence[pa.Array], count: int) -> NDArray[np.int64]:
    """Small integers in the order of the rows, compared column by column."""
    found = np.zeros(count, dtype=np.int64)
    for column in columns:
        found = _refine(found, ranks(column))
    return found


def _rank_flat(array: pa.Array) -> NDArray[np.int64]:
    encoded = array.dictionary_encode()
    by_value = pc.sort_indices(encoded.dictionary).to_numpy()
    rank_of = np.empty(len(by_value), dtype=np.int64)
    rank_of[by_value] = np.arange(len(by_value))
    codes = encoded.indices.fill_null(0).to_numpy()
    return np.asarray(rank_of[codes])


def _rank_lists(array: pa.Array) -> NDArray[np.int64]:
    starts, lengths, values = list_parts(array)
    element_ranks = np.append(ranks(values) + 1, 0)
    found = np.zeros(len(array), dtype=np.int64)
    for place in range(int(lengths.max(initial=0))):
        at = np.where(lengths > place, starts + place, len(values))
        found = _refine(found, element_ranks[at])
    return found


def _refine(major: NDArray[np.int64], minor: NDArray[np.int64]) -> NDArray[np.int64]:
    return _dense(major * (int(minor.max(initial=0)) + 1) + minor)


def _dense(values: NDArray[np.int64]) -> NDArray[np.int64]:
    inverse: NDArray[np.int64] = np.unique(values, return_inverse=True)[1]
    return inverse


def canonical(array: pa.Array) -> pa.Array:
    """The column with one NaN and no negative zero."""
    kind = array.type
    if pa.types.is_floating(kind):
        values = float_values(array) + 0.0
        values[np.isnan(values)] = np.nan
        present = validity(array)
        mask = None if present is None else ~present
        return pa.array(values, mask=mask).cast(kind)
    if not _holds_floats(kind):
        return array
    mask = pc.is_null(array) if array.null_count else None
    if pa.types.is_struct(kind):
        fields = [canonical(plain(field)) for field in array.flatten()]
        return pa.StructArray.from_arrays(fields, fields=list(kind), mask=mask)
    starts, lengths, values = list_parts(array)
    rows, _ = spans_to_rows(starts, lengths)
    elements = canonical(values.take(pa.array(rows)))
    ends = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int64())
    flat = pa.LargeListArray.from_arrays(ends, elements, mask=mask)
    return flat.cast(kind)


def _holds_floats(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(_holds_floats(field.type) for field in kind)
    if is_list(kind):
        return _holds_floats(kind.value_type)
    return bool(pa.types.is_floating(kind))
