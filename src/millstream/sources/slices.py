"""Raw records that are slices: each names many rows, which the opener reads.

A slice says where rows are (a piece of a file, a range of numbers) and does not contain them, so
that they are read where they are decoded: in Spark's workers, or on the driver.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from millstream.formats.spec import Decoded
from millstream.sources.spec import Opened, Scan, raw_schema, read_columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from millstream.schema import Schema

PARTITION = 0
_STAMP = pa.timestamp("us", "UTC")


def as_table(slices: Sequence[dict[str, Any]], more: Sequence[str] = ()) -> pa.Table:
    """Slices as raw records; each has `first`, the offset of its first row."""
    rows = [{"value": json.dumps(part).encode(), "partition": PARTITION, "offset": part["first"]}
            for part in slices]  # fmt: skip
    return pa.Table.from_pylist(rows, schema=raw_schema(read_columns(more)))


@dataclass(frozen=True, slots=True)
class Slices:
    """Slices as raw records, one to a Spark task."""

    slices: Sequence[dict[str, Any]]
    more: tuple[str, ...]

    def __call__(self, numbers: Iterable[int]) -> Iterator[pa.RecordBatch]:
        """The slices with these numbers."""
        yield from as_table([self.slices[number] for number in numbers], self.more).to_batches()


def as_scan(slices: Sequence[dict[str, Any]], more: Sequence[str] = ()) -> Scan:
    """Slices for Spark's tasks."""
    return Scan(len(slices), Slices(slices, tuple(more)))


def parts_of(raw: pa.Table) -> list[dict[str, Any]]:
    """The slices in raw records."""
    return [json.loads(value) for value in raw["value"].to_pylist()]


def records(raw: pa.Table, offsets: pa.Array, stamps: pa.Array) -> pa.Table:
    """The offsets and timestamps of rows, as a table of records without values."""
    count = len(offsets)
    made = {
        "partition": pa.array([PARTITION] * 0, pa.int32()) if not count
        else pa.repeat(pa.scalar(PARTITION, pa.int32()), count),
        "offset": offsets,
        "timestamp": stamps.cast(_STAMP),
    }  # fmt: skip
    for name in ("key", "headers"):
        if name in raw.column_names:
            made[name] = pa.nulls(count, raw_schema().field(name).type)
    return pa.table(made)


def together(parts: Iterable[Opened], raw: pa.Table, schema: Schema) -> Opened:
    """Combine the rows of several slices."""
    import numpy as np

    found = list(parts)
    none = np.empty(0, np.int64)
    empty = records(raw, pa.array([], pa.int64()), pa.array([], pa.int64()))
    good, bad, reasons, base = [none], [none], [], 0
    for part in found:
        good.append(part.decoded.good + base)
        bad.append(part.decoded.bad + base)
        reasons += part.decoded.reasons
        base += part.records.num_rows
    tables = [schema.arrow().empty_table(), *(part.decoded.table for part in found)]
    decoded = Decoded(
        pa.concat_tables(tables), np.concatenate(good), np.concatenate(bad), reasons,
        sum(part.decoded.extra for part in found),
    )  # fmt: skip
    whole = pa.concat_tables([empty, *(part.records for part in found)])
    return Opened(whole, decoded, sum(part.bytes for part in found))
