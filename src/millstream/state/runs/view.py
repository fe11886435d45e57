"""A step's state as a kernel reads it: a bucket range of all runs, combined when read."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.errors import InvalidInput
from millstream.state.arrays.numpy_columns import in_chunks, plain, spans_to_rows
from millstream.state.combine import combine, reduce_groups, without_tombstones
from millstream.state.keys.equality import same_rows
from millstream.state.keys.hashing import buckets_of, hash_range
from millstream.state.runs.search import spans
from millstream.state.runs.slices import places, slices
from millstream.state.sorting import arrange, hashes_of, orders_of
from millstream.state.spec import GONE, ORDER

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from millstream.state.runs.runs import Run
    from millstream.state.runs.slices import Slice
    from millstream.state.spec import StateSpec

_MAX_BYTES = 64 * 2**20


class View:
    """The rows at or above `floor` in the buckets [low, high), of all runs.

    The cost of a lookup depends on the wanted rows, that of a scan on the rows it returns.
    """

    def __init__(
        self,
        folder: Path,
        spec: StateSpec,
        runs: Sequence[Run],
        *,
        floor: int,
        buckets: tuple[int, int],
        of: int = 256,
    ) -> None:
        self.folder, self.spec, self.runs = folder, spec, tuple(runs)
        self.floor, self.buckets, self.of = floor, buckets, of
        self._hashes = hash_range(buckets, of)

    @property
    def rows(self) -> int:
        """The approximate number of rows of these buckets, added over the runs."""
        return self._estimate("rows")

    @property
    def bytes(self) -> int:
        """The approximate size of these buckets in files."""
        return self._estimate("bytes")

    def lookup(self, wanted: pa.Table) -> tuple[NDArray[np.bool_], pa.Table]:
        """Which of the wanted (`_order`, `_hash`, keys) exist, and their combined values.

        The values are in the order of the wanted rows; null where there are none.
        """
        self._refuse_foreign(wanted)
        found = np.zeros(len(wanted), dtype=np.bool_)
        owners, rows = _by_owner(*self._candidates(wanted, self.spec.key_names))
        if len(owners) == 0:
            empty = [pa.nulls(len(wanted), field.type) for field in self.spec.value_fields]
            return found, pa.Table.from_arrays(empty, schema=self._values)
        columns = {name: plain(rows[name]) for name in rows.column_names}
        columns[ORDER] = pa.array(owners)
        starts = np.flatnonzero(np.diff(owners, prepend=-1))
        alive = without_tombstones(reduce_groups(columns, starts, self.spec))
        at = np.zeros(len(wanted), dtype=np.int64)
        owners = orders_of(alive)
        found[owners] = True
        at[owners] = np.arange(len(owners))
        values = alive.select(self._values.names)
        return found, values.take(pa.array(at, mask=~found))

    def find(self, wanted: pa.Table) -> pa.Table:
        """All rows equal to a wanted one in `_order`, `_hash` and the keys that it has.

        The wanted rows lack some of the keys, which are not in the hash either. Found rows
        are combined, and their `_order` is the index of their wanted row.
        """
        self._refuse_foreign(wanted)
        names = [name for name in self.spec.key_names if name in wanted.column_names]
        owners, rows = self._candidates(wanted, names)
        rows = rows.set_column(0, self.spec.schema.field(ORDER), pa.array(owners))
        if all(column.combine == "last" for column in self.spec.values):
            found = _newest(rows, self.spec)
        else:
            found = without_tombstones(combine(rows, self.spec))
        return found.drop_columns([GONE])

    def stored(
        self, wanted: pa.Table, *, max_bytes: int = _MAX_BYTES
    ) -> Iterator[tuple[NDArray[np.int64], pa.Table]]:
        """As `find`, for rows that are written once: stored rows, and the wanted row of each.

        Nothing is combined or sorted; pieces have about `max_bytes`.
        """
        self._refuse_foreign(wanted)
        names = [name for name in self.spec.key_names if name in wanted.column_names]
        for part, orders, hashes, keys in self._asked(wanted, names):
            mine, starts, lengths = _spans(part, orders, hashes)
            each = max(1, max_bytes * part.batch.num_rows // max(1, part.batch.nbytes))
            for asked, rows in in_chunks(starts, lengths, each):
                owners, found = _agreeing(part, rows, mine[asked], keys)
                if len(owners):
                    yield owners, pa.Table.from_batches([found])

    def scan(
        self, low: int, high: int | None, *, max_bytes: int = _MAX_BYTES
    ) -> Iterator[pa.Table]:
        """Combined rows with low <= `_order` < high, sorted by (`_order`, `_hash`, keys).

        `high` None means no end. At most about `max_bytes` are read per piece; only the slices
        in the range are read.
        """
        parts = list(self._slices(max(low, self.floor), high))
        if not parts:
            return
        edges = places(parts, max_bytes)
        for begin, end in pairwise(edges):
            piece = gather(parts, begin, end, self.spec)
            piece = without_tombstones(combine(piece, self.spec)).drop_columns([GONE])
            if len(piece):
                yield piece

    def next_order(self, low: int) -> int | None:
        """The smallest order at or above `low` in any run, tombstones included."""
        parts = self._slices(max(low, self.floor), None)
        return min((int(part.orders[part.start]) for part in parts), default=None)

    def in_pieces(self, rows: pa.Table, max_bytes: int) -> Iterator[tuple[View, pa.Table]]:
        """Split this view by buckets into views of about `max_bytes`, each with its rows.

        `rows` have a `_hash`; each piece gets the rows of its own buckets.
        """
        low, high = self.buckets
        count = max(1, min(high - low, -(-(self.bytes + rows.nbytes) // max_bytes)))
        if count == 1:
            yield self, rows
            return
        at = buckets_of(hashes_of(rows), self.of)
        edges = [low + (high - low) * place // count for place in range(count + 1)]
        for begin, end in pairwise(edges):
            mine = np.flatnonzero((at >= begin) & (at < end))
            part = View(self.folder, self.spec, self.runs, floor=self.floor,
                        buckets=(begin, end), of=self.of)  # fmt: skip
            yield part, rows.take(pa.array(mine))

    @property
    def _values(self) -> pa.Schema:
        return pa.schema(self.spec.value_fields)

    def _slices(
        self, low: int, high: int | None, buckets: tuple[int, int] | None = None
    ) -> Iterator[Slice]:
        """All slices, or those of some buckets; the oldest run first."""
        for run in self.runs:
            yield from slices(
                self.folder,
                self.spec,
                run,
                orders=(low, high),
                buckets=buckets or self.buckets,
                of=self.of,
            )

    def _candidates(
        self, wanted: pa.Table, names: Sequence[str]
    ) -> tuple[NDArray[np.int64], pa.Table]:
        """Rows with a wanted key, oldest run first, and the wanted row of each."""
        owners, parts = [], []
        for part, orders, hashes, keys in self._asked(wanted, names):
            owner, rows = _matching(part, orders, hashes, keys)
            if len(owner):
                owners.append(owner)
                parts.append(pa.Table.from_batches([rows]))
        if not owners:
            return np.zeros(0, dtype=np.int64), self.spec.schema.empty_table()
        return np.concatenate(owners), pa.concat_tables(parts).combine_chunks()

    def _asked(
        self, wanted: pa.Table, names: Sequence[str]
    ) -> Iterator[tuple[Slice, NDArray[np.int64], NDArray[np.uint64], Mapping[str, pa.Array]]]:
        """The slices that may have wanted rows, each with the wanted orders, hashes and keys."""
        orders, hashes = orders_of(wanted), hashes_of(wanted)
        keys = {n: plain(wanted[n]).cast(self.spec.keys.field(n).type) for n in names}
        if len(hashes) == 0:
            return
        last = int(orders.max())
        ends = buckets_of(np.array([hashes.min(), hashes.max()]), self.of)
        within = int(ends[0]), int(ends[1]) + 1
        for part in self._slices(self.floor, None if last == 2**63 - 1 else last + 1, within):
            yield part, orders, hashes, keys

    def _refuse_foreign(self, wanted: pa.Table) -> None:
        hashes = hashes_of(wanted)
        if len(hashes) and not (
            self._hashes[0] <= int(hashes.min()) and int(hashes.max()) <= self._hashes[1]
        ):
            raise InvalidInput(
                f"a lookup needs keys of the buckets [{self.buckets[0]}, {self.buckets[1]})",
                got="a key of another bucket",
                do="send each row to the task that owns its bucket",
            )

    def _estimate(self, measure: str) -> int:
        total = 0.0
        for run in self.runs:
            for segment in run.segments:
                low = max(segment.low, self.buckets[0])
                shared = max(min(segment.high, self.buckets[1]) - low, 0)
                if segment.greatest >= self.floor:
                    total += getattr(segment, measure) * shared / (segment.high - segment.low)
        return round(total)


def _by_owner(owners: NDArray[np.int64], rows: pa.Table) -> tuple[NDArray[np.int64], pa.Table]:
    """Rows sorted by wanted row, oldest first."""
    if (owners[1:] >= owners[:-1]).all():
        return owners, rows
    order = np.argsort(owners, kind="stable")
    return owners[order], rows.take(pa.array(order))


def _newest(rows: pa.Table, spec: StateSpec) -> pa.Table:
    """The last live row of each key: the combined row if all values are `last`."""
    keys = [plain(rows[name]) for name in spec.key_names]
    order, starts, _ = arrange(orders_of(rows), hashes_of(rows), keys)
    lasts = np.append(starts[1:], len(rows))[: len(starts)] - 1
    newest = lasts if order is None else order[lasts]
    gone = plain(rows[GONE]).to_numpy(zero_copy_only=False)
    return rows.take(pa.array(newest[~gone[newest]]))


def gather(
    parts: Sequence[Slice], begin: NDArray[np.int64], end: NDArray[np.int64], spec: StateSpec
) -> pa.Table:
    """The rows of all slices between two cuts, in the order of the slices."""
    taken = [
        part.rows(int(start), int(stop))
        for part, start, stop in zip(parts, begin, end, strict=True)
        if start < stop
    ]
    return pa.Table.from_batches(taken, schema=spec.schema)


def _matching(
    part: Slice,
    orders: NDArray[np.int64],
    hashes: NDArray[np.uint64],
    keys: Mapping[str, pa.Array],
) -> tuple[NDArray[np.int64], pa.RecordBatch]:
    """The rows of one slice with a wanted key, and the wanted row of each."""
    mine, starts, lengths = _spans(part, orders, hashes)
    rows, owners = spans_to_rows(starts, lengths)
    return _agreeing(part, rows, mine[owners], keys)


def _spans(
    part: Slice, orders: NDArray[np.int64], hashes: NDArray[np.uint64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """The wanted rows a slice may have, the first row of their hash, and the number of rows."""
    mine = np.flatnonzero(
        (hashes >= np.uint64(part.least))
        & (hashes <= np.uint64(part.greatest))
        & (orders >= part.orders[part.start])
        & (orders <= part.orders[part.stop - 1])
    )
    starts, lengths = spans(
        part.orders[part.start : part.stop],
        part.hashes[part.start : part.stop],
        orders[mine],
        hashes[mine],
    )
    return mine, starts + part.start, lengths


def _agreeing(
    part: Slice,
    rows: NDArray[np.int64],
    owners: NDArray[np.int64],
    keys: Mapping[str, pa.Array],
) -> tuple[NDArray[np.int64], pa.RecordBatch]:
    """Of rows with a wanted hash, those with the wanted keys, and the wanted row of each."""
    taken = pa.array(rows)
    have = [plain(part.batch.column(name).take(taken)) for name in keys]
    want = [key.take(pa.array(owners)) for key in keys.values()]
    same = same_rows(have, want, len(rows))
    if not same.all():
        rows, owners = rows[same], owners[same]
    return owners, part.batch.take(pa.array(rows))
