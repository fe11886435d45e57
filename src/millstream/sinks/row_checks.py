"""Finds rows that a sink can never take: combines masks of invalid rows into one of reasons."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.sinks.rows import SIGN

if TYPE_CHECKING:
    from collections.abc import Iterable

Reason = tuple[pa.Array | pa.ChunkedArray, str]


def first_reasons(count: int, found: Iterable[Reason]) -> pa.Array | None:
    """Return the first reason of each row, null for valid rows; None if all rows are valid."""
    reasons: pa.Array | None = None
    for mask, reason in found:
        invalid = plain_mask(mask)
        if not pc.any(invalid).as_py():
            continue
        earlier = pa.nulls(count, pa.string()) if reasons is None else reasons
        reasons = pc.if_else(pc.and_(invalid, pc.is_null(earlier)), pa.scalar(reason), earlier)
    return reasons


def plain_mask(mask: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a mask as one array in which null is false."""
    array = mask.combine_chunks() if isinstance(mask, pa.ChunkedArray) else mask
    return pc.fill_null(array, fill_value=False)


def upsert_mask(rows: pa.Table) -> pa.Array | None:
    """Return which changes of a table are upserts; None if all are."""
    if SIGN not in rows.column_names:
        return None
    return pa.array(rows[SIGN].to_numpy() > 0)


def contains_nul(column: pa.ChunkedArray) -> bool:
    """Whether any text of the column, nested ones included, contains a NUL character."""
    return any(_contains_nul(chunk) for chunk in column.chunks)


def _contains_nul(values: pa.Array) -> bool:
    kind = values.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return bool(pc.any(pc.match_substring(values, "\0")).as_py())
    if pa.types.is_struct(kind):
        return any(_contains_nul(part) for part in values.flatten())
    if pa.types.is_map(kind):
        return _contains_nul(values.keys) or _contains_nul(values.items)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _contains_nul(values.flatten())
    return False


def max_json_sizes(column: pa.ChunkedArray) -> np.ndarray:
    """Return an upper bound for the size of each value as JSON, in bytes."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_large_string(kind):
        sizes = pc.fill_null(pc.binary_length(column), 0).to_numpy()
        return np.asarray(sizes, np.int64) * 6 + 8
    bound = 64 if not pa.types.is_nested(kind) else 64 * (column.nbytes + 1)
    return np.full(len(column), bound, np.int64)
