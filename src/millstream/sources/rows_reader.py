"""Reads records from lists: an offset is an index."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millstream.sources.spec import Extent, Scan, raw_schema, read_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from millstream.sources.spec import Ranges

Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Held:
    """Records in memory, by slice."""

    slices: tuple[pa.Table, ...]

    def __call__(self, numbers: Iterable[int]) -> Iterator[pa.RecordBatch]:
        """The slices with these numbers."""
        for number in numbers:
            yield from self.slices[number].to_batches()


class RowsReader:
    """Lists of records by partition, which may grow."""

    def __init__(
        self, partitions: Callable[[], Mapping[int, Sequence[Record]]], identity: str | None = None
    ) -> None:
        self._partitions, self._identity = partitions, identity

    def extent(self) -> Extent:
        """All records."""
        ends = {partition: len(records) for partition, records in self._partitions().items()}
        return Extent(dict.fromkeys(ends, 0), ends, self._identity)

    def scan(self, ranges: Ranges, slices: int, more: Sequence[str] = ()) -> Scan:
        """The records of these ranges in their order, sent to the tasks."""
        records = self.table(ranges, more)
        edges = [records.num_rows * number // slices for number in range(slices + 1)]
        parts = [records.slice(a, b - a) for a, b in pairwise(edges) if b > a]
        return Scan(len(parts), Held(tuple(parts)))

    def table(self, ranges: Ranges, more: Sequence[str] = ()) -> pa.Table:
        """The records of these ranges."""
        parts = self._partitions()
        rows = [record for p, (a, b) in sorted(ranges.items()) for record in parts.get(p, [])[a:b]]
        return pa.Table.from_pylist(rows, schema=raw_schema(read_columns(more)))

    def originals(self, places: Mapping[int, Sequence[int]]) -> pa.Table:
        """Single records with all columns."""
        parts = self._partitions()
        rows = [parts[p][offset] for p, offsets in sorted(places.items()) for offset in offsets]
        return pa.Table.from_pylist(rows, schema=raw_schema())

    def progress(self, offsets: Mapping[int, int]) -> None:
        """Nothing to report for records in memory."""

    def close(self) -> None:
        """Nothing to close."""
