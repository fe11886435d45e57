"""What makes rows that a sink can never take: columns of masks, put together to one of reasons."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.sinks.rows import SIGN

if TYPE_CHECKING:
    from collections.abc import Iterable

Reason = tuple[pa.Array | pa.ChunkedArray, str]


def reasons(count: int, found: Iterable[Reason]) -> pa.Array | None:
    """The first reason of each row, null where there is none; None if there is none at all."""
    told: pa.Array | None = None
    for mask, why in found:
        plain = pc.fill_null(_one(mask), fill_value=False)
        if not pc.any(plain).as_py():
            continue
        before = pa.nulls(count, pa.string()) if told is None else told
        told = pc.if_else(pc.and_(plain, pc.is_null(before)), pa.scalar(why), before)
    return told


def put_in(rows: pa.Table) -> pa.Array | None:
    """Which rows are put in, of a table's changes; None where all of them are."""
    if SIGN not in rows.column_names:
        return None
    return pa.array(rows[SIGN].to_numpy() > 0)


def holds_nul(column: pa.ChunkedArray) -> bool:
    """Whether a byte of these texts is zero, nested ones included."""
    return any(_nul_in(chunk) for chunk in column.chunks)


def _nul_in(values: pa.Array) -> bool:
    kind = values.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return bool(pc.any(pc.match_substring(values, "\0")).as_py())
    if pa.types.is_struct(kind):
        return any(_nul_in(part) for part in values.flatten())
    if pa.types.is_map(kind):
        return _nul_in(values.keys) or _nul_in(values.items)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _nul_in(values.flatten())
    return False


def filled(column: pa.ChunkedArray) -> np.ndarray:
    """How many bytes each value has at most as JSON."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_large_string(kind):
        sizes = pc.fill_null(pc.binary_length(column), 0).to_numpy()
        return np.asarray(sizes, np.int64) * 6 + 8
    most = 64 if not pa.types.is_nested(kind) else 64 * (column.nbytes + 1)
    return np.full(len(column), most, np.int64)


def _one(mask: pa.Array | pa.ChunkedArray) -> pa.Array:
    return mask.combine_chunks() if isinstance(mask, pa.ChunkedArray) else mask
