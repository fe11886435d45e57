"""Parts of sorted runs: the rows of a segment in an order and bucket range."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.errors import InvalidSpec
from millstream.state.arrays.numpy_columns import list_offsets
from millstream.state.keys.hashing import hash_range, is_bytes
from millstream.state.runs.runs import open_segment
from millstream.state.runs.search import lower_bound
from millstream.state.sorting import hashes_of, orders_of, permutation

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from millstream.state.runs.runs import Run, Segment
    from millstream.state.spec import StateSpec

_SAMPLES_PER_PIECE = 16
_OFFSET_BYTES = 4


@dataclass(frozen=True, slots=True)
class Slice:
    """The rows [start, stop) of a segment, restricted to a hash range."""

    batch: pa.RecordBatch
    orders: NDArray[np.int64]
    hashes: NDArray[np.uint64]
    start: int
    stop: int
    least: int
    greatest: int
    share: float

    def rows(self, start: int, stop: int) -> pa.RecordBatch:
        """The rows of the slice between two indices of the segment."""
        if self.share < 1:
            if self.orders[start] != self.orders[stop - 1]:
                part = self.hashes[start:stop]
                meant = (part >= np.uint64(self.least)) & (part <= np.uint64(self.greatest))
                return self.batch.slice(start, stop - start).filter(pa.array(meant))
            bounds = np.array([self.least, self.greatest], dtype=np.uint64)
            part = self.hashes[start:stop]
            stop = start + int(np.searchsorted(part, bounds[1], side="right"))
            start = start + int(np.searchsorted(part, bounds[0], side="left"))
        return self.batch.slice(start, stop - start)

    def bytes_before(self, places: NDArray[np.int64]) -> NDArray[np.float64]:
        """The approximate size in bytes of the slice's rows before each index."""
        count = max(self.batch.num_rows, 1)
        sizes = np.zeros(len(places))
        for column in self.batch.columns:
            if is_bytes(column.type) and not pa.types.is_fixed_size_binary(column.type):
                offsets = list_offsets(column)
                sizes += (offsets[places] - offsets[0]) + places * _OFFSET_BYTES
            else:
                sizes += places * (column.nbytes / count)
        return sizes * self.share


def slices(
    folder: Path,
    spec: StateSpec,
    run: Run,
    *,
    orders: tuple[int, int | None],
    buckets: tuple[int, int],
    of: int,
) -> Iterator[Slice]:
    """The slices of a run with low <= order < high (None: no end) and in the bucket range."""
    first, end = orders
    for segment in run.segments:
        low, high = max(segment.low, buckets[0]), min(segment.high, buckets[1])
        if low >= high or segment.greatest < first or (end is not None and segment.least >= end):
            continue
        batch = read(folder, spec, segment)
        have = orders_of(batch)
        start = int(np.searchsorted(have, first))
        stop = len(have) if end is None else int(np.searchsorted(have, end))
        if start < stop:
            share = (high - low) / (segment.high - segment.low)
            least, greatest = hash_range((low, high), of)
            yield Slice(batch, have, hashes_of(batch), start, stop, least, greatest, share)


def read(folder: Path, spec: StateSpec, segment: Segment) -> pa.RecordBatch:
    """A segment's rows, which must have the columns of the spec."""
    batch = open_segment(folder, segment)
    if not batch.schema.equals(spec.schema):
        raise InvalidSpec(
            f"the state in {segment.file} needs the columns {', '.join(spec.schema.names)}",
            got=", ".join(batch.schema.names),
            do="run the pipeline that wrote it, or give the step a new name",
        )
    return batch


def places(parts: Sequence[Slice], max_bytes: int) -> NDArray[np.int64]:
    """Where to cut slices into pieces of at most about `max_bytes`: one row per cut.

    Row i of the result cuts slice j at index [i, j]. All slices are cut at the same
    (order, hash), so the rows of one key stay together.
    """
    ends = np.array([[part.start for part in parts], [part.stop for part in parts]])
    cut_orders, cut_hashes = _cuts(parts, max_bytes)
    inner = np.stack(
        [
            part.start
            + lower_bound(
                part.orders[part.start : part.stop],
                part.hashes[part.start : part.stop],
                cut_orders,
                cut_hashes,
            )
            for part in parts
        ],
        axis=1,
    )
    found: NDArray[np.int64] = np.concatenate([ends[:1], inner, ends[1:]])
    return found


def _cuts(parts: Sequence[Slice], max_bytes: int) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """The (order, hash) after each half of `max_bytes`, approximately."""
    weights, orders, hashes = [], [], []
    for part in parts:
        edges = np.array([part.start, part.stop], dtype=np.int64)
        size = float(np.diff(part.bytes_before(edges))[0])
        pieces = _SAMPLES_PER_PIECE * len(parts) * (int(size / max_bytes) + 1)
        step = max((part.stop - part.start) // pieces, 1)
        sampled = np.arange(part.start, part.stop, step, dtype=np.int64)
        weights.append(np.diff(part.bytes_before(sampled), prepend=part.bytes_before(edges[:1])))
        orders.append(part.orders[sampled])
        hashes.append(part.hashes[sampled])
    all_orders, all_hashes = np.concatenate(orders), np.concatenate(hashes)
    in_order = permutation(all_orders, all_hashes)
    weight = np.concatenate(weights)
    if in_order is not None:
        all_orders, all_hashes, weight = (
            all_orders[in_order],
            all_hashes[in_order],
            weight[in_order],
        )
    summed = np.cumsum(weight)
    piece = (summed / (max_bytes / 2)).astype(np.int64)
    cut = np.flatnonzero(np.diff(piece)) + 1 if summed[-1] > max_bytes else np.zeros(0, np.int64)
    return all_orders[cut], all_hashes[cut]
