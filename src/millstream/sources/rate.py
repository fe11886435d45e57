"""`Rate`: rows that come by the clock, for trying things out and for measuring."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from millstream.errors import InvalidSpec
from millstream.schema import Schema
from millstream.sources.spec import Extent, Scan

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from millstream.sources.spec import Notes, Opened, Opener, Ranges, Reader, SourceOpening

_SECOND = 1_000_000
_SLICE = 1 << 17
_SCHEMA = "value long, at timestamp"


@dataclass(frozen=True)
class Rate:
    """`value` counts up from 0, `at` is when: so many rows a second since the job's first start.

    A row follows from its number alone, so reading it again gives it again.

    >>> Rate(rows_per_second=10).row_schema().names
    ('value', 'at')
    """

    rows_per_second: int
    name: str = field(default="rate", kw_only=True)

    def __post_init__(self) -> None:
        if type(self.rows_per_second) is not int or not 1 <= self.rows_per_second <= 10**9:
            raise InvalidSpec(
                "Rate needs a whole number of rows a second, from 1 to 1,000,000,000",
                got=repr(self.rows_per_second),
                do="write Rate(rows_per_second=1000)",
            )

    def row_schema(self) -> Schema:
        """`value long, at timestamp`."""
        return Schema.parse(_SCHEMA)

    def opener(self) -> Opener:
        """Rows made from their numbers."""
        return RateRows(self.rows_per_second)

    def reader(self, opening: SourceOpening) -> Reader:
        """The source opened for one run."""
        return RateReader(self.rows_per_second, opening.notes, opening.clock)


@dataclass(frozen=True, slots=True)
class RateRows:
    """Slices of numbers to rows."""

    rows_per_second: int

    def open(self, raw: pa.Table, schema: Schema) -> Opened:
        from millstream.sources.slices import parts_of, together

        return together((self._opened(raw, part, schema) for part in parts_of(raw)), raw, schema)

    def _opened(self, raw: pa.Table, part: dict[str, Any], schema: Schema) -> Opened:
        import numpy as np
        import pyarrow as pa

        from millstream.formats.spec import Decoded
        from millstream.sources.slices import records
        from millstream.sources.spec import Opened

        number = np.arange(part["first"], part["first"] + part["count"], dtype=np.int64)
        seconds, rest = np.divmod(number, self.rows_per_second)
        at = part["start"] + seconds * _SECOND + rest * _SECOND // self.rows_per_second
        columns = [pa.array(number), pa.array(at).cast(pa.timestamp("us", "UTC"))]
        table = pa.Table.from_arrays(columns, schema=schema.arrow())
        places = np.arange(number.size)
        decoded = Decoded(table, places, places[:0], [], 0)
        return Opened(records(raw, columns[0], columns[1]), decoded, 16 * number.size)


class RateReader:
    """The numbers that are due by now, counted from a start that is noted once."""

    def __init__(self, rate: int, notes: Notes, clock: Callable[[], int]) -> None:
        self._rate, self._notes, self._clock = rate, notes, clock
        self._start: int | None = None

    def extent(self) -> Extent:
        """From 0 to the rows due by now."""
        start = self._begun()
        passed = max(0, self._clock() - start)
        return Extent({0: 0}, {0: passed * self._rate // _SECOND}, f"{start}/{self._rate}")

    def _begun(self) -> int:
        if self._start is None:
            if not self._notes.all():
                self._notes.add({"start": self._clock(), "rate": self._rate})
            self._start = int(self._notes.all()[0]["start"])
        return self._start

    def _slices(self, ranges: Ranges) -> list[dict[str, Any]]:
        start = self._begun()
        return [
            {"first": first, "count": min(_SLICE, b - first), "start": start}
            for a, b in ranges.values()
            for first in range(a, b, _SLICE)
        ]

    def scan(self, spark: SparkSession, ranges: Ranges, more: Sequence[str] = ()) -> Scan:
        """The ranges as slices, one to a task."""
        from millstream.sources.slices import as_frame

        return Scan(as_frame(spark, self._slices(ranges), more))

    def table(self, ranges: Ranges, more: Sequence[str] = ()) -> pa.Table:
        """The ranges as slices."""
        from millstream.sources.slices import as_table

        return as_table(self._slices(ranges), more)

    def originals(self, places: Mapping[int, Sequence[int]]) -> pa.Table:
        """Rows as JSON: what a bad one (a time too far ahead) is shown as."""
        import pyarrow as pa

        from millstream.formats.json.encode import encode
        from millstream.sources.slices import as_table
        from millstream.sources.spec import raw_schema

        rows = []
        for offset in places.get(0, ()):
            raw = as_table(self._slices({0: (offset, offset + 1)}))
            opened = RateRows(self._rate).open(raw, Schema.parse(_SCHEMA))
            stamp = opened.records["timestamp"][0].as_py()
            value = encode(opened.decoded.table)[0].as_py()
            rows.append({"value": value, "partition": 0, "offset": offset, "timestamp": stamp})
        return pa.Table.from_pylist(rows, schema=raw_schema())

    def progress(self, offsets: Mapping[int, int]) -> None:
        """Nobody watches."""

    def close(self) -> None:
        """Nothing is held."""
